// The inside of a Session: what its header does not show.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "api/membership.h"
#include "api/progress.h"
#include "api/session.h"
#include "api/world_seat.h"
#include "comm/loopback_transport.h"
#include "compiler/compile.h"
#include "runtime/base/mutex.h"
#include "runtime/coordinator.h"
#include "runtime/data/dataset_kinds.h"
#include "runtime/files/checkpoint_format.h"
#include "runtime/files/folder_lock.h"
#include "runtime/node.h"

namespace braid {

class CheckpointReader;
class CheckpointWriter;
class RunReceiver;

// All devices of these nodes: a cluster of several kinds is one placement like any other.
Placement DevicesOf(const std::vector<int>& devices, const std::vector<std::string>& kinds);
// Whether the options go together.
absl::Status CheckFit(const SessionOptions& options);

class Session::Impl {
 public:
  explicit Impl(SessionOptions options);
  ~Impl();

  // Makes the nodes and joins them.
  absl::Status Start();
  // The nodes are those of the world.
  absl::Status StartIn(dist::World& world);
  absl::Status Close(const absl::Status& cause);
  // An error of this machine, a full disk for instance, with the node's name where there are
  // others.
  absl::Status LocalError(const absl::Status& status) const;
  // What all that follows is part of, for messages, until it is gone; of several the outermost.
  class Activity {
   public:
    Activity(Impl* impl, std::string what);
    ~Activity();

   private:
    Impl* const impl_;
    const bool is_told_;
  };
  std::vector<NodeTraffic> Traffic() const;
  std::string Describe() const;

  // What a job is beside its recording. `is_visible`: a user's, which --explain and --dry_run show.
  struct JobKind {
    bool is_visible = false;
    bool is_without_sync = false;  // of a user's job, that of its steps which update nothing
    // In a world, which processes feed it and get what it fetches; else there is only the master.
    enum class Hosts { kAll, kMaster } hosts = Hosts::kAll;
  };
  struct Fed {
    std::string name;
    TensorType type;
    std::string location;
    bool is_own = false;  // each rank of a world has a value of its own
    bool is_fed = false;  // by a Run; it keeps its array
  };
  struct LoadedJob {
    JobId id = 0;
    JobKind::Hosts hosts = JobKind::Hosts::kAll;
    std::string name;
    size_t plan_bytes = 0;
    std::string summary;
    std::vector<DeviceMemory> memory;
    std::shared_ptr<const compiler::Compiled> compiled;  // of a user's job, to explain it
    std::vector<Fed> inputs;
    std::vector<std::pair<std::string, TensorType>> fetches;
    std::set<std::string, std::less<>> losses;    // fetches that it minimizes
    int64_t samples_per_step = 0;                 // 0: not known
    std::map<std::string, Job::Printed> prints;   // by fetch
    std::vector<absl::StatusOr<int64_t>> epochs;  // by reader: steps
    std::vector<std::string> trainable;           // variables of a user's job
    int64_t step = 0;                             // of the next Run
    // What it does to variables; a checkpoint's step is that of the jobs that do most.
    enum class Change { kNothing, kAssigns, kMinimizes } change = Change::kNothing;
    bool is_unloaded = false;
    bool has_run = false;
    int64_t kept_bytes = 0;   // most of a device, while it is loaded
    int64_t checked_at = -1;  // the step at which replicas were compared last
    bool has_no_sync = false;
    std::optional<JobId> without_sync;  // runs its steps that update nothing
  };

  // A job that is not loaded yet, and the graph as it was recorded, in a world.
  struct CompiledHere {
    std::unique_ptr<LoadedJob> job;
    std::shared_ptr<const compiler::Compiled> compiled;
    std::string plan, recorded;
  };
  // Records, compiles and loads.
  absl::StatusOr<LoadedJob*> Compile(const std::string& name,
                                     const std::function<void(Job&)>& record, JobKind kind);
  // A user's job, and what else its Runs may need.
  absl::StatusOr<LoadedJob*> CompileUsers(const std::string& name,
                                          const std::function<void(Job&)>& record);
  absl::StatusOr<RunResult> Run(JobId job, const RunOptions& options);
  void Unload(JobId job);
  // Records, runs one step and unloads. In ByMaster, the master's recording on all ranks; it alone
  // feeds and fetches.
  absl::StatusOr<RunResult> RunOnce(const std::string& name,
                                    const std::function<void(Job&)>& record,
                                    const RunOptions& options);
  // What the master does: it alone calls `action`, and all ranks of a world return what it returns.
  // They follow in the jobs that it runs once. `call` is what the program calls, on all ranks.
  absl::Status ByMaster(const std::string& call, const std::function<absl::Status()>& action);

  struct VariableInfo {
    TensorType type;
    compiler::VariableLayout layout;
    Attrs attrs;
  };
  // Whether what goes to files and to the terminal is this process's.
  bool IsMaster() const { return world_ == nullptr || world_->rank() == 0; }
  // Whether this process feeds the job and gets what it fetches.
  bool IsHostOf(const LoadedJob& job) const {
    return job.hosts == JobKind::Hosts::kAll || IsMaster();
  }
  absl::StatusOr<Array> Get(const std::string& variable);
  bool HasVariable(const std::string& name) const { return variables_.contains(name); }
  absl::Status Set(const std::map<std::string, const Array*>& values);
  absl::Status SetFromFiles(const std::map<std::string, FilePart>& parts);
  // By the master.
  absl::Status Save(const std::string& directory, const SaveOptions& options);
  absl::Status FinishSave();
  absl::Status Load(const std::string& directory, CheckpointState& state);
  absl::Status LoadWeights(const std::string& path, const WeightsOptions& options);
  absl::Status SaveWeights(const std::string& path, const WeightsOptions& options);
  // On all ranks: takes over what the master has loaded.
  absl::Status Resume(CheckpointState state);
  absl::StatusOr<const VariableInfo*> FindVariable(const std::string& name) const;
  // Whether it is an optimizer's state.
  bool IsState(const std::string& variable) const;
  // The variable in another job.
  Tensor Refer(Job& job, const std::string& name, const VariableInfo& info) const;

  LoadedJob& job(JobId id) { return *jobs_.at(id); }
  const SessionOptions& options() const { return options_; }
  OpRegistry& operators() { return operators_; }
  KernelRegistry& kernels() { return world_ == nullptr ? kernels_ : world_->kernels(); }
  const Placement& devices() const { return devices_; }
  const std::map<std::string, VariableInfo>& variables() const { return variables_; }
  std::map<JobId, std::unique_ptr<LoadedJob>>& jobs() { return jobs_; }

 private:
  // Of variables' values, at a time in the master's memory on their way to or from the nodes.
  static constexpr int64_t kGatherBytes = 256 << 20;
  // For nodes to come, and to answer.
  static constexpr Nanoseconds kJoinLimit = 60 * kSecond;

  void UnloadEverywhere(JobId id, std::string_view name);
  absl::Status CloseInWorld(const absl::Status& cause);
  // Steps of the job that update nothing.
  absl::StatusOr<RunResult> RunWithoutSync(LoadedJob& job, RunOptions options);
  absl::StatusOr<RunResult> RunOnceHere(const std::string& name,
                                        const std::function<void(Job&)>& record,
                                        const RunOptions& options);
  // What a rank that is not the master does in ByMaster.
  absl::Status FollowMaster();
  // A job's name and recording, as text; "" and "" when there are no more.
  using MasterJob = std::pair<std::string, std::string>;
  // Records what the text says, which is borrowed.
  std::function<void(Job&)> RecordedBefore(const std::string& text);
  // Whether some nodes are other processes, with files of their own.
  bool HasOtherProcesses() const { return options_.network.has_value() || world_ != nullptr; }
  compiler::CompileOptions OptionsOfCompile(const std::string& name, JobKind kind) const;
  absl::Status CompileHere(const std::string& name, const std::function<void(Job&)>& record,
                           JobKind kind, CompiledHere& made);
  // By who has the coordinator.
  absl::Status LoadCompiled(const CompiledHere& made, bool is_visible);
  // Whether the call may come now, and no mistake was made before.
  absl::Status Begin(std::string_view call, std::string_view job);
  // What a Run must be before it begins, and how many steps it has.
  absl::Status CheckRun(const LoadedJob& job, const RunOptions& options, int64_t& steps);
  // A line for each input with what it is fed, which all ranks feed alike.
  std::string FedText(const LoadedJob& job, const RunOptions& options) const;
  // `own`, or in a world what all ranks come to.
  absl::Status Agree(const WorldSeat::Call& call, const absl::Status& own);
  // What the job asks of each node: of every node as it says, or, in a dry run, as planned here.
  absl::StatusOr<std::vector<NodeSummary>> LoadEverywhere(const LoadedJob& job,
                                                          const std::string& plan,
                                                          const compiler::PhysicalGraph& graph,
                                                          bool wants_summaries);
  absl::Status WriteExplanation(const LoadedJob& job);
  // Steps that follow those the job has done, with what it fetches.
  absl::Status RunSteps(LoadedJob& job, int64_t steps, RunReceiver& receiver);
  // Whether the job may change what several devices hold.
  bool ChangesReplicas(const LoadedJob& job) const;
  // How many steps of the job may run before CheckReplicas is due.
  int64_t StepsUntilCheck(const LoadedJob& job) const;
  // Whether it is due at the end of a Run, where no number of steps is given.
  bool IsCheckDueAfterRun(const LoadedJob& job) const;
  // DATA_LOSS if what several devices hold of a variable is no longer the same after the steps that
  // the job has done.
  absl::Status CheckReplicas(LoadedJob& job);
  absl::Status CompileReplicaCheck();
  void UnloadReplicaCheck();
  absl::Status CheckFeeds(const LoadedJob& job, const RunOptions& options) const;
  // What its Runs need to know that the compiled graph does not say.
  static std::unique_ptr<LoadedJob> Recorded(const Job& job, const LogicalGraph& graph);
  // What the options come to.
  absl::StatusOr<int64_t> StepsOf(const LoadedJob& job, const RunOptions& options) const;
  // Says which trainable variables nothing can have changed: mostly, of a job that evaluates and
  // names a layer otherwise than the one that trains.
  void WarnOfFirstValues(const LoadedJob& job) const;
  // OUT_OF_RANGE for a loss that is NaN.
  absl::Status CheckLoss(const LoadedJob& job, std::string_view name, int64_t step,
                         double value) const;
  void Remember(const LogicalGraph& graph);
  // Puts averages into the places of the variables that have some, as Job::UseAverages says.
  absl::Status ReadAverages(const std::string& job, const SourceLocation& where,
                            LogicalGraph& graph) const;
  CheckpointState State() const;
  struct Saving;
  absl::StatusOr<std::shared_ptr<Saving>> BeginSave(const std::string& directory,
                                                    const SaveOptions& options);
  // Every node writes what its devices hold, or the master gathers all and writes it; then the
  // saver does the rest. NOT_FOUND if some node cannot.
  absl::Status SaveByNodes(const std::shared_ptr<Saving>& saving);
  absl::Status SaveByMaster(const std::shared_ptr<Saving>& saving);
  absl::Status SaveError(const std::string& directory, const absl::Status& status) const;
  // Returns when the last save is over, however it went.
  absl::Status AwaitSave();
  // In a world, whose coordinator lasts longer: afterwards it has nothing to say to the saver.
  absl::Status EndSaving();
  // The master reads and sends these variables, about `batch_bytes` at a time.
  using ReadVariable = std::function<absl::Status(const std::string& name, Array& into)>;
  absl::Status SetByMaster(const std::vector<std::string>& names, int64_t batch_bytes,
                           const ReadVariable& read);
  // Every node reads what its devices hold, or the master reads all and sends it.
  absl::Status LoadByNodes(const CheckpointReader& reader);
  absl::Status LoadByMaster(const CheckpointReader& reader);
  // A failure of a run, with where this process's last events are.
  absl::Status WithEvents(const absl::Status& status);
  int64_t DeviceMemoryBytes() const;
  void SetMemory(compiler::CompileOptions& compile) const;
  // RESOURCE_EXHAUSTED if what the job and those loaded before take, with what the nodes say of
  // kernels, collectives and datasets, is more than there is; says what takes most.
  absl::Status CheckMemory(const LoadedJob& job) const;
  // By whose times jobs are compiled, and in whose a step is estimated; after joining.
  absl::Status ChooseMachines();
  compiler::NodeKinds KindsOfNodes() const;
  // Whether devices of all nodes do collectives with each other, by one library.
  absl::Status ChooseReach();
  // Waits for the other nodes of the network; afterwards options_.devices has what they brought.
  absl::StatusOr<std::vector<std::unique_ptr<ControlChannel>>> JoinNetwork();
  // Whether there are such devices, and whether this machine has what its own need.
  absl::Status OpenDevices();
  // What is known of the machines before nodes join.
  void FindMachines();
  std::unique_ptr<ControlChannel> StartNode(int node, const std::string& host);

  SessionOptions options_;
  OpRegistry operators_;
  KernelRegistry kernels_;
  Placement devices_;
  // Of each node: what its machine is called, that machine's memory, what the process may take of
  // it (0: all), and what it measured ("": nothing).
  struct NodeMachine {
    std::string host;
    uint64_t memory_bytes = 0;
    uint64_t process_bytes = 0;
    std::string rates = {};
    std::vector<uint64_t> device_bytes = {};  // of devices with own memory, where it is known
    ReachBetweenNodes reach = {};             // of its devices
  };
  std::vector<NodeMachine> machines_;
  bool collect_between_nodes_ = false;
  int64_t channel_block_ = 0;  // of jobs that are compiled here
  compiler::Machine choice_machine_, estimate_machine_;
  DatasetCache datasets_{options_.dataset_kinds};
  std::unique_ptr<Environment> own_environment_;
  Environment* environment_ = nullptr;  // the network's, or its own
  LoopbackNetwork loopback_;
  MasterSeat seat_;                                                // empty without a network
  std::map<int, std::shared_ptr<ControlConnection>> connections_;  // shared with their channels
  std::vector<std::unique_ptr<Node>> nodes_;
  std::unique_ptr<WorldSeat> world_;  // null: this process alone has a program
  Node* host_node_ = nullptr;         // by which the program feeds and fetches
  std::unique_ptr<Reactor> saver_;    // completes saves; outlives what posts to it
  std::unique_ptr<Coordinator> own_coordinator_;
  Coordinator* coordinator_ = nullptr;  // its own, or the world's on rank 0
  std::unique_ptr<RunReporter> reporter_;
  std::map<JobId, std::unique_ptr<LoadedJob>> jobs_;
  std::atomic<bool> is_stepping_{false};  // read inside on_step, maybe on another thread
  std::map<std::string, VariableInfo> variables_;
  std::set<std::string> touched_;  // of these, what some job changes, or was loaded or set
  // What CheckReplicas runs; made of the variables that there are, whose number tells if it is old.
  struct ReplicaCheck {
    struct Group {
      compiler::VariableLayout layout;
      std::vector<std::string> variables;
    };
    size_t num_variables = 0;
    std::vector<Group> groups;
    std::unique_ptr<LoadedJob> job;  // null: no variable has replicas
    int64_t alike_at = -1;           // after which step all were alike
  };
  ReplicaCheck replica_check_;
  std::map<std::string, FolderLock> saved_;  // by the folder's real path
  std::shared_ptr<Saving> saving_;           // the last, until its status was told
  int64_t loaded_step_ = 0;                  // of the last checkpoint
  bool was_loaded_ = false;                  // one was
  JobId next_job_ = 1;
  CollectiveId next_collective_ = 0;
  std::shared_ptr<Mistakes> mistakes_ = std::make_shared<Mistakes>(Mistakes::Reader::kSession);
  bool has_explained_ = false;
  bool is_in_activity_ = false;
  bool is_by_master_ = false;
  bool is_closed_ = false;
};

}  // namespace braid
