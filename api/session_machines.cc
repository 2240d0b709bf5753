// The machines of a session's nodes: their devices' kinds and memory, and whose times it compiles
// by.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "api/session_impl.h"
#include "runtime/base/status.h"

namespace braid {

compiler::NodeKinds Session::Impl::KindsOfNodes() const {
  std::vector<compiler::DeviceKind> kinds;
  for (const std::string& name : options_.node_kinds) {
    const DeviceKinds::Kind& kind = **options_.device_kinds.Find(name);
    kinds.push_back(
        {.name = name, .is_host = kind.is_host, .does_collectives = kind.make_group != nullptr});
  }
  return compiler::NodeKinds(std::move(kinds));
}

// The least that any device has: nodes of one machine share its memory.
int64_t Session::Impl::DeviceMemoryBytes() const {
  if (options_.device_memory_bytes > 0) return options_.device_memory_bytes;
  std::map<std::string, int64_t> devices_of;
  for (size_t node = 0; node < machines_.size(); ++node) {
    devices_of[machines_[node].host] += options_.devices[node];
  }
  int64_t least = std::numeric_limits<int64_t>::max();
  for (const NodeMachine& machine : machines_) {
    least =
        std::min(least, static_cast<int64_t>(machine.memory_bytes) / devices_of.at(machine.host));
  }
  return least;
}

absl::Status Session::Impl::ChooseMachines() {
  if (options_.machine.has_value()) {
    choice_machine_ = estimate_machine_ = *options_.machine;
  } else if (options_.measured.has_value()) {
    estimate_machine_ = *options_.measured;
    for (const NodeMachine& machine : machines_) {
      if (machine.rates.empty()) continue;
      ASSIGN_OR_RETURN(const compiler::Machine measured,
                       compiler::Machine::Parse(machine.rates, machine.host));
      estimate_machine_ = SlowerOf(estimate_machine_, measured);
    }
    if (options_.decides_by_measured) choice_machine_ = estimate_machine_;
  }
  // Nodes that did not join are where the list says. Those of one process are on one host.
  std::map<std::string, int> hosts;
  std::vector<int> host_of;
  for (size_t node = 0; node < machines_.size(); ++node) {
    std::string host = machines_[node].host;
    if (host.empty() && options_.network.has_value()) {
      host = options_.network->cluster.nodes[node].host;
    }
    host_of.push_back(hosts.try_emplace(host, static_cast<int>(hosts.size())).first->second);
  }
  choice_machine_.hosts = estimate_machine_.hosts = host_of;
  return absl::OkStatus();
}

}  // namespace braid
