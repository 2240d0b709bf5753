// How a process is a node of a cluster: what it brings, and how it serves. The session on the
// master and the service on the other nodes start from here.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "api/interruption.h"
#include "comm/cluster/cluster.h"
#include "comm/control/network_place.h"
#include "comm/transport.h"
#include "runtime/base/reactor.h"
#include "runtime/data/dataset_kinds.h"
#include "runtime/device/device_kinds.h"
#include "runtime/kernels/kernel.h"

namespace braid {

class LoopbackNetwork;
class Node;
struct NodeOptions;

struct NetworkOptions : NetworkPlace {
  std::string transport;  // those that may be used, "tcp"; "": the usual ones
  RdmaChoice rdma;
  // What tells the machine of this process from others, where they are to be told apart by that:
  // "" is what the system says (comm/network/this_machine.h).
  std::string machine;
  // What this node's machine was measured to do (a compiler::Machine's text), for the master to
  // know.
  std::string rates;
  ReachBetweenNodes reach;             // of this node's devices
  Environment* environment = nullptr;  // borrowed; null: this process's own clock and threads
  // Borrowed: where all nodes, which are threads of this process, reach each other without sockets
  // once they have joined. Null: this node has the process to itself.
  LoopbackNetwork* loopback = nullptr;
};

absl::StatusOr<RendezvousOptions> RendezvousOptionsOf(const NetworkOptions& network,
                                                      Environment* environment);
// The devices that this process brings: of "auto", a CPU device for each processor that it may use.
DeviceSpec DevicesHere(const DeviceSpec& spec);
// How long a node or the coordinator waits for progress until it says so. 0 in a simulation: its
// clock jumps to the next timer, and one that never ends would hide that nothing is left.
Nanoseconds StallTimeoutIn(const Environment& environment, Nanoseconds asked);
// Where the transports of a node of this process listen, and which of them it may use. `host`: the
// address that its peers know; "": anywhere.
void SetNetwork(NodeOptions& node, const NetworkOptions& network, const std::string& host);
// That all nodes return, each from the same call.
absl::Status OfAllNodes(absl::Status cause);
// What went wrong on a node, with its name unless it is OfAllNodes.
absl::Status OfNode(const Cluster& cluster, int node, const absl::Status& cause);

struct ServiceOptions {
  const DeviceKinds::Kind* device_kind = nullptr;  // of this node's devices; null: CPUs
  int threads_per_device = 1;
  Nanoseconds stall_timeout = 60 * kSecond;
  uint64_t simulation_seed = 0;  // order of messages, in a simulated environment
  std::string event_dump;  // folder for the last events of a run that fails; "": none are written
  const KernelRegistry* kernels = nullptr;
  DatasetKinds dataset_kinds = {};
  Interruption* interruption = nullptr;                 // of ServeNode only
  std::function<void(const absl::Status&)> on_failure;  // as soon as it is known; any thread
  // The node, once it knows where the others are; it lasts as long as its service. On its control
  // thread. May be empty.
  std::function<void(Node&)> on_introduced;
};

// A node other than the master: joins and does what the master says until the session ends. Made
// and destroyed by the host thread.
class NodeService {
 public:
  // Begins to join and returns. `ended` is called once, from another thread: OK, or the first cause
  // of a failure. An error: what could not even begin; then `ended` is not called.
  static absl::StatusOr<std::unique_ptr<NodeService>> Start(
      const NetworkOptions& network, const ServiceOptions& options,
      std::function<void(absl::Status)> ended);
  // Ends the session first, unless it has ended.
  ~NodeService();
  NodeService(const NodeService&) = delete;
  NodeService& operator=(const NodeService&) = delete;

  // Ends the session on all nodes with this reason. Any thread.
  void End(const absl::Status& reason);
  // The host thread waits until `ended` was called.
  absl::Status AwaitEnd();

 private:
  class Impl;
  explicit NodeService(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

// Such a node for as long as it takes: returns what `ended` would be called with.
absl::Status ServeNode(const NetworkOptions& network, const ServiceOptions& options);

}  // namespace braid
