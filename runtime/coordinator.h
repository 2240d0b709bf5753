// The master's end of the control plane: joins the nodes, hands out plans and credits, spreads the
// first failure. While a Run is going it only waits.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "comm/control/control_channel.h"
#include "runtime/base/ids.h"
#include "runtime/base/mutex.h"
#include "runtime/base/reactor.h"
#include "runtime/group/roll_call.h"
#include "runtime/plan_relay.h"
#include "runtime/plan_sender.h"
#include "runtime/reports/node_summary.h"
#include "runtime/reports/program_watch.h"
#include "runtime/reports/stall_report.h"

namespace braid {

namespace control {
class ControlMessage;
class Hello;
class Saved;
class Stalled;
class Status;
class StoreRequest;
}  // namespace control

namespace dist {
class StoredKeys;
}  // namespace dist

class LocalRuns;

struct CoordinatorOptions {
  Environment* environment = nullptr;
  // "node 1 (10.0.0.2)", for messages; empty: "node 1".
  std::function<std::string(int node)> name_of;
  // As a node's (node.h), for what the program is inside of and for calls of process groups.
  Nanoseconds stall_timeout = 0;
  // How long nothing has come from another process's node; negative: not known. May be empty.
  std::function<Nanoseconds(int node)> silence_of;
  // The first cause of a failure, as soon as it is known; on the reactor's thread. May be empty.
  std::function<void(const absl::Status&)> on_failure;
  // How many nodes the master gives a plan to, and each of them passes it on to.
  int plan_fan_out = PlanTree().fan_out;
};

// Called by one host thread; each call waits. After a failure every call returns its cause.
class Coordinator {
 public:
  explicit Coordinator(CoordinatorOptions options);
  ~Coordinator();
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  // Where the channels' handlers run.
  Reactor& reactor() { return *reactor_; }

  // Takes the nodes' channels, node by node, waits for their hellos and tells each where the others
  // are. DEADLINE_EXCEEDED names the nodes that did not come.
  absl::Status Join(std::vector<std::unique_ptr<ControlChannel>> channels, Nanoseconds timeout);

  // What the session does from now on, for messages on every node: "compiling job 'train'". The
  // calls below set their own, and "waiting for the program" when they return.
  void SetPhase(std::string phase);
  // What all that follows is part of, until "" is set: "saving to 'dir'". It is the phase
  // meanwhile.
  void SetActivity(std::string activity);
  // What the host thread is inside of between the calls below.
  ProgramWatch& program() { return *program_; }
  // Ends the session on all nodes with this cause. Any thread.
  void Fail(const absl::Status& cause);

  struct LoadRequest {
    JobId job = 0;
    std::string name;
    std::string plan;  // the same for every node (compiler/plan/plan_codec.h)
    CollectiveId first_collective = 0;
    bool wants_summaries = false;
  };
  // Returns when every node is ready to run the job, with the nodes' summaries if they are wanted;
  // or the first node's reason why not: then the job is nowhere.
  absl::StatusOr<std::vector<NodeSummary>> Load(const LoadRequest& request);

  struct RunRequest {
    JobId job = 0;
    std::string name;
    int64_t first_step = 0;
    int64_t steps = 1;
  };
  // `local`: runs of the job by the calling thread, which are used if there is no other node; may
  // be null.
  absl::Status Run(const RunRequest& request, LocalRuns* local = nullptr);
  void Unload(JobId job);

  // `done` comes once, on the reactor's thread: when each of these nodes has said that what it
  // wrote of this save is on its disk, or with the first error; `session` is not OK if the session
  // failed before. Before the job that writes runs.
  using OnSavedByAll = std::function<void(const absl::Status& saved, const absl::Status& session)>;
  void ExpectSaved(int64_t save, std::set<int> nodes, OnSavedByAll done);
  // Nobody waits for it any more; `forgotten` on the reactor's thread, after `done` if that came.
  void ForgetSaved(int64_t save, std::function<void()> forgotten);

  // Returns when the program of every node needs its process groups no more and what was saved is
  // on all disks, or with the cause of a failure.
  absl::Status AwaitLeft();

  // What the session does and what it waits for in the end (stall_report.h). Any thread; `done`
  // comes once, on the reactor's thread, within the limit also if a node does not answer.
  void Describe(std::function<void(std::string)> done);

  // Ends the session on all nodes and waits until nothing runs there any more. `why` is what they
  // are told; after a failure, that failure instead. Without `why`, returns a failure that no call
  // has returned before, or what failed while closing, be it a node that was lost, as every node
  // does.
  absl::Status Close(const absl::Status& why = absl::OkStatus());

 private:
  // False: it was not run, or not to its end.
  bool RunHere(const RunRequest& request, LocalRuns& local);
  // One Describe that waits for the nodes. The reactor's thread only.
  struct Description {
    std::set<uint16_t> missing;
    SessionState state;
    std::function<void(std::string)> done;
  };
  // A link broke, and all nodes are asked whether they are there. The reactor's thread only.
  struct Inquiry {
    std::set<uint16_t> missing;
    uint16_t node = 0;  // that says so
    absl::Status cause;
  };
  // The nodes whose part of a save is not on the disk. The reactor's thread only.
  struct Saving {
    std::set<int> missing;
    OnSavedByAll done;
  };
  // What the host thread waits for.
  struct Wait {
    int kind = 0;  // of the message that answers
    JobId job = 0;
    std::set<uint16_t> nodes;            // that have not answered
    absl::Status status;                 // the first error
    std::vector<NodeSummary> summaries;  // that came with answers
    std::unique_ptr<Event> event;
  };
  struct Peer {
    std::unique_ptr<ControlChannel> channel;
    std::unique_ptr<control::Hello> hello;
    // By the reactor's thread, under mutex_: nothing of the session runs there any more, or it
    // cannot be reached.
    bool is_closed = false;
  };

  void OnMessage(uint16_t node, const std::string& bytes);
  void OnFailure(uint16_t node, const absl::Status& cause);
  void OnLinkFailure(uint16_t node, const absl::Status& cause);
  void OnProbe(uint16_t node, uint64_t number);
  void OnGroupMessage(uint16_t node, const control::ControlMessage& message);
  void OnStoreRequest(uint16_t node, control::StoreRequest* request);
  void OnSaved(uint16_t node, const control::Saved& saved);
  void NoteAllSaved();
  std::string EnterPhase(std::string phase);
  void OnLost(uint16_t node, const absl::Status& reason);
  void OnStatus(uint16_t node, control::Status& status);
  // All nodes may see the same stall: it is reported once.
  void OnStalled(const control::Stalled& stalled);
  void FinishDescription(uint64_t request);
  void OnProgramStalled(Nanoseconds lasted);
  void ReportStall(const std::string& title);
  std::string NameOf(int node) const;
  // What went wrong on a node, which it names if there are several.
  absl::Status OfNode(int node, const absl::Status& status) const;
  void Send(uint16_t node, const control::ControlMessage& message);
  void SendAll(const control::ControlMessage& message);
  // The cause that ends the session. By the thread that may end the rendezvous next: the notice
  // that OnFailure sends on the reactor may come after the words with which that closes the
  // connections.
  absl::Status ToldToAll(const absl::Status& cause);
  void BeginWait(int kind, JobId job);
  // `answer` counts only for what is waited for: others came too late.
  struct AnswerFrom {
    uint16_t node;
    int kind;
    JobId job;
  };
  void Answer(const AnswerFrom& from, const absl::Status& status);
  void TakeSummary(const AnswerFrom& from, NodeSummary summary);
  absl::Status FinishWait(Nanoseconds timeout);

  const CoordinatorOptions options_;
  std::vector<Peer> peers_;  // fixed after Join
  Mutex mutex_;
  Wait wait_ BRAID_GUARDED_BY(mutex_);
  absl::Status failure_ BRAID_GUARDED_BY(mutex_);
  bool is_failure_told_ BRAID_GUARDED_BY(mutex_) = false;  // by a call
  bool is_closing_ BRAID_GUARDED_BY(mutex_) = false;
  bool is_closing_well_ BRAID_GUARDED_BY(mutex_) = false;  // without a cause so far
  std::string activity_ BRAID_GUARDED_BY(mutex_);
  std::string phase_ BRAID_GUARDED_BY(mutex_) = "joining";
  Nanoseconds phase_began_ BRAID_GUARDED_BY(mutex_) = 0;
  JobId running_ BRAID_GUARDED_BY(mutex_) = 0;  // the job of the last Run; 0: none yet
  bool is_stepping_ BRAID_GUARDED_BY(mutex_) = false;
  std::map<uint64_t, Description> descriptions_;
  uint64_t next_description_ = 1;
  std::optional<Nanoseconds> stall_reported_;  // the reactor's thread only
  PlanSender plans_;                           // the reactor's thread only
  std::map<uint64_t, Inquiry> inquiries_;
  dist::RollCalls roll_calls_;                        // the reactor's thread only
  std::set<uint16_t> left_ BRAID_GUARDED_BY(mutex_);  // AwaitLeft
  std::map<int64_t, Saving> savings_;
  std::shared_ptr<Event> all_saved_;  // if AwaitLeft waits for it; the reactor's thread only
  uint64_t next_inquiry_ = 1;
  std::unique_ptr<ProgramWatch> program_;
  std::unique_ptr<dist::StoredKeys> store_;  // the reactor's thread only
  // Last: while it ends it still calls what is above, which finds it here.
  std::unique_ptr<Reactor> reactor_;
};

}  // namespace braid
