#include "compiler/machine.h"

#include <algorithm>
#include <cmath>

namespace braid::compiler {
namespace {

constexpr double kTicksPerSecond = 1e10;

void KeepSlower(double& rate, double other) { rate = std::min(rate, other); }

}  // namespace

std::string_view LinkClassName(LinkClass link) {
  constexpr std::string_view kNames[kNumLinkClasses] = {"process", "host", "network"};
  return kNames[static_cast<size_t>(link)];
}

double Machine::FlopsPerSecond(const std::string& kind, DType dtype) const {
  const auto device = devices.find(kind);
  if (device == devices.end()) return DeviceRates().flops.at(DType::kF32);
  const std::map<DType, double>& flops = device->second.flops;
  const auto found = flops.find(dtype);
  return found != flops.end() ? found->second : flops.at(DType::kF32);
}

double Machine::MemoryBytesPerSecond(const std::string& kind) const {
  const auto device = devices.find(kind);
  return device != devices.end() ? device->second.memory : DeviceRates().memory;
}

double Machine::WorkSeconds(const Work& work) const {
  return std::max(work.flops / FlopsPerSecond(work.kind, work.dtype),
                  work.bytes / MemoryBytesPerSecond(work.kind));
}

double Machine::TransferSeconds(LinkClass link_class, double messages, double bytes) const {
  return link(link_class).latency * messages + bytes / link(link_class).bandwidth;
}

int64_t Machine::TransferTicks(LinkClass link_class, int64_t messages, int64_t bytes) const {
  const int64_t a_message = std::llround(link(link_class).latency * kTicksPerSecond);
  const double a_byte = kTicksPerSecond / link(link_class).bandwidth;
  return a_message * messages + std::llround(static_cast<double>(bytes) * a_byte);
}

uint32_t Machine::HostOf(int node) const {
  // A node without a host stands for a host of its own, by a number that no other has.
  return static_cast<uint32_t>(node < static_cast<int>(hosts.size()) ? hosts[node] : -1 - node);
}

LinkClass Machine::LinkOf(int node, int other_node) const {
  if (node == other_node) return LinkClass::kProcess;
  return HostOf(node) == HostOf(other_node) ? LinkClass::kHost : LinkClass::kNetwork;
}

LinkClass Machine::LinkAcross(const Placement& source, const Placement& destination) const {
  // Being on one node, or on one host, is the same for all pairs if it is so with one of them.
  const int node = source.device(0).node;
  LinkClass farthest = LinkClass::kProcess;
  for (const Placement* placement : {&source, &destination}) {
    for (const DeviceId& device : placement->devices()) {
      farthest = std::max(farthest, LinkOf(node, device.node));
    }
  }
  return farthest;
}

LinkClass Machine::LinkAlong(const Placement& placement, int dim) const {
  const std::vector<int64_t>& hierarchy = placement.hierarchy();
  int64_t stride = 1;
  for (size_t later = dim + 1; later < hierarchy.size(); ++later) stride *= hierarchy[later];
  LinkClass farthest = LinkClass::kProcess;
  for (int rank = 0; rank < placement.size(); ++rank) {
    const int first = static_cast<int>(rank - rank / stride % hierarchy[dim] * stride);
    farthest =
        std::max(farthest, LinkOf(placement.device(first).node, placement.device(rank).node));
  }
  return farthest;
}

Machine SlowerOf(const Machine& a, const Machine& b) {
  Machine slower = a;
  for (const auto& [kind, rates] : b.devices) {
    const auto [device, is_new] = slower.devices.try_emplace(kind, rates);
    if (is_new) continue;
    KeepSlower(device->second.memory, rates.memory);
    for (const auto& [dtype, flops] : rates.flops) {
      KeepSlower(device->second.flops.try_emplace(dtype, flops).first->second, flops);
    }
  }
  for (int i = 0; i < kNumLinkClasses; ++i) {
    slower.links[i].latency = std::max(slower.links[i].latency, b.links[i].latency);
    KeepSlower(slower.links[i].bandwidth, b.links[i].bandwidth);
  }
  return slower;
}

}  // namespace braid::compiler
