#include "compiler/physical/share_registers.h"

#include <algorithm>
#include <map>
#include <optional>

#include "compiler/physical/act_phases.h"
#include "runtime/base/status.h"

namespace braid::compiler {
namespace {

using When = StepOrder::When;

constexpr size_t kMaxCandidates = 4096;  // in a pool: pairs are looked at
constexpr int64_t kWorthSharing = 4096;  // bytes: an edge costs a message

int PiecesOf(const PhysicalGraph& graph, const Register& reg) {
  return graph.group(reg.producer).acts_per_step / reg.period;
}

bool MayShare(const PhysicalGraph& graph, const Register& reg) {
  // Who fills several slots a step ahead, as readers of data do, shares with nobody.
  const bool is_ahead = reg.slots > PiecesOf(graph, reg);
  return !is_ahead && reg.initial_tokens == 0 && reg.slot_bytes >= kWorthSharing &&
         !graph.group(reg.producer).is<Exchange>() &&
         std::all_of(reg.parts.begin(), reg.parts.end(),
                     [](const Part& part) { return part.variable.empty(); });
}

int64_t BytesOf(const Register& reg) { return reg.slots * reg.slot_bytes; }

class Sharer {
 public:
  Sharer(const PhysicalGraph& graph, StepOrder order, const ActPhases& phases, bool may_add_edges)
      : graph_(graph),
        order_(std::move(order)),
        phases_(phases),
        may_add_edges_(may_add_edges),
        readers_(graph.registers().size()),
        result_(graph.registers().size(), kNone),
        is_result_(graph.registers().size(), false) {
    for (const TaskGroup& group : graph.groups()) {
      for (const GroupInput& input : group.inputs) readers_[input.reg].push_back(group.id);
    }
    for (const Register& reg : graph.registers()) {
      // Nobody reads it: its own act is what has to be over.
      if (readers_[reg.id].empty()) readers_[reg.id].push_back(reg.producer);
    }
    std::map<Placement, int, Placement::DevicesLess> lists;
    for (const TaskGroup& group : graph.groups()) {
      devices_.push_back(
          lists.try_emplace(group.placement, static_cast<int>(lists.size())).first->second);
    }
    for (const Register& reg : graph.registers()) by_acts_.push_back(ActsOf(reg));
    CountTransfers();
  }

  Sharing Share() {
    std::vector<StepOrder::Constraint> needed;
    for (const TaskGroup& group : graph_.groups()) ActInPlace(group, needed);
    struct Less {
      bool operator()(const std::pair<MemoryKind, Placement>& a,
                      const std::pair<MemoryKind, Placement>& b) const {
        return a.first != b.first ? a.first < b.first
                                  : Placement::DevicesLess()(a.second, b.second);
      }
    };
    std::map<std::pair<MemoryKind, Placement>, std::vector<GroupRegisterId>, Less> candidates;
    for (const Register& reg : graph_.registers()) {
      if (is_result_[reg.id]) continue;
      if (MayShare(graph_, reg)) candidates[{reg.memory, reg.placement}].push_back(reg.id);
    }
    Sharing sharing;
    for (auto& [arena, registers] : candidates) {
      std::stable_sort(registers.begin(), registers.end(),
                       [this](GroupRegisterId a, GroupRegisterId b) {
                         return BytesOf(graph_.reg(a)) > BytesOf(graph_.reg(b));
                       });
      if (registers.size() > kMaxCandidates) registers.resize(kMaxCandidates);
      sharing.pools.push_back(Pack(arena.second.devices(), registers, needed));
    }
    std::sort(needed.begin(), needed.end());
    needed.erase(std::unique(needed.begin(), needed.end()), needed.end());
    sharing.edges = order_.Missing(needed);
    return sharing;
  }

 private:
  // The group's result takes the bytes of what it reads, which from then on have the result's
  // readers.
  void ActInPlace(const TaskGroup& group, std::vector<StepOrder::Constraint>& needed) {
    if (!graph_.MayActInPlace(group.id)) return;
    const Register& in = graph_.reg(group.inputs[0].reg);
    const Register& out = graph_.reg(group.outputs[0]);
    const bool is_only_reader = readers_[in.id].size() == 1;
    if (!is_only_reader || !MayShare(graph_, in) || !MayShare(graph_, out)) return;
    if (is_result_[in.id] || result_[out.id] != kNone) return;  // one of a row does
    std::vector<StepOrder::Constraint> constraints;
    if (by_acts_[in.id] != by_acts_[out.id]) return;
    for (GroupId reader : readers_[out.id]) {
      constraints.push_back({.reader = reader,
                             .writer = in.producer,
                             .when = by_acts_[in.id] > 0 ? When::kNextAct : When::kNextStep});
    }
    const std::vector<bool> holds = order_.Holds(constraints);
    for (size_t i = 0; i < constraints.size(); ++i) {
      if (!holds[i] && (by_acts_[in.id] > 0 || !MayAddOfSteps(constraints[i]))) return;
    }
    for (size_t i = 0; i < constraints.size(); ++i) {
      if (!holds[i]) needed.push_back(constraints[i]);
    }
    result_[in.id] = out.id;
    is_result_[out.id] = true;
    readers_[in.id] = readers_[out.id];
  }

  // How many transfers each group waits for, one after the other.
  void CountTransfers() {
    std::vector<GroupId> by_position(graph_.groups().size());
    for (size_t id = 0; id < by_position.size(); ++id) by_position[id] = static_cast<GroupId>(id);
    std::sort(by_position.begin(), by_position.end(),
              [this](GroupId a, GroupId b) { return order_.position(a) < order_.position(b); });
    transfers_.assign(by_position.size(), 0);
    for (GroupId id : by_position) {
      const TaskGroup& group = graph_.group(id);
      for (const GroupInput& input : group.inputs) {
        const Register& reg = graph_.reg(input.reg);
        if (reg.initial_tokens > 0) continue;
        transfers_[id] = std::max(transfers_[id], transfers_[reg.producer]);
      }
      if (group.stream != StreamKind::kCompute || group.movement() != nullptr) {
        ++transfers_[id];
      }
    }
  }

  // In how many pieces it can share act by act: one in its slot at a time, as often as all who use
  // it act. 0: it cannot. What others wait for all acts of may be filled by all acts before its
  // readers act at all.
  int ActsOf(const Register& reg) const {
    const int pieces = PiecesOf(graph_, reg);
    if (phases_.of[reg.producer] < phases_.last) return 0;
    if (reg.slots != 1 || pieces == 1 || reg.period != 1) return 0;
    for (GroupId reader : readers_[reg.id]) {
      if (graph_.group(reader).acts_per_step != pieces) return 0;
    }
    return pieces;
  }

  // What is asked again and again about the registers of a pool.
  struct Known {
    StepOrder::Table table;
    std::map<GroupId, int> before_next;  // of producers by acts: TransfersBeforeNext
  };

  bool IsOnComputeStream(GroupId id) const {
    const TaskGroup& group = graph_.group(id);
    return group.is<Compute>() && group.stream == StreamKind::kCompute;
  }

  bool MayAdd(const StepOrder::Constraint& c) const {
    return may_add_edges_ && IsOnComputeStream(c.reader) && IsOnComputeStream(c.writer) &&
           devices_[c.reader] == devices_[c.writer];
  }
  // In the graph's order, and without waiting for a transfer that is not waited for anyway.
  bool IsForward(const StepOrder::Constraint& c) const {
    return order_.position(c.reader) < order_.position(c.writer) &&
           transfers_[c.reader] <= transfers_[c.writer];
  }
  // Into the next step always: a step can be done without it. Within one, what acts several times
  // might have to be through before its slots allow it.
  bool MayAddOfSteps(const StepOrder::Constraint& c) const {
    const bool act_once =
        graph_.group(c.reader).acts_per_step == 1 && graph_.group(c.writer).acts_per_step == 1;
    return MayAdd(c) && (c.when == When::kNextStep || (act_once && IsForward(c)));
  }
  bool MayAddOfActs(const Known& known, const StepOrder::Constraint& c) const {
    if (!MayAdd(c)) return false;
    if (c.when == When::kAct) return IsForward(c);
    // The writer's next act waits for as many transfers as it is, and never for all of its own
    // acts.
    const bool is_after_all =
        known.table.Holds({.reader = c.writer, .writer = c.reader, .when = When::kStep});
    return !is_after_all && transfers_[c.reader] <= known.before_next.at(c.writer);
  }

  // How many transfers its next act waits for.
  int TransfersBeforeNext(const StepOrder::Table& table, GroupId writer) const {
    int most = transfers_[writer];
    for (GroupId id : table.readers()) {
      if (transfers_[id] > most &&
          table.Holds({.reader = id, .writer = writer, .when = When::kNextAct})) {
        most = transfers_[id];
      }
    }
    return most;
  }

  // `first` is used and over before `second` is written; in the next step, or act, the other way
  // round.
  struct Order {
    GroupRegisterId first = kNone, second = kNone;
    bool of_acts = false;
  };
  // Calls `on_missing` for what does not hold yet, until it returns false: the result is then, too.
  template <typename OnMissing>
  bool ForEachMissing(const Known& known, const Order& order, const OnMissing& on_missing) const {
    const auto is_right = [&](GroupId reader, GroupRegisterId written, When when) {
      const StepOrder::Constraint c{reader, graph_.reg(written).producer, when};
      return known.table.Holds(c) || on_missing(c);
    };
    const When same = order.of_acts ? When::kAct : When::kStep;
    const When next = order.of_acts ? When::kNextAct : When::kNextStep;
    return std::ranges::all_of(
               readers_[order.first],
               [&](GroupId reader) { return is_right(reader, order.second, same); }) &&
           std::ranges::all_of(readers_[order.second],
                               [&](GroupId reader) { return is_right(reader, order.first, next); });
  }
  // In which order they may share bytes; none if they must not.
  std::optional<Order> OrderOf(const Known& known, GroupRegisterId a, GroupRegisterId b) const {
    const auto position = [this](GroupRegisterId id) {
      return order_.position(graph_.reg(id).producer);
    };
    if (position(a) == position(b)) return std::nullopt;
    Order order = position(a) < position(b) ? Order{a, b} : Order{b, a};
    const bool by_steps = ForEachMissing(
        known, order, [this](const StepOrder::Constraint& c) { return MayAddOfSteps(c); });
    if (by_steps) return order;
    if (by_acts_[a] == 0 || by_acts_[a] != by_acts_[b]) return std::nullopt;
    order.of_acts = true;
    const bool by_acts = ForEachMissing(
        known, order, [&](const StepOrder::Constraint& c) { return MayAddOfActs(known, c); });
    return by_acts ? std::optional<Order>(order) : std::nullopt;
  }

  // Largest first, each into the tightest gap between those with which it must not share.
  Pool Pack(const std::vector<DeviceId>& devices, const std::vector<GroupRegisterId>& registers,
            std::vector<StepOrder::Constraint>& needed) const {
    std::vector<GroupId> readers;
    for (GroupRegisterId reg : registers) {
      readers.insert(readers.end(), readers_[reg].begin(), readers_[reg].end());
      if (by_acts_[reg] > 0) readers.push_back(graph_.reg(reg).producer);
    }
    Known known = {order_.TableOf(readers), {}};
    for (GroupRegisterId reg : registers) {
      const GroupId producer = graph_.reg(reg).producer;
      if (by_acts_[reg] == 0 || known.before_next.contains(producer)) continue;
      known.before_next[producer] = TransfersBeforeNext(known.table, producer);
    }
    struct Placed {
      int64_t begin, end;
      GroupRegisterId reg;
    };
    std::vector<Placed> placed;  // by begin
    Pool pool = {.devices = devices};
    for (GroupRegisterId reg : registers) {
      const int64_t bytes = BytesOf(graph_.reg(reg));
      int64_t best = -1, best_gap = 0, end = 0;
      for (const Placed& other : placed) {
        if (OrderOf(known, reg, other.reg).has_value()) continue;
        const int64_t gap = other.begin - end;
        if (gap >= bytes && (best < 0 || gap < best_gap)) {
          best = end;
          best_gap = gap;
        }
        end = std::max(end, other.end);
      }
      if (best < 0) best = end;
      const Placed here = {best, best + bytes, reg};
      for (const Placed& other : placed) {
        if (other.begin >= here.end || here.begin >= other.end) continue;
        ForEachMissing(known, *OrderOf(known, reg, other.reg), [&](const auto& constraint) {
          needed.push_back(constraint);
          return true;
        });
      }
      const auto at =
          std::upper_bound(placed.begin(), placed.end(), here,
                           [](const Placed& a, const Placed& b) { return a.begin < b.begin; });
      placed.insert(at, here);
      pool.bytes = std::max(pool.bytes, here.end);
      pool.offsets.emplace_back(reg, here.begin);
      if (result_[reg] != kNone) pool.offsets.emplace_back(result_[reg], here.begin);
    }
    return pool;
  }

  const PhysicalGraph& graph_;
  const StepOrder order_;
  const ActPhases& phases_;
  const bool may_add_edges_;
  std::vector<std::vector<GroupId>> readers_;  // by register
  std::vector<int> by_acts_;                   // by register: ActsOf
  // By register: what is made of it in place; and whether it is made so.
  std::vector<GroupRegisterId> result_;
  std::vector<bool> is_result_;
  std::vector<int> transfers_;  // by group
  std::vector<int> devices_;    // by group: the list of its devices
};

}  // namespace

absl::StatusOr<Sharing> ShareRegisters(const PhysicalGraph& graph, bool may_add_edges) {
  ASSIGN_OR_RETURN(StepOrder order, StepOrder::Make(graph));
  ASSIGN_OR_RETURN(const ActPhases phases, FindActPhases(graph));
  return Sharer(graph, std::move(order), phases, may_add_edges).Share();
}

}  // namespace braid::compiler
