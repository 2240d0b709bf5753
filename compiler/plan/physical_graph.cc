#include "compiler/plan/physical_graph.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "glog/logging.h"

namespace braid::compiler {
namespace {

// What one act holds of the whole batch.
Shape MicroBatchShape(const TensorLayout& layout) {
  Shape shape = layout.type.shape;
  if (!layout.micro_batch_sbp.is_split()) return shape;
  CHECK_LT(layout.micro_batch_sbp.axis, shape.rank()) << layout.ToString();
  int64_t& n = shape[layout.micro_batch_sbp.axis];
  CHECK_EQ(n % layout.micro_batches, 0) << layout.ToString();
  n /= layout.micro_batches;
  return shape;
}

}  // namespace

std::string TensorLayout::ToString() const {
  std::string text = absl::StrCat(type.ToString(), " ", sbp.ToString());
  if (micro_batches != 1)
    absl::StrAppend(&text, " micro_batches=", micro_batch_sbp.ToString(), "/", micro_batches);
  return text;
}

Region RegionOf(const TensorLayout& layout, const Placement& placement,
                std::span<const int64_t> coordinate) {
  const std::vector<int64_t>& hierarchy = placement.hierarchy();
  if (!layout.micro_batch_sbp.is_split()) {
    return RegionOf(layout.type.shape, layout.sbp, hierarchy, coordinate);
  }
  return RegionOf(MicroBatchShape(layout), layout.sbp, hierarchy, coordinate);
}

Region RegionOf(const TensorLayout& layout, const Placement& placement, int rank) {
  return RegionOf(layout, placement, placement.CoordinateOf(rank));
}

int64_t BytesOf(const TensorLayout& layout, const Placement& placement, int rank) {
  return RegionOf(layout, placement, rank).size.num_elements() *
         static_cast<int64_t>(SizeOf(layout.type.dtype));
}

int64_t MaxBytesOf(const TensorLayout& layout, const Placement& placement) {
  return BytesOf(layout, placement, 0);
}

int TaskGroup::lanes() const {
  const auto* const compute = std::get_if<Compute>(&work);
  return compute == nullptr ? 0 : compute->lanes;
}

Exchange::Lanes TaskGroup::exchange_lanes() const {
  const auto* const exchange = std::get_if<Exchange>(&work);
  return exchange == nullptr ? Exchange::Lanes::kNone : exchange->lanes;
}

const Movement* TaskGroup::movement() const {
  if (const auto* const exchange = std::get_if<Exchange>(&work)) return &exchange->movement;
  const auto* const collective = std::get_if<Collective>(&work);
  return collective == nullptr ? nullptr : &collective->movement;
}

Movement* TaskGroup::movement() { return const_cast<Movement*>(std::as_const(*this).movement()); }

std::span<const KernelCall> TaskGroup::kernels() const {
  if (const auto* const compute = std::get_if<Compute>(&work)) return compute->kernels;
  if (const auto* const variable = std::get_if<VariableOwner>(&work)) return variable->kernels;
  return {};
}

std::span<KernelCall> TaskGroup::kernels() {
  const std::span<const KernelCall> kernels = std::as_const(*this).kernels();
  return {const_cast<KernelCall*>(kernels.data()), kernels.size()};
}

namespace {

int64_t EndOf(const TaskGroup& group, bool is_kept) {
  int64_t end = 0;
  if (const auto* const compute = std::get_if<Compute>(&group.work)) {
    for (const Scratch& scratch : compute->scratch) {
      if (scratch.is_kept != is_kept) continue;
      end = std::max(end, scratch.offset + MaxBytesOf(scratch.layout, group.placement));
    }
  }
  return end;
}

}  // namespace

int64_t EndOfScratch(const TaskGroup& group) { return EndOf(group, /*is_kept=*/false); }
int64_t EndOfKept(const TaskGroup& group) { return EndOf(group, /*is_kept=*/true); }

int64_t KeptBytes(const PhysicalGraph& graph) {
  int64_t end = 0;
  for (const TaskGroup& group : graph.groups()) end = std::max(end, EndOfKept(group));
  return end;
}

TaskGroup& PhysicalGraph::AddGroup(TaskGroup group) {
  group.id = static_cast<GroupId>(groups_.size());
  return groups_.emplace_back(std::move(group));
}

Register& PhysicalGraph::AddRegister(Register reg) {
  reg.id = static_cast<GroupRegisterId>(registers_.size());
  return registers_.emplace_back(std::move(reg));
}

void PhysicalGraph::Prune(const std::vector<bool>& keep_groups,
                          const std::vector<bool>& keep_registers) {
  CHECK_EQ(keep_groups.size(), groups_.size());
  CHECK_EQ(keep_registers.size(), registers_.size());
  std::vector<GroupRegisterId> new_register(registers_.size(), kNone);
  std::vector<GroupId> new_group(groups_.size(), kNone);
  std::vector<Register> registers;
  std::vector<TaskGroup> groups;
  for (Register& reg : registers_) {
    if (!keep_registers[reg.id]) continue;
    new_register[reg.id] = static_cast<GroupRegisterId>(registers.size());
    registers.push_back(std::move(reg));
  }
  for (TaskGroup& group : groups_) {
    if (!keep_groups[group.id]) continue;
    new_group[group.id] = static_cast<GroupId>(groups.size());
    // Where each operand's register stands once those that go have been taken out.
    std::vector<int> new_input(group.inputs.size(), kNone);
    std::vector<int> new_output(group.outputs.size(), kNone);
    std::vector<GroupInput> inputs;
    std::vector<GroupRegisterId> outputs;
    for (size_t i = 0; i < group.inputs.size(); ++i) {
      if (new_register[group.inputs[i].reg] == kNone) continue;
      new_input[i] = static_cast<int>(inputs.size());
      inputs.push_back({new_register[group.inputs[i].reg], group.inputs[i].period});
    }
    for (size_t i = 0; i < group.outputs.size(); ++i) {
      if (new_register[group.outputs[i]] == kNone) continue;
      new_output[i] = static_cast<int>(outputs.size());
      outputs.push_back(new_register[group.outputs[i]]);
    }
    auto renumber = [&](std::vector<OperandRef>& refs) {
      for (OperandRef& ref : refs) {
        const bool is_end =
            ref.source == OperandRef::Source::kInput || ref.source == OperandRef::Source::kOutput;
        if (!is_end) continue;
        const auto& renumbered = ref.source == OperandRef::Source::kInput ? new_input : new_output;
        ref.index = renumbered[ref.index];
        CHECK_NE(ref.index, kNone) << group.name << " is kept, an operand's register is not";
      }
    };
    for (KernelCall& kernel : group.kernels()) {
      renumber(kernel.inputs);
      renumber(kernel.outputs);
    }
    group.inputs = std::move(inputs);
    group.outputs = std::move(outputs);
    groups.push_back(std::move(group));
  }
  for (size_t id = 0; id < groups.size(); ++id) groups[id].id = static_cast<GroupId>(id);
  for (size_t id = 0; id < registers.size(); ++id) {
    Register& reg = registers[id];
    reg.id = static_cast<GroupRegisterId>(id);
    if (reg.producer != kNone) reg.producer = new_group[reg.producer];
    CHECK_NE(reg.producer, kNone) << "register " << reg.name << " is kept, its producer is not";
  }
  groups_ = std::move(groups);
  registers_ = std::move(registers);
}

std::vector<std::vector<std::pair<GroupId, int>>> PhysicalGraph::Consumers() const {
  std::vector<std::vector<std::pair<GroupId, int>>> consumers(registers_.size());
  for (const TaskGroup& group : groups_) {
    for (size_t i = 0; i < group.inputs.size(); ++i) {
      consumers[group.inputs[i].reg].emplace_back(group.id, static_cast<int>(i));
    }
  }
  return consumers;
}

bool Register::has_memory() const {
  return !is_by_lane && std::any_of(parts.begin(), parts.end(),
                                    [](const Part& part) { return part.variable.empty(); });
}

bool PhysicalGraph::MayActInPlace(GroupId id) const {
  const TaskGroup& group = groups_[id];
  const auto* const collective = std::get_if<Collective>(&group.work);
  if (collective == nullptr || collective->kind != CollectiveKind::kAllReduce) return false;
  const Register& in = registers_[group.inputs[0].reg];
  const Register& out = registers_[group.outputs[0]];
  return in.placement.HasDevicesOf(out.placement) && in.slots == out.slots &&
         in.parts.size() == out.parts.size() && in.slot_bytes == out.slot_bytes;
}

void PhysicalGraph::AddControlEdge(GroupId from, GroupId to, int initial_tokens, int pieces) {
  const int common =
      pieces > 0 ? pieces : std::gcd(groups_[from].acts_per_step, groups_[to].acts_per_step);
  GroupRegisterId reg =
      AddRegister({.name = absl::StrCat(groups_[from].name, "->", groups_[to].name),
                   .placement = groups_[from].placement,
                   .parts = {},
                   .producer = from,
                   .period = groups_[from].acts_per_step / common,
                   .initial_tokens = initial_tokens})
          .id;
  groups_[from].outputs.push_back(reg);
  groups_[to].inputs.push_back({.reg = reg, .period = groups_[to].acts_per_step / common});
}

absl::StatusOr<std::vector<GroupId>> PhysicalGraph::TopologicalOrder() const {
  // Kahn's algorithm; of the groups that are ready, the first in the graph goes next.
  auto waits_for = [this](const GroupInput& input) {
    const Register& reg = registers_[input.reg];
    return reg.initial_tokens == 0 ? reg.producer : kNone;
  };
  std::vector<int> missing(groups_.size(), 0);
  std::vector<std::vector<GroupId>> successors(groups_.size());
  std::priority_queue<GroupId, std::vector<GroupId>, std::greater<>> ready;
  for (const TaskGroup& group : groups_) {
    for (const GroupInput& input : group.inputs) {
      GroupId producer = waits_for(input);
      if (producer == kNone) continue;
      successors[producer].push_back(group.id);
      ++missing[group.id];
    }
    if (missing[group.id] == 0) ready.push(group.id);
  }
  std::vector<GroupId> order;
  order.reserve(groups_.size());
  while (!ready.empty()) {
    GroupId id = ready.top();
    ready.pop();
    order.push_back(id);
    for (GroupId next : successors[id]) {
      if (--missing[next] == 0) ready.push(next);
    }
  }
  if (order.size() == groups_.size()) return order;

  // Every group that is left waits for another that is left: walking back must meet one again.
  GroupId id = static_cast<GroupId>(
      std::find_if(missing.begin(), missing.end(), [](int n) { return n > 0; }) - missing.begin());
  std::vector<GroupId> walk;
  std::vector<bool> seen(groups_.size(), false);
  while (!seen[id]) {
    seen[id] = true;
    walk.push_back(id);
    for (const GroupInput& input : groups_[id].inputs) {
      GroupId producer = waits_for(input);
      if (producer == kNone || missing[producer] == 0) continue;
      id = producer;
      break;
    }
  }
  walk.erase(walk.begin(), std::find(walk.begin(), walk.end(), id));
  walk.push_back(id);
  std::reverse(walk.begin(), walk.end());
  return absl::InternalError(
      absl::StrCat("task groups wait for each other: ",
                   absl::StrJoin(walk, " -> ", [this](std::string* out, GroupId group) {
                     absl::StrAppend(out, "'", groups_[group].name, "'");
                   })));
}

void PhysicalGraph::LayOutParts() {
  for (Register& reg : registers_) {
    int64_t end = 0;
    for (Part& part : reg.parts) {
      part.offset = end;
      end = AlignInArena(end + MaxBytesOf(part.layout, reg.placement));
    }
    reg.slot_bytes = reg.stride = end;
  }
}

std::string DescribeGroup(const PhysicalGraph& graph, GroupId id) {
  const TaskGroup& group = graph.group(id);
  std::string text = absl::StrCat("'", group.name, "'");
  std::string inside;
  const std::span<const KernelCall> kernels = group.kernels();
  if (!kernels.empty()) {
    absl::StrAppend(&inside, kernels[0].op, " '", kernels[0].name, "'");
    if (kernels.size() > 1) absl::StrAppend(&inside, " and ", kernels.size() - 1, " more");
  }
  const SourceLocation& location =
      group.location.line == 0 && !kernels.empty() ? kernels[0].location : group.location;
  if (location.line != 0) {
    absl::StrAppend(&inside, inside.empty() ? "" : ", ", location.ToString());
  }
  if (!inside.empty()) absl::StrAppend(&text, " (", inside, ")");
  return text;
}

}  // namespace braid::compiler
