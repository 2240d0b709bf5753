// A user's process: the cluster, the compiled jobs, the variables.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "api/job.h"
#include "api/network.h"
#include "api/weights.h"
#include "compiler/machine.h"
#include "graph/op_registry.h"
#include "runtime/array.h"
#include "runtime/base/ids.h"
#include "runtime/base/mistakes.h"
#include "runtime/data/dataset_kinds.h"
#include "runtime/device/device_kinds.h"
#include "runtime/kernels/kernel.h"
#include "runtime/reports/node_summary.h"

namespace braid {

class Session;

namespace dist {
class World;
}  // namespace dist

// Where what a run says goes.
enum class Progress : uint8_t {
  kAuto,  // a bar on a terminal, else as kOff
  kOn,
  kOff,
};

struct SessionOptions {
  // Devices of each node. Several nodes live in this process, unless `network` says otherwise.
  std::vector<int> devices = {1};
  // Their kinds, by node; empty: CPUs everywhere. A network's nodes say it themselves.
  std::vector<std::string> node_kinds = {};
  DeviceKinds device_kinds = {};    // that this process can make
  DatasetKinds dataset_kinds = {};  // that its nodes can open
  // The session is the master, node 0, of real nodes, whose devices the cluster lists.
  std::optional<NetworkOptions> network = std::nullopt;
  int threads_per_device = 1;
  // What products of f32 tensors compute in: f32, or bf16 or f16 (with f32 sums, variables and
  // updates). With f16 each Minimize has a loss scale (compiler/logical/loss_scale.h), which is a
  // variable as others are, and a step whose gradients are not finite updates nothing.
  DType precision = DType::kF32;
  // In f32, convolutions with windows of 3 x 3 and their gradients may sum by Winograd's algorithm,
  // about twice as fast; errors are then some 1e-6 of the result's norm instead of 1e-7.
  bool winograd = true;
  // Most channels of the blocks in which tensors between convolutions lie on CPUs: 8, or 16, when
  // chains that these do not fit have 8, or one block of all channels. Nothing: as many numbers as
  // the vectors of the master's CPU hold; in a world, of the CPU with the shortest.
  std::optional<int64_t> channel_block = std::nullopt;
  uint64_t seed = 0;
  // The whole cluster in the calling thread, in an order and on a clock drawn by this seed.
  std::optional<uint64_t> simulation_seed = std::nullopt;
  // Every tensor's layout is drawn by this seed among all that are legal, instead of the cheapest:
  // a job whose numbers then differ by more than rounding has an operator with a wrong signature.
  std::optional<uint64_t> layout_seed = std::nullopt;
  // Whose times decide on layouts and routes, and which the step's estimate is in. None: those of
  // `measured` where `decides_by_measured`, else the default's, so that a plan depends on the
  // program and its devices only; then the estimate is in those of `measured` all the same, if
  // there are any.
  std::optional<compiler::Machine> machine = std::nullopt;
  // What this machine was measured to do. Of other nodes, their own, which come with joining, count
  // as well: a rate is that of the slowest.
  std::optional<compiler::Machine> measured = std::nullopt;
  bool decides_by_measured = false;
  bool dry_run = false;  // Compile prints what it planned; Run returns CANCELLED
  // "": none. A name that ends in .dot gets the first job's graph; FILE.JOB.dot that of later ones.
  std::string explain_path;
  // "": none. A JSON line per fetched scalar and step, with its time and, of jobs with readers,
  // samples a second. What the file had stays if a checkpoint was loaded before the first Run.
  std::string metrics_path;
  Progress progress = Progress::kAuto;
  // What each device has, for plans of machines that are not here. 0: what its machine has, or the
  // control group or the process there if that is less, shared by all devices that are on it.
  int64_t device_memory_bytes = 0;
  // After so many steps of a job that changes variables, and after its first, those that several
  // devices hold are compared over all of them, by the master; 0: never. Nothing: where all devices
  // work in their hosts' memory, at the ends of Runs, after the first and then when 1,000 steps
  // have passed, so that no step waits for it.
  std::optional<int64_t> check_replicas = std::nullopt;
  // Goes on when a loss that is minimized and fetched becomes NaN; else that is the Run's error. In
  // f16 it may become so in a step that updates nothing, and is no error.
  bool allow_nan = false;
  // Every kernel's numbers are looked at (runtime/kernels/check_numerics.h): the first that makes a
  // NaN or an infinity ends the run with its operator, line, step and the ranges of its inputs. The
  // same numbers, in several times the time. Sums between devices are looked at where an operator
  // takes them. INVALID_ARGUMENT with f16, whose loss scale lets gradients become infinite.
  bool check_numerics = false;
  Nanoseconds stall_timeout = 60 * kSecond;  // without progress: nodes say what they wait for
  std::string event_dump;  // folder for the last events of a run that fails; "": none are written
  Interruption* interruption = nullptr;  // borrowed; ends the session with its reason
  // The first cause of a failure, as soon as it is known; any thread.
  std::function<void(const absl::Status&)> on_failure;
};

// Which of a fetch's values a RunResult has.
enum class Keep : uint8_t {
  kAll,   // one array per step
  kLast,  // one, of the last step
  kMean,  // one, f64: the mean over the steps, element by element
};

// What a step fetched, by the names of Job::Fetch.
using StepValues = std::map<std::string, Array, std::less<>>;

struct RunOptions {
  int64_t steps = 1;
  // Instead of steps: so many times through what the job reads. FAILED_PRECONDITION if its readers
  // do not agree on how many steps that is, or if an epoch is no whole number of batches.
  int64_t epochs = 0;
  std::vector<std::pair<std::string, Array>> feeds = {};
  // The steps add each device's gradients to those of earlier steps, and update nothing; the next
  // Run without this reduces the sum. FAILED_PRECONDITION unless a Minimize of the job has
  // .ddp = {.no_sync = true}.
  bool no_sync = false;
  Keep keep = Keep::kAll;  // how much memory many steps take
  // Called after each step of a job that fetches something, in their order, with what it fetched;
  // on another thread, while later steps go on, or between steps where this thread does the work.
  // An error is the Run's, and the session's end.
  std::function<absl::Status(int64_t step, const StepValues& values)> on_step = {};
};

struct SaveOptions {
  std::string name = {};  // instead of step-N
  int keep = 0;           // the last so many step-N stay, and all that have names; 0: all
};

// What has gone over the master's connections with another node since the start.
struct NodeTraffic {
  int node = 0;
  // The control connection: plans, credits, and their answers; heartbeats.
  uint64_t messages_sent = 0;
  uint64_t messages_received = 0;
  uint64_t heartbeats_sent = 0;
  uint64_t heartbeats_received = 0;
  // The data link; "" and zeros if these two share no edge.
  std::string link;  // "node 0 <-> node 1: tcp lo"
  uint64_t bytes_sent = 0;
  uint64_t bytes_received = 0;
};

// What a Run fetched, by the names of Job::Fetch. A name that the job does not fetch has no values,
// and numbers that are not there are NaN; it is the error of the session's next Compile, Run, Save,
// Load or Close, as is reading an Array of these as another type.
class RunResult {
 public:
  // As RunOptions::keep says.
  const std::vector<Array>& Values(std::string_view name, SourceLocation where = Here()) const;
  // Of the last step, unless it is the mean that was kept.
  const Array& Last(std::string_view name, SourceLocation where = Here()) const;
  // The mean over steps and elements.
  double Mean(std::string_view name, SourceLocation where = Here()) const;
  // One number per array, of scalars; of other values, an error as of other names.
  std::vector<double> Scalars(std::string_view name, SourceLocation where = Here()) const;

 private:
  friend class Session;
  explicit RunResult(std::shared_ptr<Mistakes> mistakes);

  std::map<std::string, std::vector<Array>, std::less<>> values_;
  std::shared_ptr<Mistakes> mistakes_;  // the session's
  std::vector<Array> no_values_;
  Array nothing_;  // NaN
};

// A handle; valid as long as its Session.
class CompiledJob {
 public:
  // Runs the job's next steps on the whole cluster. INVALID_ARGUMENT for a feed that is missing,
  // unknown, or of another shape or dtype; OUT_OF_RANGE for a loss that became NaN, see
  // SessionOptions::allow_nan; FAILED_PRECONDITION inside on_step; otherwise the first cause of a
  // failure, on any node. A job of one CPU device without threads_per_device runs on the calling
  // thread: then a kernel that hangs is not left when the session ends.
  absl::StatusOr<RunResult> Run(const RunOptions& options = {});

  // Gives back what it has on all nodes but its variables, which stay with the session, and its
  // name. Nothing runs afterwards.
  void Unload();

  // The number of the next Run's first step: what dropout, schedules and readers count by.
  int64_t step() const;
  void SetStep(int64_t step);

  // Ops, devices, memory per device, bytes per link and step: what --dry_run prints, followed by a
  // table of the layers.
  const std::string& summary() const;
  // What it takes of each device's memory, by node and device.
  const std::vector<DeviceMemory>& memory() const;
  // The whole plan: ops, SBP, boxing, alternatives.
  std::string Explain() const;
  // Bytes of the plan, which every node gets.
  size_t plan_bytes() const;

 private:
  friend class Session;
  CompiledJob(Session* session, JobId job) : session_(session), job_(job) {}
  Session* session_;
  JobId job_;
};

class Session {
 public:
  static absl::StatusOr<std::unique_ptr<Session>> Start(SessionOptions options);
  // On the processes of a world, each of which runs this program and is a node with one CPU device:
  // every rank makes the same calls of the session in the same order, records the same jobs, feeds
  // the same values and gets all that is fetched. What differs is INVALID_ARGUMENT on all ranks and
  // names both, as are other options; an error of one rank is that of all. A world has one session,
  // and lasts longer.
  // What goes to files and to the terminal is rank 0's, as is what comes from files; of a
  // checkpoint, each rank writes and reads what it holds where all see the same files. Devices,
  // threads, a network, a simulation and a dry run are no options here; CompiledJob::memory is rank
  // 0's; Close leaves the world as it is, and ends the session for all ranks together.
  static absl::StatusOr<std::unique_ptr<Session>> Start(dist::World& world, SessionOptions options);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Ends the session on all nodes, which then have `cause` as their own status; the destructor does
  // it with OK. Nothing runs afterwards. Closed with OK, returns what failed on the way, a node
  // that was lost, for instance; that is then every node's status.
  absl::Status Close(const absl::Status& cause);

  // A user's own operators and kernels, before the first Compile. Kernels of real nodes' processes
  // come from MainOptions::extend.
  OpRegistry& operators();
  KernelRegistry& kernels();
  // Every device of the cluster.
  const Placement& devices() const;

  // Runs `record` once on an empty Job, compiles what it recorded and loads it on all nodes. It
  // returns nothing, or a Status that is Compile's if it is an error. Errors name the op, the
  // user's line and both values. ALREADY_EXISTS if a job has that name and was not unloaded:
  // checkpoints keep the jobs' steps by their names.
  template <typename Record>
  absl::StatusOr<CompiledJob> Compile(const std::string& name, Record record) {
    return CompileRecorded(name, [&record](Job& job) -> absl::Status {
      if constexpr (std::is_void_v<std::invoke_result_t<Record&, Job&>>) {
        record(job);
        return absl::OkStatus();
      } else {
        return record(job);
      }
    });
  }

  // Whether a compiled job has this variable: what no job needs, none has.
  bool HasVariable(const std::string& variable) const;
  // The whole logical value of a variable, under any layout. NOT_FOUND lists the nearest names.
  absl::StatusOr<Array> Get(const std::string& variable);
  // INVALID_ARGUMENT if shape or dtype differ.
  absl::Status Set(const std::string& variable, const Array& value);
  // Many at a time, which is faster.
  absl::Status Set(const std::map<std::string, const Array*>& values);
  // Each of these gets the elements that stand in a file, in its own type. Where all nodes live in
  // this process, devices read what they hold of it, and nothing holds it whole; else the master
  // reads and sends it. NOT_FOUND without the file, OUT_OF_RANGE if it ends before.
  absl::Status SetFromFiles(const std::map<std::string, FilePart>& parts);
  // By node, the master itself left out; empty if all nodes live in this process.
  std::vector<NodeTraffic> Traffic() const;
  // What the session does and what it waits for, as `braid status` prints it. Any thread, also
  // while another one is in Run.
  std::string Describe() const;

  // The names of all variables that compiled jobs have.
  std::vector<std::string> variables() const;

  // Writes all variables and the jobs' steps to directory/step-N, whole or not at all, and names it
  // in directory/latest. N is how far training has come: the largest step of the jobs that minimize
  // something; without such jobs, of those that assign to variables; else that of the checkpoint
  // that was loaded. Files are safetensors with an index. From the first Save on, the directory is
  // this session's until it ends: FAILED_PRECONDITION names another session that saves into it.
  //
  // Returns when the variables may change again: all is copied into the system's caches of the
  // files. It comes to the disk, and gets its name, while the program goes on; the next Save, Load
  // and Close wait for it. What fails then is logged at once, and is the error of the next
  // FinishSave, Save (which then saves nothing) or Close.
  absl::Status Save(const std::string& directory, const SaveOptions& options = {});
  // Waits until the last Save has its name and would survive a power failure, or returns why not.
  absl::Status FinishSave();
  // Reads every variable of the compiled jobs from `directory` (its latest) or directory/NAME, and
  // resumes the jobs' steps. All that will be read is checked before the first variable changes: an
  // error leaves all of them as they were, and an older checkpoint may be loaded instead. NOT_FOUND
  // names a variable that is not there; tensors that no job has are left alone.
  absl::Status Load(const std::string& directory);

  // Reads all variables but optimizers' states from plain files, those of other frameworks too:
  // FILE.safetensors, FILE.npy, or a folder of such (with a model.safetensors.index.json its
  // shards). Floating numbers are converted to the variables' types. Before one is set, errors name
  // what is missing, what is left over, and shapes that differ.
  absl::Status LoadWeights(const std::string& path, const WeightsOptions& options = {});
  // Writes these variables to one .safetensors file, replacing it.
  absl::Status SaveWeights(const std::string& path, const WeightsOptions& options = {});

 private:
  friend class CompiledJob;
  class Impl;
  absl::StatusOr<CompiledJob> CompileRecorded(const std::string& name,
                                              const std::function<absl::Status(Job&)>& record);
  explicit Session(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace braid
