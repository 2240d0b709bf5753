#include "compiler/physical/check_memory.h"

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "compiler/physical/simulate_step.h"

namespace braid::compiler {
namespace {

constexpr size_t kNamed = 3;

struct Need {
  int64_t registers = 0;  // the highest end
  int64_t pinned = 0;     // of the host's memory; the same
  int64_t variables = 0;
  int64_t kept = 0;  // the highest end
  std::array<int64_t, kNumStreams> scratch = {};
  std::string device_type;

  int64_t all_scratch() const {
    int64_t sum = 0;
    for (int64_t bytes : scratch) sum += bytes;
    return sum;
  }
  int64_t total() const { return registers + pinned + variables + kept + all_scratch(); }
};

std::string Bytes(int64_t bytes) {
  if (bytes < 10 * 1024) return absl::StrCat(bytes, " bytes");
  const char* const units[] = {"KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(units)) {
    value /= 1024;
    ++unit;
  }
  return absl::StrFormat("%d bytes (%.1f %s)", bytes, value, units[unit]);
}

// Of every device. First by placement, of which there are few, then by rank.
std::map<DeviceId, Need> NeedsOf(const PhysicalGraph& graph) {
  struct PlacementNeed {
    Need need;
    std::map<std::string, std::pair<const Part*, int64_t>> variables;  // by layout: how many
  };
  std::map<Placement, PlacementNeed> by_placement;
  for (const TaskGroup& group : graph.groups()) {
    const int64_t scratch = AlignInArena(EndOfScratch(group));
    Need& need = by_placement[group.placement].need;
    int64_t& area = need.scratch[static_cast<size_t>(group.stream)];
    area = std::max(area, scratch);
    need.kept = std::max(need.kept, AlignInArena(EndOfKept(group)));
  }
  for (const Register& reg : graph.registers()) {
    PlacementNeed& here = by_placement[reg.placement];
    if (reg.offset >= 0) {
      int64_t& end = reg.memory == MemoryKind::kPinned ? here.need.pinned : here.need.registers;
      end = std::max(end, reg.offset + reg.span_bytes());
    }
    for (const Part& part : reg.parts) {
      if (part.variable.empty()) continue;
      auto& [first, count] = here.variables[part.layout.ToString()];
      first = &part;
      ++count;
    }
  }
  std::map<DeviceId, Need> needs;
  for (const auto& [placement, here] : by_placement) {
    for (int rank = 0; rank < placement.size(); ++rank) {
      Need& need = needs[placement.device(rank)];
      need.device_type = graph.kinds.of(placement.device(rank).node).name;
      need.registers = std::max(need.registers, here.need.registers);
      need.pinned = std::max(need.pinned, here.need.pinned);
      need.kept = std::max(need.kept, here.need.kept);
      for (int stream = 0; stream < kNumStreams; ++stream) {
        need.scratch[stream] = std::max(need.scratch[stream], here.need.scratch[stream]);
      }
      for (const auto& [layout, variables] : here.variables) {
        need.variables += variables.second * BytesOf(variables.first->layout, placement, rank);
      }
    }
  }
  return needs;
}

}  // namespace

absl::Status CheckMemory(const PhysicalGraph& graph, int64_t bytes_per_device) {
  const std::map<DeviceId, Need> needs = NeedsOf(graph);
  const auto worst = std::max_element(needs.begin(), needs.end(), [](const auto& a, const auto& b) {
    return a.second.total() < b.second.total();
  });
  if (worst == needs.end() || worst->second.total() <= bytes_per_device) return absl::OkStatus();

  const DeviceId device = worst->first;
  const Need& need = worst->second;
  std::vector<std::pair<int64_t, std::string>> largest;
  for (const Register& reg : graph.registers()) {
    const int rank = reg.placement.rank_of(device);
    if (rank < 0) continue;
    for (const Part& part : reg.parts) {
      if (part.variable.empty()) continue;
      const int64_t bytes = BytesOf(part.layout, reg.placement, rank);
      largest.emplace_back(
          bytes, absl::StrCat("variable '", part.variable, "' ", part.layout.ToString(), ": ",
                              Bytes(bytes), ", of ", DescribeGroup(graph, reg.producer)));
    }
    if (reg.offset < 0) continue;
    const int64_t bytes = reg.slots * reg.slot_bytes;
    const std::string what =
        reg.parts.size() == 1 ? absl::StrCat(" ", reg.parts[0].layout.ToString()) : "";
    const std::string slots = reg.slots > 1 ? absl::StrCat(" in ", reg.slots, " slots") : "";
    largest.emplace_back(bytes, absl::StrCat("register '", reg.name, "'", what, ": ", Bytes(bytes),
                                             slots, ", of ", DescribeGroup(graph, reg.producer)));
  }
  for (const TaskGroup& group : graph.groups()) {
    const int rank = group.placement.rank_of(device);
    const auto* const compute = std::get_if<Compute>(&group.work);
    if (rank < 0 || compute == nullptr) continue;
    for (const KernelCall& kernel : compute->kernels) {
      for (const OperandRef& ref : kernel.outputs) {
        if (ref.source != OperandRef::Source::kScratch) continue;
        const TensorLayout& layout = compute->scratch[ref.index].layout;
        const int64_t bytes = BytesOf(layout, group.placement, rank);
        largest.emplace_back(bytes, absl::StrCat("scratch of ", kernel.op, " '", kernel.name, "' ",
                                                 layout.ToString(), ": ", Bytes(bytes), " (",
                                                 kernel.location.ToString(), ")"));
      }
    }
  }
  std::stable_sort(largest.begin(), largest.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  if (largest.size() > kNamed) largest.resize(kNamed);
  std::string message = absl::StrFormat(
      "job '%s' needs %s on node %d %s:%d, which has %s: %s for registers, %s for scratch, %s for "
      "variables; the largest:",
      graph.job, Bytes(need.total()), device.node, need.device_type, device.device,
      Bytes(bytes_per_device), Bytes(need.registers + need.pinned), Bytes(need.all_scratch()),
      Bytes(need.variables));
  for (const auto& [bytes, text] : largest) absl::StrAppend(&message, "\n  ", text);
  absl::StrAppend(&message,
                  "\nuse a smaller batch, more micro-batches, Recompute, or more devices over "
                  "which the largest are split");
  return absl::ResourceExhaustedError(message);
}

}  // namespace braid::compiler
