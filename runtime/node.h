// One node of a session: its devices' memory, its links, its jobs. Everything here happens on the
// node's control thread, driven by messages from the master; in every process there is one, and in
// tests and simulations several.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "comm/collective/collective_hub.h"
#include "comm/control/control_channel.h"
#include "comm/peers/peers.h"
#include "comm/transport.h"
#include "runtime/base/ids.h"
#include "runtime/base/mutex.h"
#include "runtime/base/reactor.h"
#include "runtime/data/dataset.h"
#include "runtime/device/device.h"
#include "runtime/device/device_kinds.h"
#include "runtime/executor.h"
#include "runtime/host_io.h"
#include "runtime/job_loader.h"
#include "runtime/kernels/kernel.h"
#include "runtime/variable_store.h"

namespace braid {

namespace control {
class ControlMessage;
class Load;
class NodeReport;
class Peers;
class Status;
}  // namespace control

struct NodeOptions {
  uint16_t node = 0;
  int devices = 1;
  const DeviceKinds::Kind* device_kind = nullptr;  // borrowed; null: CPUs
  int threads_per_device = 1;
  uint64_t simulation_seed = 0;
  // Where this node's transports listen, and from where they dial; "": anywhere.
  std::string interface;
  std::string host;
  std::string transport;                // the only one to be used; "": the best that works
  Nanoseconds stall_timeout = 0;        // without any act: says what it waits for; 0: never
  std::string event_dump;               // folder for the last events of a failed run; "": none
  Environment* environment = nullptr;   // borrowed, as are all below
  Network* network = SystemNetwork();   // whose sockets the transports use
  LoopbackNetwork* loopback = nullptr;  // where nodes of this process meet; null: alone in it
  // Empty: MakeTransports. Simulated faults come in here.
  std::function<std::vector<std::unique_ptr<Transport>>(const TransportOptions&)> make_transports;
  const KernelRegistry* kernels = nullptr;
  // The cause of a failure, as soon as it is known here; any thread, maybe twice. May be empty.
  std::function<void(const absl::Status&)> on_failure;
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

  // What the master says, or why it is lost, before the control thread gets to it: users' code, the
  // destructor of a kernel, may keep that thread, and then on_failure still gets the cause. On one
  // thread, whichever it is.
  void Overhear(std::string_view message);
  void OverhearLoss(const absl::Status& reason);

  // Feeds and fetches of a job, made on first use. Any thread.
  HostIo& Host(JobId job);

  // Writes the last events into a file, unless that was done or `cause` is no failure of a run, and
  // gives `done` the words about it that belong to the failure's message, or none. Any thread;
  // `done` on the control thread.
  void DumpEvents(const absl::Status& cause, std::function<void(std::string)> done);

  // Ends the session on all nodes with this cause. Any thread.
  void Fail(const absl::Status& cause);

  // The links that were made. On the control thread.
  std::map<uint16_t, PeerCounters> counters() const;

 private:
  struct LoadingJob {
    std::optional<PreparedJob> prepared;  // absent: its kernels are being made
    CollectiveId first_collective = 0;
    bool wants_summary = false;
    std::set<uint16_t> missing;  // peers whose links are being made
  };

  void MakePeers();
  std::vector<TransportAddress> OpenTransports();
  void OnMessage(const std::string& bytes);
  void OnPeers(const control::Peers& peers);
  void OnLoad(control::Load& load);
  void OnPrepared(JobId job, absl::StatusOr<PreparedJob> prepared);
  void OnConnected(JobId job, uint16_t peer);
  void OnLoss(const LinkLoss& loss);
  void StartJob(JobId job);
  // A frame that belongs to a job.
  absl::Status OnJobFrame(uint16_t peer, std::span<const std::byte> frame);
  // With a summary if the job is ready and the master wants one.
  void ReportLoaded(JobId job, const absl::Status& status,
                    const std::optional<NodeSummary>& summary = std::nullopt);
  void FailHere(const absl::Status& cause, bool is_link = false);
  // Closes with this cause, unless the master says another one in time.
  void AwaitCause(const absl::Status& cause, Nanoseconds limit);
  void Unload(JobId job);
  void SendStatus(const control::Status& request);
  void Describe(JobId job, std::function<void(control::NodeReport)> done);
  void WriteEvents(const absl::Status& cause);
  // `cause` with the words about the events' file.
  absl::Status WithEvents(const absl::Status& cause);
  void WatchForStall();
  // Tells the master, which asks all nodes; prints this node's part if it takes no note.
  void TellStall(JobId job, Nanoseconds silence, bool is_loading);
  void Close(absl::Status cause);
  void FinishClose();
  void Finish();
  void FailWhileClosing(const absl::Status& cause);
  absl::Status MasterLost(const absl::Status& reason) const;
  void SetPhase(std::string phase);
  std::string Phase() const;
  void Send(const control::ControlMessage& message);

  const NodeOptions options_;
  Devices devices_;
  VariableStore variables_;
  DatasetCache datasets_;
  CollectiveHub collectives_;
  std::unique_ptr<Peers> peers_;  // made and destroyed on the control thread; null before and after
  std::map<JobId, LoadingJob> loading_;
  std::map<JobId, std::unique_ptr<Executor>> jobs_;
  // The highest number loaded so far. What comes for a job up to it that is not here is late, an
  // acknowledgement for one that was unloaded, and dropped.
  JobId newest_job_ = 0;
  // Landing keys that came before this node had made the job: (peer, frame).
  std::map<JobId, std::vector<std::pair<uint16_t, std::vector<std::byte>>>> early_;
  size_t num_early_ = 0;  // frames in early_
  Mutex hosts_mutex_;
  std::map<JobId, std::unique_ptr<HostIo>> hosts_ BRAID_GUARDED_BY(hosts_mutex_);
  std::unique_ptr<ControlChannel> master_;
  std::function<void(absl::Status)> closed_;
  absl::Status cause_;
  bool has_failed_ = false;           // here; the master says what the first cause is
  bool has_overheard_cause_ = false;  // of the thread that overhears
  bool is_closing_ = false;
  bool is_torn_down_ = false;   // waits for the word that all are
  Event* torn_down_ = nullptr;  // that the destructor waits for
  bool is_over_ = false;        // closed_ was called, or will not be
  mutable Mutex phase_mutex_;
  std::string phase_ BRAID_GUARDED_BY(phase_mutex_) = "joining";
  int64_t acts_seen_ = -1;
  Nanoseconds advanced_ = 0;      // when acts_seen_ changed last
  Nanoseconds loading_told_ = 0;  // when the master was told that loading stands
  bool is_stall_noted_ = false;   // the master reports it
  std::string events_note_;       // "": nothing was written
  size_t jobs_closing_ = 0;
  // Both still call what is above, which finds them here, while they end; the reactor ends last.
  std::unique_ptr<Reactor> reactor_;
  std::unique_ptr<JobLoader> loader_;  // once there is a job
};

}  // namespace braid
