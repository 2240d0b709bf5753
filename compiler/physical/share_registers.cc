#include "compiler/physical/share_registers.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <utility>

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
  Sharer(const PhysicalGraph& graph, StepOrder order, ActPhases phases, bool may_add_edges)
      : graph_(graph),
        order_(std::move(order)),
        phases_(std::move(phases)),
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

  // Pools in an order that does not depend on slots.
  Sharing Share() {
    std::vector<StepOrder::Constraint> needed;
    for (const TaskGroup& group : graph_.groups()) ActInPlace(group, needed);
    Arenas arenas = FindArenas();
    Sharing sharing;
    for (auto& [arena, registers] : arenas) {
      std::erase_if(registers, [this](GroupRegisterId reg) { return is_result_[reg]; });
      sharing.pools.push_back(FillPool(registers, needed));
    }
    std::sort(needed.begin(), needed.end());
    needed.erase(std::unique(needed.begin(), needed.end()), needed.end());
    sharing.edges = order_.Missing(needed);
    return sharing;
  }

  // By pool: registers that could be laid out slot by slot with others, had they as many slots.
  using MoreSlots = std::vector<std::pair<GroupRegisterId, int>>;
  std::vector<MoreSlots> FindMoreSlots() const {
    std::vector<MoreSlots> more;
    for (const auto& [arena, registers] : FindArenas()) {
      std::map<int, int64_t> bytes;  // by slots
      for (GroupRegisterId reg : registers) {
        if (HasFrames(reg)) bytes[graph_.reg(reg).slots] += BytesOf(graph_.reg(reg));
      }
      more.emplace_back();
      const auto most =
          std::max_element(bytes.begin(), bytes.end(),
                           [](const auto& a, const auto& b) { return a.second < b.second; });
      if (most == bytes.end()) continue;
      for (GroupRegisterId reg : registers) {
        if (by_acts_[reg] == 0 || graph_.reg(reg).slots >= most->first) continue;
        more.back().emplace_back(reg, most->first);
      }
    }
    return more;
  }

 private:
  struct ArenaLess {
    bool operator()(const std::pair<MemoryKind, Placement>& a,
                    const std::pair<MemoryKind, Placement>& b) const {
      return a.first != b.first ? a.first < b.first : Placement::DevicesLess()(a.second, b.second);
    }
  };
  using Arenas =
      std::map<std::pair<MemoryKind, Placement>, std::vector<GroupRegisterId>, ArenaLess>;
  // Those that may share.
  Arenas FindArenas() const {
    Arenas arenas;
    for (const Register& reg : graph_.registers()) {
      if (MayShare(graph_, reg)) arenas[{reg.memory, reg.placement}].push_back(reg.id);
    }
    return arenas;
  }

  // Whether it may share slot by slot.
  bool HasFrames(GroupRegisterId reg) const {
    return by_acts_[reg] > 0 && graph_.reg(reg).slots > 1;
  }

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
    // What comes next into its bytes must not come before its own readers are done.
    if (by_acts_[in.id] == 0 && PiecesOf(graph_, in) > 1) return;
    for (GroupId reader : readers_[out.id]) {
      constraints.push_back({.reader = reader,
                             .writer = in.producer,
                             .when = by_acts_[in.id] > 0 ? When::kNextAct : When::kNextStep,
                             .acts = by_acts_[in.id] > 0 ? in.slots : 1});
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

  // In how many pieces it can share act by act or slot by slot: one an act of all who use it. 0: it
  // cannot. What others wait for all acts of may be filled by all acts before its readers act at
  // all.
  int ActsOf(const Register& reg) const {
    const int pieces = PiecesOf(graph_, reg);
    if (phases_.of[reg.producer] < phases_.last) return 0;
    if (pieces == 1 || reg.period != 1) return 0;
    for (GroupId reader : readers_[reg.id]) {
      if (graph_.group(reader).acts_per_step != pieces) return 0;
    }
    return pieces;
  }

  // What is asked again and again about the registers of a pool.
  struct Known {
    int acts = 1;  // from an act to the one that is next in the same bytes
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
    if (c.acts == graph_.group(c.writer).acts_per_step) return true;  // in the next step
    // The writer's next act waits for as many transfers as it is, and never for all of its own
    // acts.
    const bool is_after_all =
        known.table.Holds({.reader = c.writer, .writer = c.reader, .when = When::kStep});
    return !is_after_all && transfers_[c.reader] <= known.before_next.at(c.writer);
  }

  // How many transfers its next act waits for.
  int TransfersBeforeNext(const Known& known, GroupId writer) const {
    int most = transfers_[writer];
    for (GroupId id : known.table.readers()) {
      if (transfers_[id] > most && known.table.Holds({id, writer, When::kNextAct, known.acts})) {
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
      const StepOrder::Constraint c{reader, graph_.reg(written).producer, when,
                                    when == When::kNextAct ? known.acts : 1};
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
    if (graph_.reg(a).slots != known.acts || graph_.reg(b).slots != known.acts) return std::nullopt;
    order.of_acts = true;
    const bool by_acts = ForEachMissing(
        known, order, [&](const StepOrder::Constraint& c) { return MayAddOfActs(known, c); });
    return by_acts ? std::optional<Order>(order) : std::nullopt;
  }

  Known Know(const std::vector<GroupRegisterId>& registers, int acts) const {
    std::vector<GroupId> readers;
    for (GroupRegisterId reg : registers) {
      readers.insert(readers.end(), readers_[reg].begin(), readers_[reg].end());
      if (by_acts_[reg] > 0) readers.push_back(graph_.reg(reg).producer);
    }
    Known known = {acts, order_.TableOf(readers, acts), {}};
    for (GroupRegisterId reg : registers) {
      const GroupId producer = graph_.reg(reg).producer;
      if (by_acts_[reg] == 0 || known.before_next.contains(producer)) continue;
      known.before_next[producer] = TransfersBeforeNext(known, producer);
    }
    return known;
  }

  // Bytes of a register, of one of its slots if they lie apart.
  struct Placed {
    int64_t begin = 0, end = 0;
    GroupRegisterId reg = kNone;
  };
  struct Packing {
    int64_t bytes = 0;
    std::vector<Placed> placed;  // by begin
    std::vector<StepOrder::Constraint> needed;

    void Insert(const Placed& here) {
      placed.insert(
          std::upper_bound(placed.begin(), placed.end(), here,
                           [](const Placed& a, const Placed& b) { return a.begin < b.begin; }),
          here);
      bytes = std::max(bytes, here.end);
    }
  };

  // Adds a register in the tightest gap between those with which it must not share: at which byte.
  int64_t Pack(const Known& known, GroupRegisterId reg, int64_t bytes, Packing& packing) const {
    int64_t best = -1, best_gap = 0, end = 0;
    for (const Placed& other : packing.placed) {
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
    for (const Placed& other : packing.placed) {
      if (other.begin >= here.end || here.begin >= other.end) continue;
      ForEachMissing(known, *OrderOf(known, reg, other.reg), [&](const auto& constraint) {
        packing.needed.push_back(constraint);
        return true;
      });
    }
    packing.Insert(here);
    return best;
  }

  void AddPlace(GroupRegisterId reg, int64_t offset, int64_t stride, Pool& pool) const {
    pool.places.push_back({reg, offset, stride});
    if (result_[reg] != kNone) pool.places.push_back({result_[reg], offset, stride});
  }

  // Puts registers of several slots into frames, as many of them as slots.
  void PackFrames(const std::vector<GroupRegisterId>& registers, Packing& packing,
                  Pool& pool) const {
    std::map<int, std::vector<GroupRegisterId>, std::greater<>> by_slots;
    for (GroupRegisterId reg : registers) {
      if (HasFrames(reg)) by_slots[graph_.reg(reg).slots].push_back(reg);
    }
    for (const auto& [slots, alike] : by_slots) {
      const Known known = Know(alike, slots);
      Packing frame;
      for (GroupRegisterId reg : alike) Pack(known, reg, graph_.reg(reg).slot_bytes, frame);
      const int64_t base = packing.bytes;
      for (const Placed& placed : frame.placed) {
        AddPlace(placed.reg, base + placed.begin, frame.bytes, pool);
        for (int slot = 0; slot < slots; ++slot) {
          const int64_t begin = base + slot * frame.bytes;
          packing.Insert({begin + placed.begin, begin + placed.end, placed.reg});
        }
      }
      packing.bytes = base + slots * frame.bytes;
      packing.needed.insert(packing.needed.end(), frame.needed.begin(), frame.needed.end());
    }
  }

  struct Filled {
    Pool pool;
    std::vector<StepOrder::Constraint> needed;
  };
  // Registers in frames if they have some and are to, then each other one where there is room.
  Filled Fill(const std::vector<GroupRegisterId>& registers, const Known& known,
              bool in_frames) const {
    Packing packing;
    Pool pool;
    if (in_frames) PackFrames(registers, packing, pool);
    for (GroupRegisterId id : registers) {
      if (in_frames && HasFrames(id)) continue;
      const Register& reg = graph_.reg(id);
      AddPlace(id, Pack(known, id, BytesOf(reg), packing), reg.slot_bytes, pool);
    }
    pool.bytes = packing.bytes;
    return {std::move(pool), std::move(packing.needed)};
  }

  // Largest first; in frames if that takes less.
  Pool FillPool(std::vector<GroupRegisterId> registers,
                std::vector<StepOrder::Constraint>& needed) const {
    std::stable_sort(registers.begin(), registers.end(),
                     [this](GroupRegisterId a, GroupRegisterId b) {
                       return BytesOf(graph_.reg(a)) > BytesOf(graph_.reg(b));
                     });
    if (registers.size() > kMaxCandidates) registers.resize(kMaxCandidates);
    const Known known = Know(registers, 1);
    Filled filled = Fill(registers, known, /*in_frames=*/false);
    if (std::ranges::any_of(registers, [this](GroupRegisterId reg) { return HasFrames(reg); })) {
      Filled framed = Fill(registers, known, /*in_frames=*/true);
      if (framed.pool.bytes < filled.pool.bytes) filled = std::move(framed);
    }
    needed.insert(needed.end(), filled.needed.begin(), filled.needed.end());
    return std::move(filled.pool);
  }

  const PhysicalGraph& graph_;
  const StepOrder order_;
  const ActPhases phases_;
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

absl::StatusOr<Sharing> ShareRegisters(bool may_add_edges, PhysicalGraph& graph) {
  const auto make = [may_add_edges](const PhysicalGraph& of) -> absl::StatusOr<Sharer> {
    BRAID_ASSIGN_OR_RETURN(StepOrder order, StepOrder::Make(of));
    BRAID_ASSIGN_OR_RETURN(ActPhases phases, FindActPhases(of));
    return Sharer(of, std::move(order), std::move(phases), may_add_edges);
  };
  BRAID_ASSIGN_OR_RETURN(Sharer sharer, make(graph));
  Sharing sharing = sharer.Share();
  std::vector<Sharer::MoreSlots> more = sharer.FindMoreSlots();
  const auto has_more = [](const Sharer::MoreSlots& pool) { return !pool.empty(); };
  // More slots in all pools where that is possible, then only in those that became smaller, if they
  // still do without the others' edges.
  bool is_smaller = false;
  for (int tries = 0; tries < 2 && !is_smaller && std::ranges::any_of(more, has_more); ++tries) {
    PhysicalGraph raised = graph;
    for (const Sharer::MoreSlots& pool : more) {
      for (const auto& [reg, slots] : pool) raised.reg(reg).slots = slots;
    }
    BRAID_ASSIGN_OR_RETURN(Sharer other, make(raised));
    Sharing shared = other.Share();
    is_smaller = true;
    for (size_t i = 0; i < more.size(); ++i) {
      if (more[i].empty() || shared.pools[i].bytes < sharing.pools[i].bytes) continue;
      more[i].clear();
      is_smaller = false;
    }
    if (!is_smaller) continue;
    sharing = std::move(shared);
    graph = std::move(raised);
  }
  return sharing;
}

}  // namespace braid::compiler
