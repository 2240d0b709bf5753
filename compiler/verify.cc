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
#include "compiler/physical/order_collectives.h"
#include "compiler/physical/overwrites.h"
#include "compiler/physical/simulate_step.h"
#include "compiler/physical/step_order.h"
#include "compiler/plan/invariants.h"
#include "runtime/base/status.h"

namespace braid::compiler {
namespace {

using When = StepOrder::When;

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

// ---- shared bytes ------------------------------------------------------------------------------

bool HasMemory(const Register& reg) {
  return std::any_of(reg.parts.begin(), reg.parts.end(),
                     [](const Part& part) { return part.variable.empty(); });
}

class SharedBytes {
 public:
  SharedBytes(const PhysicalGraph& graph, const StepOrder& order)
      : graph_(graph), order_(order), readers_(graph.registers().size()) {
    for (const TaskGroup& group : graph.groups()) {
      for (const GroupInput& input : group.inputs) readers_[input.reg].push_back(group.id);
    }
    for (const Register& reg : graph.registers()) {
      // Nobody reads it: its own act is what has to be over.
      if (readers_[reg.id].empty()) readers_[reg.id].push_back(reg.producer);
    }
  }

  absl::Status Check() {
    DeviceSets sets;
    std::map<std::pair<MemoryKind, int>, std::vector<GroupRegisterId>> by_set;
    for (const Register& reg : graph_.registers()) {
      if (!HasMemory(reg)) continue;
      if (reg.offset < 0 || reg.offset % 64 != 0 || reg.slot_bytes < 0) {
        return absl::InternalError(
            absl::StrFormat("register '%s' is at byte %d of its arena", reg.name, reg.offset));
      }
      if (reg.slot_bytes > 0) by_set[{reg.memory, sets.Intern(reg.placement)}].push_back(reg.id);
    }
    for (const auto& [set, registers] : by_set) FindNeighbours(EventsOf(registers));
    for (auto a = by_set.begin(); a != by_set.end(); ++a) {
      for (auto b = std::next(a); b != by_set.end(); ++b) {
        const auto& [memory, set] = a->first;
        if (memory != b->first.first) continue;
        if (sets.Intersection(set, b->first.second) >= 0) FindAcross(a->second, b->second);
      }
    }
    std::set<RegisterPair> by_acts;
    RETURN_IF_ERROR(CheckPairs(by_acts));
    if (by_acts.empty()) return absl::OkStatus();
    std::set<RegisterPair> runs;
    for (const auto& [set, registers] : by_set) FindRuns(EventsOf(registers), by_acts, runs);
    return CheckRuns(runs);
  }

 private:
  using RegisterPair = std::pair<GroupRegisterId, GroupRegisterId>;

  // Where a register begins or ends in its arena.
  struct Event {
    int64_t at;
    bool begins;  // ends come first
    GroupRegisterId reg;
  };
  std::vector<Event> EventsOf(const std::vector<GroupRegisterId>& registers) const {
    std::vector<Event> events;
    for (GroupRegisterId reg : registers) {
      events.push_back({graph_.reg(reg).offset, true, reg});
      events.push_back({EndOf(reg), false, reg});
    }
    std::sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
      return std::tie(a.at, a.begins, a.reg) < std::tie(b.at, b.begins, b.reg);
    });
    return events;
  }
  // In the order of their writers.
  using Live = std::set<std::pair<int, GroupRegisterId>>;
  Live::value_type KeyOf(GroupRegisterId reg) const {
    return {order_.position(graph_.reg(reg).producer), reg};
  }

  int64_t EndOf(GroupRegisterId id) const {
    const Register& reg = graph_.reg(id);
    return reg.offset + reg.slots * reg.slot_bytes;
  }

  // Along the arena, registers over a byte stand in the order of their writers. It is enough that
  // each is ordered with the next, and the last with the first of the next step; see FindRuns.
  void FindNeighbours(const std::vector<Event>& events) {
    Live live;
    for (const Event& event : events) {
      if (event.begins) {
        const auto at = live.insert(KeyOf(event.reg)).first;
        if (at != live.begin()) pairs_.insert({std::prev(at)->second, event.reg});
        if (std::next(at) != live.end()) pairs_.insert({event.reg, std::next(at)->second});
      } else {
        const auto next = live.erase(live.find(KeyOf(event.reg)));
        if (next != live.begin() && next != live.end()) {
          pairs_.insert({std::prev(next)->second, next->second});
        }
      }
      if (live.size() > 1) pairs_.insert({live.begin()->second, live.rbegin()->second});
    }
  }

  // Where neighbours are ordered act by act, the last of such a run has to be over before the next
  // act of the first, too.
  void FindRuns(const std::vector<Event>& events, const std::set<RegisterPair>& by_acts,
                std::set<RegisterPair>& runs) const {
    Live live;
    for (size_t i = 0; i < events.size(); ++i) {
      if (events[i].begins) {
        live.insert(KeyOf(events[i].reg));
      } else {
        live.erase(KeyOf(events[i].reg));
      }
      if (i + 1 < events.size() && events[i + 1].at == events[i].at) continue;
      GroupRegisterId first = kNone, last = kNone;
      int length = 0;
      for (const auto& [position, reg] : live) {
        if (!by_acts.contains({last, reg})) {
          if (length > 2) runs.insert({first, last});
          first = reg;
          length = 0;
        }
        last = reg;
        ++length;
      }
      if (length > 2) runs.insert({first, last});
    }
  }

  absl::Status CheckRuns(const std::set<RegisterPair>& runs) const {
    std::vector<StepOrder::Constraint> constraints;
    std::vector<RegisterPair> of;
    for (const auto& [first, last] : runs) {
      for (GroupId reader : readers_[last]) {
        constraints.push_back(
            {.reader = reader, .writer = graph_.reg(first).producer, .when = When::kNextAct});
        of.emplace_back(last, first);
      }
    }
    const std::vector<bool> holds = order_.Holds(constraints);
    for (size_t i = 0; i < constraints.size(); ++i) {
      if (!holds[i]) return Unordered(constraints[i], of[i].first, of[i].second);
    }
    return absl::OkStatus();
  }

  void FindAcross(const std::vector<GroupRegisterId>& some,
                  const std::vector<GroupRegisterId>& others) {
    std::vector<GroupRegisterId> sorted = others;
    const auto offset = [this](GroupRegisterId reg) { return graph_.reg(reg).offset; };
    std::sort(sorted.begin(), sorted.end(),
              [&](GroupRegisterId a, GroupRegisterId b) { return offset(a) < offset(b); });
    // The highest end up to each place, so that the scan downwards can stop.
    std::vector<int64_t> highest;
    for (GroupRegisterId reg : sorted) {
      highest.push_back(std::max(EndOf(reg), highest.empty() ? 0 : highest.back()));
    }
    for (GroupRegisterId a : some) {
      auto i =
          std::lower_bound(sorted.begin(), sorted.end(), EndOf(a),
                           [&](GroupRegisterId reg, int64_t end) { return offset(reg) < end; }) -
          sorted.begin();
      for (--i; i >= 0 && highest[i] > offset(a); --i) {
        const GroupRegisterId b = sorted[i];
        if (EndOf(b) <= offset(a)) continue;
        const bool a_first =
            order_.position(graph_.reg(a).producer) <= order_.position(graph_.reg(b).producer);
        pairs_.insert(a_first ? std::pair(a, b) : std::pair(b, a));
      }
    }
  }

  // Something that must hold, and whose bytes it is about.
  struct Question {
    StepOrder::Constraint constraint;
    GroupRegisterId read, written;
  };
  // What of both orders of each pair does not hold.
  std::map<RegisterPair, std::vector<Question>> Missing(const std::set<RegisterPair>& pairs,
                                                        bool of_acts) const {
    std::vector<StepOrder::Constraint> constraints;
    std::vector<std::pair<RegisterPair, Question>> questions;
    const auto ask = [&](const RegisterPair& pair, GroupId reader, GroupRegisterId read,
                         GroupRegisterId written, When when) {
      constraints.push_back({reader, graph_.reg(written).producer, when});
      questions.emplace_back(pair, Question{constraints.back(), read, written});
    };
    for (const RegisterPair& pair : pairs) {
      const auto& [first, second] = pair;
      for (GroupId reader : readers_[first]) {
        if (IsInPlace(reader, first, second)) continue;
        ask(pair, reader, first, second, of_acts ? When::kAct : When::kStep);
      }
      for (GroupId reader : readers_[second]) {
        ask(pair, reader, second, first, of_acts ? When::kNextAct : When::kNextStep);
      }
    }
    const std::vector<bool> holds = order_.Holds(constraints);
    std::map<RegisterPair, std::vector<Question>> missing;
    for (size_t i = 0; i < questions.size(); ++i) {
      if (!holds[i]) missing[questions[i].first].push_back(questions[i].second);
    }
    return missing;
  }

  // Each pair is ordered by steps or else, and then it is in `by_acts`, by acts.
  absl::Status CheckPairs(std::set<RegisterPair>& by_acts) const {
    for (const auto& [first, second] : pairs_) RETURN_IF_ERROR(CheckTokens(first, second));
    const auto missing_steps = Missing(pairs_, /*of_acts=*/false);
    for (const auto& [pair, questions] : missing_steps) {
      if (HaveOnePieceAnAct(pair)) by_acts.insert(pair);
    }
    const auto missing_acts = Missing(by_acts, /*of_acts=*/true);
    for (const auto& [pair, of_steps] : missing_steps) {
      const auto of_acts = missing_acts.find(pair);
      if (of_acts == missing_acts.end() && by_acts.contains(pair)) continue;
      // The order of which less is missing would be mended.
      const bool tells_acts =
          of_acts != missing_acts.end() && of_acts->second.size() <= of_steps.size();
      const Question& question = tells_acts ? of_acts->second[0] : of_steps[0];
      return Unordered(question.constraint, question.read, question.written);
    }
    return absl::OkStatus();
  }

  // A slot that is ready at the start lives from one step into the next.
  absl::Status CheckTokens(GroupRegisterId first, GroupRegisterId second) const {
    for (GroupRegisterId reg : {first, second}) {
      if (graph_.reg(reg).initial_tokens == 0) continue;
      return absl::InternalError(absl::StrFormat(
          "registers '%s' and '%s' share bytes, but '%s' has initial tokens and is never free; "
          "they need bytes of their own",
          graph_.reg(first).name, graph_.reg(second).name, graph_.reg(reg).name));
    }
    return absl::OkStatus();
  }

  // Whether, all through a step of several acts, both have one slot for a piece of each act of
  // their producers.
  bool HaveOnePieceAnAct(const RegisterPair& pair) const {
    for (GroupRegisterId id : {pair.first, pair.second}) {
      const Register& reg = graph_.reg(id);
      const int acts = graph_.group(reg.producer).acts_per_step;
      if (reg.slots != 1 || reg.period != 1 || acts == 1) return false;
    }
    return true;
  }

  // Whether the group turns the one into the other where it lies.
  bool IsInPlace(GroupId id, GroupRegisterId read, GroupRegisterId written) const {
    const TaskGroup& group = graph_.group(id);
    return graph_.MayActInPlace(id) && group.inputs[0].reg == read && group.outputs[0] == written &&
           graph_.reg(read).offset == graph_.reg(written).offset;
  }

  absl::Status Unordered(const StepOrder::Constraint& c, GroupRegisterId read,
                         GroupRegisterId written) const {
    const Register& a = graph_.reg(read);
    const Register& b = graph_.reg(written);
    std::string device;
    for (const DeviceId& id : a.placement.devices()) {
      if (device.empty() && b.placement.rank_of(id) >= 0) {
        device = absl::StrFormat("node %d %s:%d", id.node, a.placement.device_type(), id.device);
      }
    }
    std::string message = absl::StrFormat(
        "registers '%s' and '%s' share bytes %d to %d on %s, but %s may write '%s' while %s still "
        "uses '%s'%s; ",
        a.name, b.name, std::max(a.offset, b.offset), std::min(EndOf(read), EndOf(written)), device,
        DescribeGroup(graph_, c.writer), b.name, DescribeGroup(graph_, c.reader), a.name,
        c.when == When::kNextStep  ? " of the step before"
        : c.when == When::kNextAct ? " of the act before"
                                   : "");
    const bool may_edge = !graph_.group(c.writer).is<Exchange>() &&
                          (c.is_next() || order_.position(c.reader) < order_.position(c.writer));
    if (may_edge) {
      absl::StrAppend(&message, "a control edge from '", graph_.group(c.reader).name, "' to '",
                      graph_.group(c.writer).name, "' with ",
                      c.is_next() ? "one initial token" : "no initial token", " would order them");
    } else {
      absl::StrAppend(&message, "they need bytes of their own");
    }
    return absl::InternalError(message);
  }

  const PhysicalGraph& graph_;
  const StepOrder& order_;
  std::vector<std::vector<GroupId>> readers_;  // by register
  std::set<RegisterPair> pairs_;               // in the order of their writers
};

// ---- scratch -----------------------------------------------------------------------------------

// No tensor of a chain lies on another that is still to be read.
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
  std::map<int64_t, int> live;  // by offset; they do not overlap
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
               std::any_of(def->inplace().begin(), def->inplace().end(), [&](const auto& pair) {
                 return pair.second == static_cast<int>(i) &&
                        pair.first < static_cast<int>(kernel.inputs.size()) &&
                        kernel.inputs[pair.first].source == OperandRef::Source::kScratch &&
                        kernel.inputs[pair.first].index == other;
               });
      };
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
  ASSIGN_OR_RETURN(const std::vector<OrderEdge> demanded, CollectiveOrder(graph));
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
  RETURN_IF_ERROR(VerifyInvariants(graph));
  RETURN_IF_ERROR(CheckRuns(graph));
  for (const TaskGroup& group : graph.groups()) {
    if (group.is<Compute>()) RETURN_IF_ERROR(CheckScratch(graph, registry, group));
    RETURN_IF_ERROR(CheckOutputs(graph, registry, group));
  }
  ASSIGN_OR_RETURN(const StepOrder order, StepOrder::Make(graph));
  RETURN_IF_ERROR(SharedBytes(graph, order).Check());
  RETURN_IF_ERROR(CheckCollectiveOrder(graph));
  return CheckVariables(graph, order, registry);
}

}  // namespace braid::compiler
