#include "api/network.h"

#include <string>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_format.h"
#include "comm/control/rendezvous.h"
#include "runtime/base/prefixed.h"
#include "runtime/base/processors.h"
#include "runtime/base/status.h"
#include "runtime/device/host_memory.h"
#include "runtime/node.h"

namespace braid {
namespace {

// The payload of a cause that all nodes know as theirs.
constexpr char kOfAllNodes[] = "braid/of_all_nodes";

}  // namespace

absl::Status OfAllNodes(absl::Status cause) {
  if (!cause.ok()) cause.SetPayload(kOfAllNodes, absl::Cord());
  return cause;
}

absl::Status OfNode(const Cluster& cluster, int node, const absl::Status& cause) {
  if (cause.GetPayload(kOfAllNodes).has_value()) return cause;
  return Prefixed(NodeName(cluster, node), cause);
}

Nanoseconds StallTimeoutIn(const Environment& environment, Nanoseconds asked) {
  return environment.is_simulated() ? 0 : asked;
}

void SetNetwork(NodeOptions& node, const NetworkOptions& network, const std::string& host) {
  node.interface = network.interface;
  node.host = host;
  node.transport = network.transport;
  node.has_peers = network.cluster.nodes.size() > 1;
  node.rdma = network.rdma;
  node.machine = network.machine;
  node.network = &SocketsOf(network);
  node.loopback = network.loopback;
}

DeviceSpec DevicesHere(const DeviceSpec& spec) {
  if (!spec.is_auto()) return spec;
  return {.count = UsableProcessors()};
}

absl::StatusOr<RendezvousOptions> RendezvousOptionsOf(const NetworkOptions& network,
                                                      Environment* environment) {
  BRAID_ASSIGN_OR_RETURN(RendezvousOptions options, RendezvousOptionsOfPlace(network, environment));
  const Cluster& cluster = network.cluster;
  options.self.devices = DevicesHere(*cluster.nodes[cluster.rank].devices).ToString();
  const MemoryLimits memory = ReadMemoryLimits();
  options.self.memory_bytes = memory.shared;
  options.self.process_bytes = memory.process;
  options.self.rates = network.rates;
  options.self.device_library = network.reach.library;
  options.self.cards = network.reach.cards;
  return options;
}

}  // namespace braid
