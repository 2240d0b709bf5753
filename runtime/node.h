// One node of a session: its devices' memory, its links (Peers), its jobs (NodeJobs) and its end of
// the control plane (ControlAgent), joined. Everything here happens on the node's control thread,
// driven by messages from the master; in every process there is one, and in tests and simulations
// several.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "comm/collective/collective_hub.h"
#include "comm/control/control_channel.h"
#include "comm/peers/peers.h"
#include "comm/transport.h"
#include "runtime/base/ids.h"
#include "runtime/base/reactor.h"
#include "runtime/control_agent.h"
#include "runtime/data/dataset_kinds.h"
#include "runtime/device/device.h"
#include "runtime/device/device_kinds.h"
#include "runtime/group/groups.h"
#include "runtime/group/store_end.h"
#include "runtime/host_io.h"
#include "runtime/kernels/kernel.h"
#include "runtime/node_jobs.h"
#include "runtime/plan_relay.h"
#include "runtime/variable_store.h"

namespace braid {

namespace control {
class ControlMessage;
class Load;
class NodeReport;
class Peers;
class Run;
class Status;
}  // namespace control

// That a node has at most beside those of its devices: control, loader, ender and saver.
constexpr int kNodeThreads = 4;

class Node;

struct NodeOptions {
  uint16_t node = 0;
  int devices = 1;
  const DeviceKinds::Kind* device_kind = nullptr;  // borrowed; null: CPUs
  int threads_per_device = 1;
  uint64_t simulation_seed = 0;
  // Where this node's transports listen, and from where they dial; "": anywhere.
  std::string interface;
  std::string host;
  std::string transport;  // those that may be used, "tcp"; "": the usual ones
  bool has_peers = true;  // other nodes in other processes
  RdmaChoice rdma = {};
  std::string machine;                  // where it runs, as peers are told; "": ThisMachine
  Nanoseconds stall_timeout = 0;        // without any act: says what it waits for; 0: never
  std::string event_dump;               // folder for the last events of a failed run; "": none
  Environment* environment = nullptr;   // borrowed, as are all pointers below
  Network* network = SystemNetwork();   // whose sockets the transports use
  LoopbackNetwork* loopback = nullptr;  // where nodes of this process meet; null: alone in it
  // Empty: MakeTransports. Simulated faults come in here.
  std::function<std::vector<std::unique_ptr<Transport>>(const TransportOptions&)> make_transports;
  const KernelRegistry* kernels = nullptr;
  DatasetKinds dataset_kinds = {};
  // The cause of a failure, as soon as it is known here; any thread, maybe twice. May be empty.
  std::function<void(const absl::Status&)> on_failure;
  // The node knows where the others are; on the control thread. May be empty.
  std::function<void(Node&)> on_introduced;
};

class Node {
 public:
  explicit Node(const NodeOptions& options);
  // On the host thread. Closes what is not closed yet, without a call of Serve's `closed`, and
  // waits until nothing of it runs.
  ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  Reactor& reactor() { return *reactor_; }

  // Says hello and does what the master says until it says Close or is lost; then ends everything
  // and calls `closed` with the cause on the control thread. Once. A Close without a cause ends it
  // when the master says that all nodes have ended.
  void Serve(std::unique_ptr<ControlChannel> master, std::function<void(absl::Status)> closed);

  // Feeds and fetches of a job, made on first use. Any thread.
  HostIo& Host(JobId job) { return jobs_->Host(job); }

  // `done` comes once: when the steps of the job's next run are done here, or with the cause if
  // that can no longer be. One at a time. Any thread; `done` on the control thread.
  void AwaitRun(JobId job, std::function<void(const absl::Status&)> done);

  // The process groups of this process's program. On the control thread.
  dist::Groups& groups() { return *groups_; }
  // What this process's program asks of the world's store. On the control thread.
  dist::StoreEnd& store() { return *store_; }
  // Memory of the program's that peers of this machine may map, which may outlive the node. Any
  // thread.
  absl::StatusOr<Memory> AllocateForPeers(uint64_t bytes) const;
  // The program makes no calls of groups any more: the master is told, once the other ranks have
  // taken what its calls sent them. Any thread.
  void LeaveGroups();

  // Writes the last events into a file, unless that was done or `cause` is no failure of a run, and
  // gives `done` the words about it that belong to the failure's message, or none. Any thread;
  // `done` on the control thread.
  void DumpEvents(const absl::Status& cause, std::function<void(std::string)> done);

  // Ends the session on all nodes with this cause. Any thread.
  void Fail(const absl::Status& cause);

  // The links that were made. On the control thread.
  std::map<uint16_t, PeerCounters> counters() const;

 private:
  void MakePeers();
  TransportOptions ForTransports() const;
  std::vector<TransportAddress> OpenTransports();
  // What the master orders while the session goes on.
  void Obey(control::ControlMessage& message);
  void OnPeers(const control::Peers& peers);
  // Another node wants a link.
  void OnDial(uint16_t node);
  void LookAtHeap();
  void OnLoad(control::Load& load);
  void OnPlan(JobId job, std::shared_ptr<const std::string> plan);
  void OnRun(const control::Run& run);
  void OnLoaded(JobId job, const absl::Status& status, const std::optional<NodeSummary>& summary);
  void OnRunDone(JobId job);
  void FinishRunWait(const absl::Status& status);
  // What the session does, as this node sees it.
  std::string Phase() const;
  void OnSaved(int64_t save, const absl::Status& status);
  // Something that runs here did.
  void OnFailure(const absl::Status& cause);
  void OnLoss(const LinkLoss& loss);
  void SendStatus(const control::Status& request);
  void Describe(JobId job, std::function<void(control::NodeReport)> done);
  void WriteEvents(const absl::Status& cause);
  // `cause` with the words about the events' file.
  absl::Status WithEvents(const absl::Status& cause);
  void WatchForStall();
  // Tells the master, which asks all nodes; prints this node's part if it takes no note.
  // `standing`: what does not come further, or "" for the acts of a step.
  void TellStall(JobId job, std::string_view standing, Nanoseconds silence);
  void CloseAll(const absl::Status& reason);

  // What AwaitRun waits for.
  struct RunWait {
    JobId job = 0;
    std::function<void(const absl::Status&)> done;
  };

  const NodeOptions options_;
  std::shared_ptr<SharedHeap> shared_heap_;  // null: no transport has a use for it, or
  absl::Status heap_refused_;                // why there is none
  Devices devices_;
  std::unique_ptr<DeviceGroup> device_group_;  // null: its devices do no collectives themselves
  VariableStore variables_;
  DatasetCache datasets_{options_.dataset_kinds};
  CollectiveHub collectives_;
  PlanRelay plans_;                                // whose buffers peers write to
  bool is_introduced_ = false;                     // knows where the others are
  std::vector<uint16_t> early_dials_;              // of nodes that knew it before
  std::map<JobId, NodeJobs::LoadRequest> coming_;  // whose plans have not come whole
  std::unique_ptr<Peers> peers_;                   // from Serve until all jobs have ended
  int64_t acts_seen_ = -1;
  Nanoseconds advanced_ = 0;       // when acts_seen_ changed last
  Nanoseconds standing_told_ = 0;  // when the master was told that a job's loading or ending stands
  bool is_stall_noted_ = false;    // the master reports it
  std::string events_note_;        // "": nothing was written
  std::optional<TimerId> next_look_;  // for a stall
  std::optional<RunWait> run_wait_;
  std::optional<absl::Status> closing_;  // why
  // Made of the reactor, and never null.
  std::unique_ptr<NodeJobs> jobs_;
  std::unique_ptr<dist::Groups> groups_;
  std::unique_ptr<dist::StoreEnd> store_;
  std::unique_ptr<ControlAgent> agent_;
  // Last: while it ends it still calls what is above, which finds it here.
  std::unique_ptr<Reactor> reactor_;
};

}  // namespace braid
