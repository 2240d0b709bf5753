#include "compiler/physical/plan_memory.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "compiler/physical/device_sets.h"
#include "compiler/physical/overwrites.h"
#include "compiler/physical/plan_scratch.h"
#include "compiler/physical/share_registers.h"
#include "compiler/physical/simulate_step.h"
#include "compiler/physical/step_order.h"
#include "runtime/base/status.h"

namespace braid::compiler {
namespace {

void AddEdge(const StepOrder::Constraint& edge, PhysicalGraph& graph) {
  const int tokens = edge.initial_tokens();
  const int pieces = edge.is_of_acts() ? graph.group(edge.reader).acts_per_step : 1;
  graph.AddControlEdge(edge.reader, edge.writer, tokens, pieces);
  // As many slots as it has pieces: the reader never waits for the writer.
  graph.reg(static_cast<GroupRegisterId>(graph.registers().size()) - 1).slots = tokens + pieces;
}

// Hands out bytes above all that was handed out on any of the same devices.
class Stack {
 public:
  explicit Stack(DeviceSets* sets) : sets_(*sets), top_(sets->size(), 0) {
    // Intersections are sets of their own: only those that were there before are asked for.
    const int n = static_cast<int>(top_.size());
    neighbours_.resize(n);
    for (int a = 0; a < n; ++a) {
      for (int b = 0; b < n; ++b) {
        if (sets_.Intersection(a, b) >= 0) neighbours_[a].push_back(b);
      }
    }
  }

  int64_t Take(int set, int64_t bytes) {
    int64_t offset = 0;
    for (int other : neighbours_[set]) offset = std::max(offset, top_[other]);
    top_[set] = offset + bytes;
    return offset;
  }

 private:
  DeviceSets& sets_;
  std::vector<int64_t> top_;
  std::vector<std::vector<int>> neighbours_;
};

// Every read of a variable before its update: where the readers' results do not lead to the update
// on each device, an edge does.
absl::Status OrderVariables(const OpRegistry& registry, PhysicalGraph& graph) {
  std::vector<StepOrder::Constraint> constraints;
  for (const Overwrite& overwrite : Overwrites(graph, registry)) {
    for (GroupId reader : overwrite.readers) {
      constraints.push_back({.reader = reader, .writer = overwrite.group});
    }
  }
  if (constraints.empty()) return absl::OkStatus();
  std::sort(constraints.begin(), constraints.end());
  constraints.erase(std::unique(constraints.begin(), constraints.end()), constraints.end());
  std::vector<bool> holds;
  {
    BRAID_ASSIGN_OR_RETURN(const StepOrder order, StepOrder::Make(graph));
    holds = order.Holds(constraints);
  }
  for (size_t i = 0; i < constraints.size(); ++i) {
    if (!holds[i]) AddEdge(constraints[i], graph);
  }
  return absl::OkStatus();
}

// What groups of common devices keep lies one behind the other.
void PlaceKept(PhysicalGraph& graph) {
  DeviceSets sets;
  std::vector<std::pair<GroupId, int>> keepers;  // and the set of their devices
  for (const TaskGroup& group : graph.groups()) {
    if (EndOfKept(group) > 0) keepers.emplace_back(group.id, sets.Intern(group.placement));
  }
  Stack kept(&sets);
  for (const auto& [id, set] : keepers) {
    TaskGroup& group = graph.group(id);
    const int64_t base = kept.Take(set, AlignInArena(EndOfKept(group)));
    for (Scratch& scratch : std::get<Compute>(group.work).scratch) {
      if (scratch.is_kept) scratch.offset += base;
    }
  }
}

bool ActsOnce(const PhysicalGraph& graph) {
  return std::all_of(graph.groups().begin(), graph.groups().end(),
                     [](const TaskGroup& group) { return group.acts_per_step == 1; });
}

absl::StatusOr<Sharing> Share(PhysicalGraph& graph) {
  PhysicalGraph ordered = graph;
  BRAID_ASSIGN_OR_RETURN(Sharing sharing, ShareRegisters(/*may_add_edges=*/true, ordered));
  for (const StepOrder::Constraint& edge : sharing.edges) AddEdge(edge, ordered);
  // Where every group acts once a step, acting in the graph's order is always possible. Else an
  // edge may want all micro-batches to be through before the slots allow it.
  if (sharing.edges.empty() || ActsOnce(graph) || StepSimulation(ordered).Run()) {
    graph = std::move(ordered);
    return sharing;
  }
  return ShareRegisters(/*may_add_edges=*/false, graph);
}

}  // namespace

absl::StatusOr<PhysicalGraph> PlanMemory(PhysicalGraph graph, const OpRegistry& registry) {
  graph.LayOutParts();
  for (const TaskGroup& group : graph.groups()) {
    if (group.is<Compute>()) PlanScratch(registry, graph, graph.group(group.id));
  }
  PlaceKept(graph);
  BRAID_RETURN_IF_ERROR(OrderVariables(registry, graph));
  BRAID_ASSIGN_OR_RETURN(const Sharing sharing, Share(graph));

  DeviceSets sets;
  std::vector<int> set_of;
  for (const Register& reg : graph.registers()) set_of.push_back(sets.Intern(reg.placement));
  Stack own(&sets), pinned(&sets);
  for (const Register& reg : graph.registers()) graph.reg(reg.id).offset = -1;
  std::vector<Pool> blocks = sharing.pools;
  std::erase_if(blocks, [](const Pool& pool) { return pool.places.empty(); });
  for (const Pool& pool : sharing.pools) {
    for (const Pool::Place& place : pool.places) {
      graph.reg(place.reg).offset = place.offset;
      graph.reg(place.reg).stride = place.stride;
    }
  }
  for (const Register& reg : graph.registers()) {
    if (reg.offset >= 0 || !reg.has_memory()) continue;
    blocks.push_back({.bytes = reg.span_bytes(), .places = {{reg.id, 0, reg.stride}}});
  }
  // What lies on many devices first: above what only some of them have, it would leave a gap on the
  // others.
  std::stable_sort(blocks.begin(), blocks.end(), [&](const Pool& a, const Pool& b) {
    const auto devices = [&](const Pool& block) {
      return graph.reg(block.places[0].reg).placement.size();
    };
    return devices(a) > devices(b);
  });
  for (const Pool& block : blocks) {
    const GroupRegisterId first = block.places[0].reg;
    Stack& stack = graph.reg(first).memory == MemoryKind::kPinned ? pinned : own;
    const int64_t base = stack.Take(set_of[first], block.bytes);
    for (const Pool::Place& place : block.places) graph.reg(place.reg).offset = base + place.offset;
  }
  return graph;
}

}  // namespace braid::compiler
