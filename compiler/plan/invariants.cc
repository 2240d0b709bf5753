#include "compiler/plan/invariants.h"

#include <algorithm>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/base/status.h"

namespace braid::compiler {
namespace {

class InvariantChecker {
 public:
  explicit InvariantChecker(const PhysicalGraph& graph) : graph_(graph) {}

  absl::Status Check() const {
    for (size_t i = 0; i < graph_.registers().size(); ++i) {
      BRAID_RETURN_IF_ERROR(CheckRegister(graph_.registers()[i], static_cast<GroupRegisterId>(i)));
    }
    for (size_t i = 0; i < graph_.groups().size(); ++i) {
      BRAID_RETURN_IF_ERROR(CheckGroup(graph_.groups()[i], static_cast<GroupId>(i)));
    }
    return absl::OkStatus();
  }

 private:
  static absl::Status Broken(const std::string& what) { return absl::InternalError(what); }
  absl::Status Broken(const TaskGroup& group, const std::string& what) const {
    return Broken(absl::StrCat(DescribeGroup(graph_, group.id), ": ", what));
  }
  static absl::Status Broken(const Register& reg, const std::string& what) {
    return Broken(absl::StrCat("register '", reg.name, "': ", what));
  }

  bool IsGroup(GroupId id) const {
    return id >= 0 && id < static_cast<GroupId>(graph_.groups().size());
  }
  bool IsRegister(GroupRegisterId id) const {
    return id >= 0 && id < static_cast<GroupRegisterId>(graph_.registers().size());
  }

  absl::Status CheckRegister(const Register& reg, GroupRegisterId id) const {
    if (reg.id != id) return Broken(reg, absl::StrCat("id ", reg.id, " at place ", id));
    if (!IsGroup(reg.producer)) return Broken(reg, "no group produces it");
    const TaskGroup& producer = graph_.group(reg.producer);
    if (std::count(producer.outputs.begin(), producer.outputs.end(), id) != 1) {
      return Broken(reg, absl::StrCat("is not an output of its producer '", producer.name, "'"));
    }
    if (reg.slots < 1 || reg.period < 1 || reg.initial_tokens < 0 ||
        reg.initial_tokens > reg.slots) {
      return Broken(reg, absl::StrFormat("%d slots, period %d, %d initial tokens", reg.slots,
                                         reg.period, reg.initial_tokens));
    }
    if (producer.acts_per_step < 1 || producer.acts_per_step % reg.period != 0) {
      return Broken(reg, absl::StrFormat("period %d does not divide the %d acts a step of '%s'",
                                         reg.period, producer.acts_per_step, producer.name));
    }
    if (!reg.is_control() && !reg.placement.HasDevicesOf(producer.placement)) {
      return Broken(reg,
                    absl::StrFormat("is on %s, its producer '%s' on %s", reg.placement.ToString(),
                                    producer.name, producer.placement.ToString()));
    }
    for (const Part& part : reg.parts) {
      if (!part.variable.empty() && !producer.is<VariableOwner>()) {
        return Broken(reg, absl::StrFormat("holds variable '%s', its producer '%s' owns none",
                                           part.variable, producer.name));
      }
    }
    return reg.slot_bytes > 0 ? CheckParts(reg) : absl::OkStatus();
  }

  static absl::Status CheckParts(const Register& reg) {
    std::vector<const Part*> parts;
    for (const Part& part : reg.parts) parts.push_back(&part);
    std::sort(parts.begin(), parts.end(),
              [](const Part* a, const Part* b) { return a->offset < b->offset; });
    int64_t end = 0;
    for (const Part* part : parts) {
      if (part->offset < end || part->offset % 64 != 0) {
        return Broken(reg, absl::StrFormat("part '%s' begins at byte %d, the one before it ends at "
                                           "%d",
                                           part->name, part->offset, end));
      }
      end = part->offset + MaxBytesOf(part->layout, reg.placement);
    }
    if (end > reg.slot_bytes) {
      return Broken(reg,
                    absl::StrFormat("parts end at byte %d of a slot of %d", end, reg.slot_bytes));
    }
    return absl::OkStatus();
  }

  absl::Status CheckGroup(const TaskGroup& group, GroupId id) const {
    if (group.id != id) {
      return Broken(absl::StrCat("group '", group.name, "' has id ", group.id, " at place ", id));
    }
    std::set<GroupRegisterId> read;
    for (size_t i = 0; i < group.inputs.size(); ++i) {
      const GroupInput& input = group.inputs[i];
      if (!IsRegister(input.reg)) {
        return Broken(group, absl::StrCat("input ", i, " is no register"));
      }
      const Register& reg = graph_.reg(input.reg);
      if (!read.insert(input.reg).second) {
        return Broken(group, absl::StrCat("reads register '", reg.name, "' through two inputs"));
      }
      BRAID_RETURN_IF_ERROR(CheckInput(group, input, reg, i == 0));
    }
    for (GroupRegisterId output : group.outputs) {
      if (!IsRegister(output) || graph_.reg(output).producer != id) {
        return Broken(group, absl::StrCat("output register ", output, " is not its own"));
      }
    }
    return std::visit([&](const auto& work) { return CheckWork(group, work); }, group.work);
  }

  absl::Status CheckWork(const TaskGroup& group, const VariableOwner&) const {
    return group.outputs.empty() ? Broken(group, "owns no register") : absl::OkStatus();
  }
  absl::Status CheckWork(const TaskGroup& group, const Exchange& exchange) const {
    BRAID_RETURN_IF_ERROR(CheckMovement(group, exchange.movement));
    const bool is_push = exchange.lanes == Exchange::Lanes::kPush;
    if (graph_.reg(group.outputs[0]).is_by_lane != is_push) {
      return Broken(group, is_push ? "pushes into a register with memory of its own"
                                   : "moves data by lanes and is no push");
    }
    if (exchange.lanes == Exchange::Lanes::kNone) return absl::OkStatus();
    if (group.acts_per_step != 1) {
      return Broken(group, absl::StrFormat("goes by lanes %d times a step", group.acts_per_step));
    }
    return is_push ? CheckPush(group, exchange.movement) : absl::OkStatus();
  }

  // Each of its sources has an addend for each of its destinations.
  absl::Status CheckPush(const TaskGroup& group, const Movement& movement) const {
    const Placement& from = graph_.reg(group.inputs[0].reg).placement;
    const auto is_one = [](const std::vector<int64_t>& hierarchy) { return hierarchy.size() == 1; };
    const bool has_addends = from.size() == 1 || (movement.source.sbp.rank() == 1 &&
                                                  movement.source.sbp[0].is_partial());
    if (!is_one(from.hierarchy()) || !is_one(group.placement.hierarchy()) || !has_addends ||
        movement.destination.sbp.rank() != 1 ||
        RegionOf(movement.destination, group.placement, group.placement.size() - 1).empty()) {
      return Broken(group,
                    absl::StrFormat("pushes %s on %s to %s on %s; every worker must have an "
                                    "addend for every server",
                                    movement.source.ToString(), from.ToString(),
                                    movement.destination.ToString(), group.placement.ToString()));
    }
    return absl::OkStatus();
  }

  // How many workers push what `reg` holds; 0: it is none of theirs.
  int LanesOf(const Register& reg) const {
    if (!reg.is_by_lane || reg.is_control()) return 0;
    const TaskGroup& push = graph_.group(reg.producer);
    return push.inputs.empty() || !IsRegister(push.inputs[0].reg)
               ? 0
               : graph_.reg(push.inputs[0].reg).placement.size();
  }
  absl::Status CheckWork(const TaskGroup& group, const Collective& collective) const {
    return CheckMovement(group, collective.movement);
  }

  absl::Status CheckInput(const TaskGroup& group, const GroupInput& input, const Register& reg,
                          bool is_first) const {
    const TaskGroup& producer = graph_.group(reg.producer);
    if (input.period < 1 || group.acts_per_step < 1 || group.acts_per_step % input.period != 0 ||
        producer.acts_per_step / reg.period != group.acts_per_step / input.period) {
      return Broken(group,
                    absl::StrFormat("uses up %d/%d slots of register '%s' a step, '%s' fills %d/%d",
                                    group.acts_per_step, input.period, reg.name, producer.name,
                                    producer.acts_per_step, reg.period));
    }
    const bool is_source = group.is<Exchange>() && is_first;
    const bool is_turn = reg.is_by_lane && reg.is_control() && producer.lanes() > 0 &&
                         group.exchange_lanes() == Exchange::Lanes::kPull &&
                         producer.lanes() == group.placement.size();
    if (group.is<Exchange>() && !is_source && !is_turn) {
      return Broken(group,
                    absl::StrCat("an exchange reads its source alone, not '", reg.name, "'"));
    }
    const bool is_push = is_first && LanesOf(reg) > 0 && LanesOf(reg) == group.lanes();
    if (reg.is_by_lane && !is_turn && !is_push) {
      return Broken(group, absl::StrCat("reads '", reg.name, "', which goes by lanes"));
    }
    if (!reg.is_control() && !is_source && !reg.placement.HasDevicesOf(group.placement)) {
      return Broken(group, absl::StrFormat("reads register '%s' on %s from %s", reg.name,
                                           reg.placement.ToString(), group.placement.ToString()));
    }
    return absl::OkStatus();
  }

  absl::Status CheckMovement(const TaskGroup& group, const Movement& movement) const {
    if (group.inputs.empty() || group.outputs.empty()) {
      return Broken(group, "moves data without a source or without a destination");
    }
    const Register& from = graph_.reg(group.inputs[0].reg);
    const Register& to = graph_.reg(group.outputs[0]);
    const int parts = static_cast<int>(from.parts.size());
    if (movement.part < 0 || movement.part >= parts || to.is_control()) {
      return Broken(group, absl::StrFormat("moves part %d of the %d of register '%s'",
                                           movement.part, parts, from.name));
    }
    return absl::OkStatus();
  }

  absl::Status CheckWork(const TaskGroup& group, const Staging&) const {
    if (group.inputs.empty() || group.outputs.empty()) {
      return Broken(group, "copies without a source or without a destination");
    }
    const Register& from = graph_.reg(group.inputs[0].reg);
    const Register& to = graph_.reg(group.outputs[0]);
    bool fits = from.memory != to.memory && !to.is_control() && from.placement == to.placement &&
                from.placement == group.placement && from.parts.size() == to.parts.size();
    for (size_t i = 0; fits && i < to.parts.size(); ++i) {
      fits = from.parts[i].layout == to.parts[i].layout;
    }
    if (fits) return absl::OkStatus();
    return Broken(group, absl::StrFormat("copies register '%s' to '%s', which must hold the same "
                                         "parts in the device's other memory",
                                         from.name, to.name));
  }

  // A server acts once for each worker, whose pushes are its input 0.
  absl::Status CheckLanes(const TaskGroup& group) const {
    const bool is_pushed = !group.inputs.empty() && graph_.reg(group.inputs[0].reg).is_by_lane;
    const auto is_whole = [&](GroupRegisterId id) {
      return graph_.reg(id).period == group.acts_per_step;
    };
    if (is_pushed == (group.lanes() > 0) &&
        (group.lanes() == 0 ||
         (group.acts_per_step == group.lanes() && std::ranges::all_of(group.outputs, is_whole)))) {
      return absl::OkStatus();
    }
    return Broken(group, absl::StrFormat("acts %d times a step for %d lanes", group.acts_per_step,
                                         group.lanes()));
  }

  absl::Status CheckWork(const TaskGroup& group, const Compute& compute) const {
    BRAID_RETURN_IF_ERROR(CheckLanes(group));
    for (const KernelCall& kernel : compute.kernels) {
      if (kernel.inputs.size() != kernel.input_layouts.size() ||
          kernel.outputs.size() != kernel.output_layouts.size()) {
        return Broken(group,
                      absl::StrFormat("kernel '%s' has operands without layouts", kernel.name));
      }
      for (size_t i = 0; i < kernel.inputs.size(); ++i) {
        BRAID_RETURN_IF_ERROR(
            CheckOperand(group, kernel, kernel.inputs[i], kernel.input_layouts[i]));
      }
      for (size_t i = 0; i < kernel.outputs.size(); ++i) {
        if (kernel.outputs[i].source == OperandRef::Source::kInput ||
            kernel.outputs[i].source == OperandRef::Source::kServed) {
          return Broken(group, absl::StrFormat("kernel '%s' writes an input", kernel.name));
        }
        BRAID_RETURN_IF_ERROR(
            CheckOperand(group, kernel, kernel.outputs[i], kernel.output_layouts[i]));
      }
    }
    return CheckTurns(group, compute);
  }

  absl::Status CheckTurns(const TaskGroup& group, const Compute& compute) const {
    const auto is_scratch = [&](int index) {
      return index >= 0 && index < static_cast<int>(compute.scratch.size());
    };
    int end = 0;
    for (const Turns& turns : compute.turns) {
      if (turns.begin < end || turns.end < turns.begin + 2 ||
          turns.end > static_cast<int>(compute.kernels.size()) || turns.part < 1 ||
          !std::all_of(turns.staying.begin(), turns.staying.end(), is_scratch)) {
        return Broken(group,
                      absl::StrFormat("the turns of kernels %d to %d on parts of %d elements "
                                      "after those before %d",
                                      turns.begin, turns.end, turns.part, end));
      }
      end = turns.end;
    }
    return absl::OkStatus();
  }

  absl::Status CheckOperand(const TaskGroup& group, const KernelCall& kernel, const OperandRef& ref,
                            const TensorLayout& layout) const {
    const auto missing = [&] {
      return Broken(
          group, absl::StrFormat("kernel '%s' names an operand that does not exist", kernel.name));
    };
    const TensorLayout* held = nullptr;
    const Placement* held_on = &group.placement;
    if (ref.source == OperandRef::Source::kScratch) {
      const std::vector<Scratch>& scratch = std::get<Compute>(group.work).scratch;
      if (ref.index < 0 || ref.index >= static_cast<int>(scratch.size()) || ref.part != 0) {
        return missing();
      }
      held = &scratch[ref.index].layout;
    } else if (ref.source == OperandRef::Source::kServed) {
      const std::vector<ServedVariable>& served = std::get<Compute>(group.work).served;
      if (ref.index < 0 || ref.index >= static_cast<int>(served.size()) || ref.part != 0) {
        return missing();
      }
      held = &served[ref.index].layout;
    } else {
      const bool is_input = ref.source == OperandRef::Source::kInput;
      const size_t ends = is_input ? group.inputs.size() : group.outputs.size();
      if (ref.index < 0 || ref.index >= static_cast<int>(ends)) return missing();
      const Register& reg =
          graph_.reg(is_input ? group.inputs[ref.index].reg : group.outputs[ref.index]);
      if (ref.part < 0 || ref.part >= static_cast<int>(reg.parts.size())) return missing();
      held = &reg.parts[ref.part].layout;
      held_on = &reg.placement;  // the same devices, perhaps under another hierarchy
    }
    if (*held == layout || MaxBytesOf(*held, *held_on) == MaxBytesOf(layout, group.placement)) {
      return absl::OkStatus();
    }
    return Broken(group, absl::StrFormat("kernel '%s' takes %s where there is %s", kernel.name,
                                         layout.ToString(), held->ToString()));
  }

  const PhysicalGraph& graph_;
};

}  // namespace

absl::Status VerifyInvariants(const PhysicalGraph& graph) {
  return InvariantChecker(graph).Check();
}

}  // namespace braid::compiler
