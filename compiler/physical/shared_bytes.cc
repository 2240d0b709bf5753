#include "compiler/physical/shared_bytes.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "compiler/physical/device_sets.h"
#include "runtime/base/status.h"

namespace braid::compiler {
namespace {

using When = StepOrder::When;

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
      if (!reg.has_memory()) continue;
      if (reg.offset < 0 || reg.offset % 64 != 0 || reg.slot_bytes < 0) {
        return absl::InternalError(
            absl::StrFormat("register '%s' is at byte %d of its arena", reg.name, reg.offset));
      }
      if (reg.stride < reg.slot_bytes || reg.stride % 64 != 0) {
        return absl::InternalError(
            absl::StrFormat("register '%s' has slots of %d bytes, each %d bytes after the other",
                            reg.name, reg.slot_bytes, reg.stride));
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
    BRAID_RETURN_IF_ERROR(CheckPairs(by_acts));
    if (by_acts.empty()) return absl::OkStatus();
    std::set<RegisterPair> runs;
    for (const auto& [set, registers] : by_set) FindRuns(EventsOf(registers), by_acts, runs);
    return CheckRuns(runs);
  }

 private:
  using RegisterPair = std::pair<GroupRegisterId, GroupRegisterId>;

  // Where a register, or one of its slots if there is a gap between them, begins or ends in its
  // arena.
  struct Event {
    int64_t at;
    bool begins;  // ends come first
    GroupRegisterId reg;
  };
  std::vector<Event> EventsOf(const std::vector<GroupRegisterId>& registers) const {
    std::vector<Event> events;
    for (GroupRegisterId id : registers) {
      const Register& reg = graph_.reg(id);
      const int64_t end = EndOf(id);
      const bool is_one_run = reg.stride == reg.slot_bytes;
      for (int64_t begin = reg.offset; begin < end; begin += reg.stride) {
        events.push_back({begin, true, id});
        events.push_back({is_one_run ? end : begin + reg.slot_bytes, false, id});
        if (is_one_run) break;
      }
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
    return reg.offset + reg.span_bytes();
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
        constraints.push_back({.reader = reader,
                               .writer = graph_.reg(first).producer,
                               .when = When::kNextAct,
                               .acts = graph_.reg(first).slots});
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
      constraints.push_back({reader, graph_.reg(written).producer, when,
                             when == When::kNextAct ? graph_.reg(written).slots : 1});
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

  // Each pair is ordered by steps or else, and then it is in `by_acts`, by acts. What is made in
  // place several times a step, always by acts.
  absl::Status CheckPairs(std::set<RegisterPair>& by_acts) const {
    for (const auto& [first, second] : pairs_) BRAID_RETURN_IF_ERROR(CheckTokens(first, second));
    auto unordered = Missing(pairs_, /*of_acts=*/false);
    for (const RegisterPair& pair : pairs_) {
      const GroupId producer = graph_.reg(pair.second).producer;
      const bool is_remade =
          IsInPlace(producer, pair.first, pair.second) && graph_.group(producer).acts_per_step > 1;
      if (is_remade) unordered[pair];
    }
    for (const auto& [pair, questions] : unordered) {
      if (LieSlotBySlot(pair)) by_acts.insert(pair);
    }
    const auto missing_acts = Missing(by_acts, /*of_acts=*/true);
    for (const auto& [pair, of_steps] : unordered) {
      const auto of_acts = missing_acts.find(pair);
      if (of_acts == missing_acts.end() && by_acts.contains(pair)) continue;
      // The order of which less is missing would be mended.
      const bool tells_acts = of_acts != missing_acts.end() &&
                              (of_steps.empty() || of_acts->second.size() <= of_steps.size());
      if (!tells_acts && of_steps.empty()) return UnorderedInPlace(pair);
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

  // Whether, all through a step of several acts, the bytes of a piece of the one are those of the
  // same piece of the other, and of no other piece that is kept with it.
  bool LieSlotBySlot(const RegisterPair& pair) const {
    const Register& a = graph_.reg(pair.first);
    const Register& b = graph_.reg(pair.second);
    for (const Register* reg : {&a, &b}) {
      if (reg->period != 1 || graph_.group(reg->producer).acts_per_step == 1) return false;
    }
    if (a.slots != b.slots) return false;
    if (a.slots == 1) return true;
    const int64_t end = std::max(a.offset + a.slot_bytes, b.offset + b.slot_bytes);
    return a.stride == b.stride && end - std::min(a.offset, b.offset) <= a.stride;
  }

  // Whether the group turns the one into the other where it lies.
  bool IsInPlace(GroupId id, GroupRegisterId read, GroupRegisterId written) const {
    const TaskGroup& group = graph_.group(id);
    return graph_.MayActInPlace(id) && group.inputs[0].reg == read && group.outputs[0] == written &&
           graph_.reg(read).offset == graph_.reg(written).offset;
  }

  absl::Status UnorderedInPlace(const RegisterPair& pair) const {
    const auto& [read, written] = pair;
    return absl::InternalError(absl::StrFormat(
        "register '%s' becomes '%s' in place, several times a step, but their pieces do not lie "
        "slot by slot, or do not belong to one act each; they need bytes of their own",
        graph_.reg(read).name, graph_.reg(written).name));
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
        : c.when != When::kNextAct ? ""
        : c.acts == 1              ? " of the act before"
                                   : absl::StrFormat(" of %d acts before", c.acts));
    const bool may_edge = !graph_.group(c.writer).is<Exchange>() &&
                          (c.is_next() || order_.position(c.reader) < order_.position(c.writer));
    if (may_edge) {
      const int tokens = c.initial_tokens();
      absl::StrAppend(&message, "a control edge from '", graph_.group(c.reader).name, "' to '",
                      graph_.group(c.writer).name, "' with ",
                      tokens == 0   ? "no initial token"
                      : tokens == 1 ? "one initial token"
                                    : absl::StrCat(tokens, " initial tokens"),
                      " would order them");
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

}  // namespace

absl::Status CheckSharedBytes(const PhysicalGraph& graph, const StepOrder& order) {
  return SharedBytes(graph, order).Check();
}

}  // namespace braid::compiler
