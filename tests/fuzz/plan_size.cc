#include "tests/fuzz/plan_size.h"

#include <algorithm>

#include "compiler/plan/plan.pb.h"
#include "runtime/device/host_memory.h"

namespace braid::fuzz {
namespace {

constexpr uint64_t kArenaBytes = uint64_t{1} << 20;
constexpr uint64_t kVariableBytes = uint64_t{1} << 22;

uint64_t Times(uint64_t a, uint64_t b) {
  uint64_t product;
  return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

}  // namespace

bool IsTooLargeToTry(const plan::NodePlan& plan) {
  const auto is_between = [](uint64_t bytes, uint64_t limit) {
    return bytes > limit && bytes <= SystemMemory();
  };
  for (const plan::Arena& arena : plan.arenas) {
    if (is_between(arena.bytes, kArenaBytes)) return true;
    for (uint64_t scratch : arena.scratch_bytes) {
      if (is_between(scratch, kArenaBytes)) return true;
    }
  }
  uint64_t slots = 0;
  for (const plan::Task& task : plan.tasks) {
    for (const plan::Input& input : task.inputs) slots += input.slots;
    for (const plan::Output& output : task.outputs) slots += output.slots;
    const auto* owner = std::get_if<plan::VariableOwner>(&task.work);
    if (owner == nullptr) continue;
    for (const plan::Variable& variable : owner->variables) {
      uint64_t bytes = 1;
      for (int64_t dim : variable.shard.region.size) {
        bytes = Times(bytes, static_cast<uint64_t>(std::max<int64_t>(dim, 0)));
      }
      if (is_between(bytes, kVariableBytes) || is_between(Times(bytes, 8), kVariableBytes)) {
        return true;
      }
    }
  }
  return slots > (1 << 16) && slots <= (1 << 22);
}

bool IsTooLargeToExpand(std::string_view bytes) {
  constexpr uint64_t kMostDevices = 64;
  constexpr uint32_t kMostActs = 1 << 10;
  plan::Plan plan;
  if (!plan.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return false;
  uint64_t devices = 0;
  for (const plan::PlacementEntry& placement : plan.placements()) {
    for (int i = 2; i < placement.runs_size(); i += 3) devices += placement.runs(i);
  }
  for (const plan::Group& group : plan.groups()) {
    if (group.acts_per_step() > kMostActs) return true;
  }
  return devices > kMostDevices;
}

}  // namespace braid::fuzz
