#include "compiler/verify.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "compiler/physical/device_sets.h"
#include "compiler/physical/keep_steady.h"
#include "compiler/physical/order_collectives.h"
#include "compiler/physical/overwrites.h"
#include "compiler/physical/shared_bytes.h"
#include "compiler/physical/simulate_step.h"
#include "compiler/physical/step_order.h"
#include "compiler/plan/invariants.h"
#include "runtime/base/status.h"

namespace braid::compiler {
namespace {

// ---- no deadlock -------------------------------------------------------------------------------

// The slots with which the step would run to its end: of one register of the cycle, if that is
// enough, else of as many as it takes. Empty if no slots help.
std::vector<std::pair<GroupRegisterId, int>> SlotsThatFree(
    const PhysicalGraph& graph, const std::vector<StepSimulation::Wait>& cycle) {
  for (const StepSimulation::Wait& wait : cycle) {
    if (!wait.for_slot) continue;
    const Register& reg = graph.reg(wait.reg);
    StepSimulation simulation(graph);
    const int most = reg.initial_tokens + graph.group(reg.producer).acts_per_step / reg.period;
    bool runs = simulation.Run();
    while (!runs && simulation.slots(reg.id) < most) {
      simulation.AddSlot(reg.id);
      runs = simulation.Run();
    }
    if (runs) return {{reg.id, simulation.slots(reg.id)}};
  }
  StepSimulation simulation(graph);
  std::set<GroupRegisterId> raised;
  while (!simulation.Run()) {
    GroupRegisterId next = kNone;
    for (const StepSimulation::Wait& wait : simulation.FindCycle()) {
      if (wait.for_slot) next = wait.reg;
    }
    if (next == kNone) return {};
    simulation.AddSlot(next);
    raised.insert(next);
  }
  std::vector<std::pair<GroupRegisterId, int>> slots;
  for (GroupRegisterId reg : raised) slots.emplace_back(reg, simulation.slots(reg));
  return slots;
}

absl::Status CheckRuns(const PhysicalGraph& graph) {
  StepSimulation simulation(graph);
  if (simulation.Run()) return absl::OkStatus();
  const std::vector<StepSimulation::Wait> cycle = simulation.FindCycle();
  std::string message =
      absl::StrCat("job '", graph.job, "' would stop within a step; these wait for each other:\n",
                   DescribeWaits(graph, simulation, cycle), "\n");
  const auto slots = SlotsThatFree(graph, cycle);
  if (slots.empty()) {
    absl::StrAppend(&message,
                    "no number of slots would free it; an edge of the cycle must go or "
                    "have an initial token");
  } else {
    absl::StrAppend(&message,
                    absl::StrJoin(slots, " and ",
                                  [&](std::string* out, const auto& s) {
                                    absl::StrAppend(out, s.second, " slots for register '",
                                                    graph.reg(s.first).name, "'");
                                  }),
                    " would free it");
  }
  return absl::InternalError(message);
}

// ---- scratch -----------------------------------------------------------------------------------

// What is kept holds what a step would have made of it, and lies where no group of a common device
// keeps anything.
absl::Status CheckKept(const PhysicalGraph& graph, const OpRegistry& registry) {
  struct Keeper {
    GroupId group = kNone;
    int devices = kNone;  // of `sets`
    int64_t begin = 0, end = 0;
  };
  DeviceSets sets;
  std::vector<Keeper> keepers;
  for (const TaskGroup& group : graph.groups()) {
    if (EndOfKept(group) == 0) continue;
    const auto& compute = std::get<Compute>(group.work);
    for (const KernelCall& kernel : compute.kernels) {
      if (MakesKept(compute, kernel) && !MayBeSteady(graph, registry, group, kernel)) {
        return absl::InternalError(absl::StrFormat(
            "%s: what kernel '%s' makes is kept, and not only variables decide what that is",
            DescribeGroup(graph, group.id), kernel.name));
      }
    }
    Keeper& keeper = keepers.emplace_back();
    keeper = {group.id, sets.Intern(group.placement), EndOfKept(group), EndOfKept(group)};
    for (const Scratch& scratch : compute.scratch) {
      if (scratch.is_kept) keeper.begin = std::min(keeper.begin, scratch.offset);
    }
  }
  if (!keepers.empty() && WritesVariables(graph, registry)) {
    return absl::InternalError(absl::StrCat(DescribeGroup(graph, keepers[0].group),
                                            ": it keeps scratch in a job that writes variables"));
  }
  for (const Keeper& a : keepers) {
    for (const Keeper& b : keepers) {
      if (a.group == b.group || a.begin >= b.end || b.begin >= a.end) continue;
      if (sets.Intersection(a.devices, b.devices) < 0) continue;
      return absl::InternalError(absl::StrFormat("%s and %s keep scratch in the same bytes",
                                                 DescribeGroup(graph, a.group),
                                                 DescribeGroup(graph, b.group)));
    }
  }
  return absl::OkStatus();
}

// No tensor of a chain lies on another that is still to be read, by what runs every step or by what
// runs once.
absl::Status CheckScratch(const PhysicalGraph& graph, const OpRegistry& registry,
                          const TaskGroup& group) {
  const auto& compute = std::get<Compute>(group.work);
  std::vector<int> last_use(compute.scratch.size(), kNone);
  for (size_t k = 0; k < compute.kernels.size(); ++k) {
    for (const auto* refs : {&compute.kernels[k].inputs, &compute.kernels[k].outputs}) {
      for (const OperandRef& ref : *refs) {
        if (ref.source == OperandRef::Source::kScratch) last_use[ref.index] = static_cast<int>(k);
      }
    }
  }
  const auto end_of = [&](int index) {
    return compute.scratch[index].offset +
           MaxBytesOf(compute.scratch[index].layout, group.placement);
  };
  const std::vector<bool> lasts = LastingScratch(compute);
  for (size_t i = 0; i < lasts.size(); ++i) {
    if (lasts[i]) last_use[i] = static_cast<int>(compute.kernels.size());
  }
  std::map<int64_t, int> passing, kept;  // by offset: what is live, without overlaps
  std::vector<bool> is_written(compute.scratch.size(), false);
  for (size_t k = 0; k < compute.kernels.size(); ++k) {
    const KernelCall& kernel = compute.kernels[k];
    const OpDef* const def = registry.Find(kernel.op);
    for (const OperandRef& ref : kernel.inputs) {
      if (ref.source == OperandRef::Source::kScratch && !is_written[ref.index]) {
        return absl::InternalError(absl::StrCat(DescribeGroup(graph, group.id), ": kernel '",
                                                kernel.name, "' reads scratch that nobody wrote"));
      }
    }
    for (size_t i = 0; i < kernel.outputs.size(); ++i) {
      const OperandRef& ref = kernel.outputs[i];
      if (ref.source != OperandRef::Source::kScratch || is_written[ref.index]) continue;
      is_written[ref.index] = true;
      const Scratch& scratch = compute.scratch[ref.index];
      if (scratch.offset < 0 || scratch.offset % 64 != 0) {
        return absl::InternalError(absl::StrCat(DescribeGroup(graph, group.id), ": scratch of '",
                                                kernel.name, "' is at byte ", scratch.offset));
      }
      const auto takes_over = [&](int other) {
        return def != nullptr && last_use[other] == static_cast<int>(k) &&
               scratch.offset == compute.scratch[other].offset &&
               scratch.is_kept == compute.scratch[other].is_kept &&
               std::any_of(def->inplace().begin(), def->inplace().end(), [&](const auto& pair) {
                 return pair.second == static_cast<int>(i) &&
                        pair.first < static_cast<int>(kernel.inputs.size()) &&
                        kernel.inputs[pair.first].source == OperandRef::Source::kScratch &&
                        kernel.inputs[pair.first].index == other;
               });
      };
      std::map<int64_t, int>& live = scratch.is_kept ? kept : passing;
      auto next = live.lower_bound(scratch.offset);
      if (next != live.begin() && end_of(std::prev(next)->second) > scratch.offset) --next;
      for (; next != live.end() && next->first < end_of(ref.index); next = live.erase(next)) {
        if (takes_over(next->second)) continue;
        return absl::InternalError(
            absl::StrFormat("%s: kernel '%s' writes scratch at byte %d on what is still to be read",
                            DescribeGroup(graph, group.id), kernel.name, scratch.offset));
      }
      live[scratch.offset] = ref.index;
    }
    for (const auto* refs : {&kernel.inputs, &kernel.outputs}) {
      for (const OperandRef& ref : *refs) {
        if (ref.source != OperandRef::Source::kScratch) continue;
        if (last_use[ref.index] != static_cast<int>(k)) continue;
        std::map<int64_t, int>& live = compute.scratch[ref.index].is_kept ? kept : passing;
        const auto at = live.find(compute.scratch[ref.index].offset);
        if (at != live.end() && at->second == ref.index) live.erase(at);
      }
    }
  }
  return absl::OkStatus();
}

// An output is written once, except by kernels that take over in place what it holds.
absl::Status CheckOutputs(const PhysicalGraph& graph, const OpRegistry& registry,
                          const TaskGroup& group) {
  std::set<std::pair<int, int>> is_written;  // (output, part)
  for (const KernelCall& kernel : group.kernels()) {
    const auto broken = [&](const OperandRef& ref, std::string_view what) {
      const Register& reg = graph.reg(group.outputs[ref.index]);
      return absl::InternalError(absl::StrFormat("%s: kernel '%s' %s part %d of its output '%s'",
                                                 DescribeGroup(graph, group.id), kernel.name, what,
                                                 ref.part, reg.name));
    };
    for (const OperandRef& ref : kernel.inputs) {
      if (ref.source != OperandRef::Source::kOutput) continue;
      if (!is_written.contains({ref.index, ref.part})) {
        return broken(ref, "reads, before anybody wrote it,");
      }
    }
    const OpDef* const def = registry.Find(kernel.op);
    for (size_t i = 0; i < kernel.outputs.size(); ++i) {
      const OperandRef& ref = kernel.outputs[i];
      if (ref.source != OperandRef::Source::kOutput) continue;
      if (is_written.insert({ref.index, ref.part}).second) continue;
      const bool takes_over =
          def != nullptr && std::count(kernel.inputs.begin(), kernel.inputs.end(), ref) == 1 &&
          std::any_of(def->inplace().begin(), def->inplace().end(), [&](const auto& pair) {
            return pair.second == static_cast<int>(i) &&
                   pair.first < static_cast<int>(kernel.inputs.size()) &&
                   kernel.inputs[pair.first] == ref;
          });
      if (!takes_over) return broken(ref, "writes again, and not in place,");
    }
  }
  return absl::OkStatus();
}

// ---- variables ---------------------------------------------------------------------------------

absl::Status CheckVariables(const PhysicalGraph& graph, const StepOrder& order,
                            const OpRegistry& registry) {
  const std::vector<Overwrite> overwrites = Overwrites(graph, registry);
  std::vector<StepOrder::Constraint> constraints;
  std::vector<const Overwrite*> of;
  for (const Overwrite& overwrite : overwrites) {
    const TaskGroup& group = graph.group(overwrite.group);
    const Register& reg = graph.reg(overwrite.reg);
    const std::string& variable = reg.parts[overwrite.part].variable;
    if (variable.empty()) {
      return absl::InternalError(
          absl::StrFormat("%s overwrites register '%s', which is no variable",
                          DescribeGroup(graph, group.id), reg.name));
    }
    // The owner's next act then waits until the update gave the slot back.
    if (reg.slots != 1 || reg.initial_tokens != 0 || group.acts_per_step != 1) {
      return absl::InternalError(absl::StrFormat(
          "%s overwrites variable '%s' %d times a step, and its register has %d slots and %d "
          "initial "
          "tokens; it must be once, 1 and 0",
          DescribeGroup(graph, group.id), variable, group.acts_per_step, reg.slots,
          reg.initial_tokens));
    }
    const OperandRef written = {
        OperandRef::Source::kInput,
        static_cast<int>(std::find_if(group.inputs.begin(), group.inputs.end(),
                                      [&](const GroupInput& in) { return in.reg == reg.id; }) -
                         group.inputs.begin()),
        overwrite.part};
    for (size_t k = overwrite.kernel + 1; k < group.kernels().size(); ++k) {
      const auto& inputs = group.kernels()[k].inputs;
      if (std::find(inputs.begin(), inputs.end(), written) == inputs.end()) continue;
      return absl::InternalError(absl::StrFormat(
          "%s: kernel '%s' reads variable '%s' after '%s' has overwritten it; it must come first",
          DescribeGroup(graph, group.id), group.kernels()[k].name, variable,
          group.kernels()[overwrite.kernel].name));
    }
    for (GroupId reader : overwrite.readers) {
      constraints.push_back({.reader = reader, .writer = group.id});
      of.push_back(&overwrite);
    }
  }
  const std::vector<bool> holds = order.Holds(constraints);
  for (size_t i = 0; i < constraints.size(); ++i) {
    if (holds[i]) continue;
    const Register& reg = graph.reg(of[i]->reg);
    return absl::InternalError(
        absl::StrFormat("%s may overwrite variable '%s' while %s still reads this step's value; a "
                        "control edge from "
                        "'%s' to '%s' with no initial token would make it wait",
                        DescribeGroup(graph, of[i]->group), reg.parts[of[i]->part].variable,
                        DescribeGroup(graph, constraints[i].reader),
                        graph.group(constraints[i].reader).name, graph.group(of[i]->group).name));
  }
  return absl::OkStatus();
}

// ---- collectives among devices -----------------------------------------------------------------

// An edge is the same on every device of its groups: if the edges leave one order, all devices have
// it.
absl::Status CheckCollectiveOrder(const PhysicalGraph& graph) {
  BRAID_ASSIGN_OR_RETURN(const std::vector<OrderEdge> demanded, CollectiveOrder(graph));
  if (demanded.empty()) return absl::OkStatus();
  std::set<OrderEdge> edges;
  for (const TaskGroup& group : graph.groups()) {
    for (const GroupInput& input : group.inputs) {
      const Register& reg = graph.reg(input.reg);
      const int pieces = graph.group(reg.producer).acts_per_step / reg.period;
      if (reg.is_control() && pieces * input.period == group.acts_per_step) {
        edges.insert({reg.producer, group.id, reg.initial_tokens, pieces});
      }
    }
  }
  for (const OrderEdge& edge : demanded) {
    if (edges.contains(edge)) continue;
    return absl::InternalError(absl::StrFormat(
        "%s and %s are done by devices among themselves, and each device may come to them in an "
        "order of its own; a control edge from '%s' to '%s' with %d initial tokens and %d pieces a "
        "step would give them one",
        DescribeGroup(graph, edge.from), DescribeGroup(graph, edge.to), graph.group(edge.from).name,
        graph.group(edge.to).name, edge.initial_tokens, edge.pieces));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Verify(const PhysicalGraph& graph, const OpRegistry& registry) {
  BRAID_RETURN_IF_ERROR(VerifyInvariants(graph));
  BRAID_RETURN_IF_ERROR(CheckKept(graph, registry));
  BRAID_RETURN_IF_ERROR(CheckRuns(graph));
  for (const TaskGroup& group : graph.groups()) {
    if (group.is<Compute>()) BRAID_RETURN_IF_ERROR(CheckScratch(graph, registry, group));
    BRAID_RETURN_IF_ERROR(CheckOutputs(graph, registry, group));
  }
  BRAID_ASSIGN_OR_RETURN(const StepOrder order, StepOrder::Make(graph));
  BRAID_RETURN_IF_ERROR(CheckSharedBytes(graph, order));
  BRAID_RETURN_IF_ERROR(CheckCollectiveOrder(graph));
  return CheckVariables(graph, order, registry);
}

}  // namespace braid::compiler
