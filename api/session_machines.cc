// The machines of a session's nodes: their devices' kinds and memory, and whose times it compiles
// by.
#include <glog/logging.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "api/plan_report.h"
#include "api/session_impl.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

// What several devices take together of one memory.
struct MemoryShare {
  DeviceMemory needs;
  int64_t limit = 0;
};

absl::Status TooMuch(const std::string& job, const std::string& where, const MemoryShare& share) {
  struct Use {
    int64_t bytes;
    const char* what;
    const char* remedy;
  };
  std::array<Use, 5> uses = {{
      {share.needs.activations, "activations and gradients",
       "take a smaller batch, more micro-batches, or Recompute"},
      {share.needs.variables, "variables and optimizers' states",
       "split the largest variables over more devices"},
      {share.needs.kernels, "what kernels keep", "take a smaller batch or more micro-batches"},
      {share.needs.collectives, "what collectives stage",
       "take a layout whose tensors between devices are smaller"},
      {share.needs.data, "data", "take a smaller dataset, or fewer nodes on one machine"},
  }};
  std::ranges::stable_sort(uses, [](const Use& a, const Use& b) { return a.bytes > b.bytes; });
  std::string message = absl::StrFormat("job '%s' needs %s of %s, which has %s; the largest:", job,
                                        BytesText(static_cast<double>(share.needs.total())), where,
                                        BytesText(static_cast<double>(share.limit)));
  for (const Use& use : std::span(uses).first(3)) {
    absl::StrAppendFormat(&message, "\n  %s: %s; %s", use.what,
                          BytesText(static_cast<double>(use.bytes)), use.remedy);
  }
  return absl::ResourceExhaustedError(message);
}

}  // namespace

compiler::NodeKinds Session::Impl::KindsOfNodes() const {
  std::vector<compiler::DeviceKind> kinds;
  for (const std::string& name : options_.node_kinds) {
    const DeviceKinds::Kind& kind = **options_.device_kinds.Find(name);
    kinds.push_back(
        {.name = name,
         .is_host = kind.is_host,
         .does_collectives = kind.make_group != nullptr,
         // What spans nodes waits on the devices themselves.
         .collects_in_any_order = kind.collects_in_any_order && !collect_between_nodes_,
         .collects_between_nodes = collect_between_nodes_ && kind.between_nodes != nullptr,
         .keeps_narrow = kind.keeps_narrow,
         .adds_to_products = kind.adds_to_products});
  }
  return compiler::NodeKinds(std::move(kinds));
}

absl::Status Session::Impl::ChooseReach() {
  std::map<std::string, size_t> cards;
  std::string library;
  size_t first = 0;
  int nodes = 0;
  bool do_all = true;
  for (size_t node = 0; node < machines_.size(); ++node) {
    if ((**options_.device_kinds.Find(options_.node_kinds[node])).between_nodes == nullptr)
      continue;
    ++nodes;
    const ReachBetweenNodes& reach = machines_[node].reach;
    if (reach.library.empty()) {
      do_all = false;
      continue;
    }
    if (library.empty()) {
      library = reach.library;
      first = node;
    }
    if (library != reach.library) {
      return absl::FailedPreconditionError(absl::StrFormat(
          "node %d has %s and node %d %s, which do not work together; give all nodes the same one "
          "(--cuda_libraries=DIR), or do without: --nccl=false",
          first, library, node, reach.library));
    }
    for (const std::string& card : reach.cards) {
      const auto [other, is_new] = cards.try_emplace(card, node);
      if (is_new) continue;
      do_all = false;
      LOG_FIRST_N(WARNING, 1) << "devices of nodes " << other->second << " and " << node
                              << " share a card: what devices do with those of other nodes goes "
                                 "through the hosts";
    }
  }
  collect_between_nodes_ = do_all && nodes > 1;
  return absl::OkStatus();
}

void Session::Impl::SetMemory(compiler::CompileOptions& compile) const {
  compile.device_memory_bytes = DeviceMemoryBytes();
  for (const auto& [id, job] : jobs_) {
    if (!job->is_unloaded) compile.kept_bytes += job->kept_bytes;
  }
}

// The least that any device has: nodes of one machine share its memory.
int64_t Session::Impl::DeviceMemoryBytes() const {
  if (options_.device_memory_bytes > 0) return options_.device_memory_bytes;
  std::map<std::string, int64_t> devices_of;
  for (size_t node = 0; node < machines_.size(); ++node) {
    devices_of[machines_[node].host] += options_.devices[node];
  }
  int64_t least = std::numeric_limits<int64_t>::max();
  for (size_t node = 0; node < machines_.size(); ++node) {
    const NodeMachine& machine = machines_[node];
    for (const uint64_t bytes : machine.device_bytes) {
      least = std::min(least, static_cast<int64_t>(bytes));
    }
    if (!machine.device_bytes.empty()) continue;
    least =
        std::min(least, static_cast<int64_t>(machine.memory_bytes) / devices_of.at(machine.host));
    if (machine.process_bytes == 0) continue;
    least = std::min(least, static_cast<int64_t>(machine.process_bytes) / options_.devices[node]);
  }
  return least;
}

absl::Status Session::Impl::CheckMemory(const LoadedJob& job) const {
  // Other jobs may have the same variables and datasets: what is not known to be shared is added.
  std::map<std::pair<int, int>, DeviceMemory> devices;
  const auto add = [&devices](const LoadedJob& loaded) {
    for (const DeviceMemory& memory : loaded.memory) {
      DeviceMemory& device = devices[{memory.node, memory.device}];
      device.activations = std::max(device.activations, memory.activations);
      device.variables = std::max(device.variables, memory.variables);
      device.data = std::max(device.data, memory.data);
      device.kernels += memory.kernels;
      device.collectives += memory.collectives;
    }
  };
  for (const auto& [id, other] : jobs_) {
    if (!other->is_unloaded) add(*other);
  }
  add(job);

  // Who shares what memory: a device, if each has some of its own, else a process and a machine.
  std::map<std::string, MemoryShare> shares;
  const auto take = [&shares](const std::string& name, uint64_t limit, const DeviceMemory& memory) {
    MemoryShare& share = shares[name];
    share.limit = static_cast<int64_t>(limit);
    share.needs.activations += memory.activations;
    share.needs.variables += memory.variables;
    share.needs.kernels += memory.kernels;
    share.needs.collectives += memory.collectives;
    share.needs.data += memory.data;
  };
  for (const auto& [at, memory] : devices) {
    const auto& [node, device] = at;
    const NodeMachine& machine = machines_[node];
    if (options_.device_memory_bytes > 0) {
      take(absl::StrFormat("device %d of node %d (--device_memory)", device, node),
           options_.device_memory_bytes, memory);
      continue;
    }
    if (!machine.device_bytes.empty()) {
      take(absl::StrFormat("device %d of node %d (%s)", device, node, options_.node_kinds[node]),
           machine.device_bytes[device], memory);
      continue;
    }
    take(machine.host.empty() ? "this machine" : absl::StrFormat("machine %s", machine.host),
         machine.memory_bytes, memory);
    if (machine.process_bytes > 0) {
      take(absl::StrFormat("the process of node %d (ulimit -v)", node), machine.process_bytes,
           memory);
    }
  }
  for (const auto& [name, share] : shares) {
    if (share.needs.total() > share.limit) return TooMuch(job.name, name, share);
  }
  return absl::OkStatus();
}

absl::Status Session::Impl::ChooseMachines() {
  BRAID_RETURN_IF_ERROR(ChooseReach());
  if (options_.machine.has_value()) {
    choice_machine_ = estimate_machine_ = *options_.machine;
  } else if (options_.measured.has_value()) {
    estimate_machine_ = *options_.measured;
    for (const NodeMachine& machine : machines_) {
      if (machine.rates.empty()) continue;
      BRAID_ASSIGN_OR_RETURN(const compiler::Machine measured,
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

std::vector<NodeTraffic> Session::Impl::Traffic() const {
  std::vector<NodeTraffic> traffic;
  if (nodes_.empty()) return traffic;
  // Shared with what may still be posted when the wait has failed.
  struct Reading {
    std::map<uint16_t, PeerCounters> links;
    std::unique_ptr<Event> is_done;
  };
  const auto reading = std::make_shared<Reading>();
  reading->is_done = environment_->MakeEvent();
  nodes_[0]->reactor().Post([reading, node = nodes_[0].get()] {
    reading->links = node->counters();
    reading->is_done->Set();
  });
  if (!environment_->Await(*reading->is_done, kJoinLimit).ok()) return traffic;
  std::map<uint16_t, PeerCounters>& links = reading->links;
  for (const auto& [node, connection] : connections_) {
    const ControlCounters control = connection->counters();
    const PeerCounters& link = links[static_cast<uint16_t>(node)];
    traffic.push_back({.node = node,
                       .messages_sent = control.messages_sent,
                       .messages_received = control.messages_received,
                       .heartbeats_sent = control.heartbeats_sent,
                       .heartbeats_received = control.heartbeats_received,
                       .link = link.link,
                       .bytes_sent = link.counters.bytes_sent,
                       .bytes_received = link.counters.bytes_received});
  }
  return traffic;
}

}  // namespace braid
