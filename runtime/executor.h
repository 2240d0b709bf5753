// A Plan running on one node: its arenas' addresses, its actors, its landing slots. Lives on the
// node's control thread; the actors run on threads of their own.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "actor/message_bus.h"
#include "comm/collective/collective_hub.h"
#include "comm/transport.h"
#include "compiler/plan/node_plan.h"
#include "runtime/actions/compute.h"
#include "runtime/actions/make_action.h"
#include "runtime/actions/streamed.h"
#include "runtime/actions/transfer.h"
#include "runtime/actions/variable_use.h"
#include "runtime/base/ids.h"
#include "runtime/base/reactor.h"
#include "runtime/data/dataset_kinds.h"
#include "runtime/device/device.h"
#include "runtime/job_loader.h"
#include "runtime/local_runs.h"
#include "runtime/overlap_checker.h"
#include "runtime/remote_bus.h"
#include "runtime/reports/node_summary.h"
#include "runtime/stream_threads.h"
#include "runtime/variable_store.h"

namespace braid {

// What a node lends to the jobs that run on it. All borrowed.
struct NodeResources {
  uint16_t node = 0;
  Environment* environment = nullptr;
  Reactor* control = nullptr;
  StreamThreads* threads = nullptr;
  Devices* devices = nullptr;
  DeviceGroup* device_group = nullptr;  // null: the devices do no collectives themselves
  VariableStore* variables = nullptr;
  DatasetCache* datasets = nullptr;
  CollectiveHub* collectives = nullptr;
  std::function<Link*(uint16_t peer)> link_of;
  uint64_t simulation_seed = 0;  // order of messages, in a simulated environment
};

struct ExecutorOptions {
  JobId job = 0;
  CollectiveId first_collective = 0;  // ids [first, first + number in the plan) are this job's
  // All on the control thread.
  std::function<void()> on_ready;                // landing keys came from every peer
  std::function<void()> on_run_done;             // every actor did the steps of the last Run
  std::function<void(absl::Status)> on_failure;  // the first
};

namespace control {
class ActorState;
class NodeReport;
class ThreadState;
}  // namespace control

class Executor {
 public:
  Executor(const NodeResources& resources, ExecutorOptions options);
  // Any thread: the kernels' destructors are users' code. After Close's callback.
  ~Executor() = default;
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Obtains variables and makes actors around the kernels, which PrepareKernels made of the plan.
  // It takes them out of `kernels`. Once, before anything else. If it fails, Close comes next:
  // collectives that were made have memory that peers may write to, and die on their own threads.
  absl::Status Load(const plan::NodePlan& plan, PreparedKernels& kernels);
  // Exposes landing slots to the peers and tells them; on_ready follows.
  absl::Status Connect();
  // A frame of this job from `peer`.
  absl::Status OnFrame(uint16_t peer, std::span<const std::byte> frame);

  // `steps` more steps; the first of them is the job's step `first_step`. Between Runs only.
  void Run(int64_t first_step, int64_t steps);
  // After Load. Runs of which on_run_done says nothing; null where one thread does not do all.
  const std::shared_ptr<LocalRuns>& local_runs() const { return local_runs_; }
  // Nothing fires any more; `closed` is called when nothing runs and no link is used any more.
  void Close(absl::Status cause, std::function<void()> closed);

  const std::string& job_name() const { return job_name_; }
  // Of the plan that it was made from.
  NodeSummary Summarize(const plan::NodePlan& plan) const;
  // Acts that ended so far, of all actors.
  int64_t acts_done() const;
  bool is_ready() const { return is_ready_; }
  bool is_running() const { return steps_reported_ < steps_; }
  // What every actor waits for and how the threads spend their time; asks the threads and calls
  // back on the control thread, within half a second also if some do not answer: then the act is
  // named inside which they are. `done` is not called after this object's end.
  void Describe(std::function<void(control::NodeReport)> done);
  // The last events of every thread as text. Control thread.
  std::string DescribeEvents() const;

 private:
  struct Thread {
    std::unique_ptr<ActorThread> actors;
    Reactor* reactor = nullptr;                            // one of the node's
    std::vector<std::unique_ptr<Collective>> collectives;  // die on the reactor's thread
    int64_t steps_done = 0;
    bool is_closed = false;
  };
  struct ThreadAnswer {
    std::vector<ActorReport> actors;
    ThreadLoadReport load;
  };
  // What reports say of a task.
  struct TaskDescription {
    std::string title;                       // "relu 'h' (train.cc:12)"
    const ComputeAction* compute = nullptr;  // knows which kernel runs
    CollectiveId collective = 0;             // id + 1
  };
  struct Landing {
    std::byte* base = nullptr;
    uint64_t stride = 0;
    uint32_t slots = 0;
    uint16_t peer = 0;
    MemoryKey key;
    bool is_exposed = false;
  };

  absl::Status AddTasks(const plan::NodePlan& plan, PreparedKernels& kernels);
  absl::Status ObtainVariables(const plan::NodePlan& plan);
  Thread& ThreadFor(const plan::Task& task);
  absl::Status AddTask(const plan::NodePlan& plan, const plan::Task& task,
                       std::vector<ComputeCall> calls, StreamOrder& order);
  absl::Status AddLandings(const plan::Task& task);
  std::unique_ptr<Action> Check(const plan::Task& task, const TaskMemory& memory,
                                std::unique_ptr<Action> action);
  static std::string TitleOf(const plan::Task& task);
  void DescribeThread(const ThreadAnswer& answer, control::ThreadState& state) const;
  // Of a thread that does not answer.
  void DescribeRunning(const Thread& thread, control::ThreadState& state) const;
  void DescribeActor(const ActorReport& actor, Nanoseconds now, control::ActorState& state) const;
  void CheckReady();
  // Of a job that one thread of a host's device does, and no other node.
  void OfferLocalRuns(const plan::NodePlan& plan);
  // Actors may do so many more steps. The control thread, or, in a local run, the loop's.
  void Credit(int64_t first_step, int64_t steps);
  // Whether the steps were a local run's, which is done now. The loop's thread.
  bool EndsLocalRun(int64_t steps);
  // Calls `drained` on the control thread when the thread's device has done all that was queued,
  // with the device's first failure.
  void Drain(uint16_t thread, std::function<void(const absl::Status&)> drained);
  void OnThreadRunDone(Thread& thread, int64_t steps);
  void OnThreadClosed(Thread& thread);
  void OnFailure(absl::Status status);
  // Calls Close's callback.
  void FinishClose();
  void EndWriting();

  const NodeResources resources_;
  const ExecutorOptions options_;
  std::string job_name_;
  uint64_t seed_ = 0;
  VariableUse variable_use_;
  bool is_writing_ = false;  // it told the variable store
  RemoteBus remote_;
  MessageBus bus_;
  std::unique_ptr<ShadowMemory> shadow_;  // in a simulation
  PlanMemory addresses_;
  StreamOrder::Marks marks_;  // between streams; the threads' actions borrow them
  std::map<uint16_t, Thread> threads_;
  std::map<RegisterId, Landing> landings_;                    // that peers write here
  std::map<RegisterId, std::unique_ptr<LandingPort>> ports_;  // that this node writes at peers
  std::map<uint32_t, TaskDescription> descriptions_;          // by task
  size_t ports_missing_ = 0;
  size_t devices_filling_ = 0;  // in whose streams first values of variables may be left
  bool is_connected_ = false;   // also the collectives
  bool is_ready_ = false;
  bool has_failed_ = false;
  int64_t first_step_ = 0;  // read by the kernels
  // Set by the control thread or in a local run; read by reports.
  std::atomic<int64_t> steps_{0};  // credited
  std::atomic<int64_t> steps_reported_{0};
  std::shared_ptr<LocalRuns> local_runs_;
  std::function<void()> closed_;
  // What was asked of the hub or the threads may be answered after the closing, or after this
  // object: it looks here first. The control thread only; shared with the answers.
  std::shared_ptr<bool> is_alive_ = std::make_shared<bool>(true);
};

}  // namespace braid
