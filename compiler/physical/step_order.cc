#include "compiler/physical/step_order.h"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>

#include "compiler/plan/exchange_moves.h"
#include "glog/logging.h"
#include "runtime/base/status.h"

namespace braid::compiler {
namespace {

// Exchanges between more ranks are taken to order nothing but what goes through one device.
constexpr int kMaxRanks = 64;
// Readers that are followed at a time: bounds memory.
constexpr size_t kMaxColumns = 2048;

using Word = uint64_t;
constexpr size_t kBits = 64;

}  // namespace

// For every node, the readers that come before it: a bit each, by relation and by way.
struct StepOrder::Rows {
  static constexpr size_t kRelations = 3;
  // Of this step, and of this or the one before; by any path, or by full ones. kNextAct: next acts.
  enum Way : size_t { kSame, kSameFull, kNext, kNextFull, kNextAct, kWays };

  // `acts`: how many acts later a next act is.
  Rows(size_t nodes, size_t columns, int acts)
      : words((columns + kBits - 1) / kBits),
        acts(acts),
        bits(nodes * kWays * kRelations * words, 0) {}

  Word* Row(size_t node, Way way, Relation relation) {
    return bits.data() +
           ((node * kWays + way) * kRelations + static_cast<size_t>(relation)) * words;
  }
  const Word* Row(size_t node, Way way, Relation relation) const {
    return const_cast<Rows*>(this)->Row(node, way, relation);
  }
  bool Test(size_t node, Way way, Relation relation, size_t column) const {
    return (Row(node, way, relation)[column / kBits] >> (column % kBits) & 1) != 0;
  }
  void Merge(Word* into, const Word* from) const {
    for (size_t w = 0; w < words; ++w) into[w] |= from[w];
  }

  // Everything that is before `edge.from` by one way is before `to` by the other, as far as the
  // edge's relation carries.
  void Follow(const Edge& edge, int to, Way from_way, Way to_way) {
    const auto from = [&](Relation relation) { return Row(edge.from, from_way, relation); };
    const auto into = [&](Relation relation) { return Row(to, to_way, relation); };
    switch (edge.relation) {
      case Relation::kGather:
        Merge(into(Relation::kGather), from(Relation::kGather));
        break;
      case Relation::kRank:
        for (const Relation r : {Relation::kGather, Relation::kRank, Relation::kAll}) {
          Merge(into(r), from(r));
        }
        break;
      case Relation::kAll:
        for (const Relation r : {Relation::kGather, Relation::kRank, Relation::kAll}) {
          Merge(into(r), from(Relation::kGather));
        }
        break;
    }
  }

  // `column` is the edge's own start; -1: it is none.
  void Begin(const Edge& edge, int to, Way way, int column) {
    if (column < 0) return;
    const size_t bit = static_cast<size_t>(column);
    for (size_t r = 0; r <= static_cast<size_t>(edge.relation); ++r) {
      Row(to, way, static_cast<Relation>(r))[bit / kBits] |= Word{1} << (bit % kBits);
    }
  }

  // An edge within a step. A full one makes a path full; any path counts as not (known to be) full.
  void FollowInStep(const Edge& edge, int to, int column) {
    Follow(edge, to, kSame, kSame);
    Follow(edge, to, edge.is_full ? kSame : kSameFull, kSameFull);
    Begin(edge, to, kSame, column);
    if (edge.is_full) Begin(edge, to, kSameFull, column);
  }
  // The same, of what comes before in the step or act before.
  void FollowLater(const Edge& edge, int to) {
    Follow(edge, to, kNext, kNext);
    Follow(edge, to, edge.is_full ? kNext : kNextFull, kNextFull);
    Follow(edge, to, kNextAct, kNextAct);
  }
  // An edge from one step to the next.
  void FollowIntoNext(const Edge& edge, int to, int column) {
    Follow(edge, to, kSame, kNext);
    Follow(edge, to, edge.is_full ? kSame : kSameFull, kNextFull);
    Begin(edge, to, kNext, column);
    if (edge.is_full) Begin(edge, to, kNextFull, column);
    if (edge.next_acts == 0 || edge.next_acts > acts) return;
    Follow(edge, to, kSame, kNextAct);
    Begin(edge, to, kNextAct, column);
  }

  size_t words;
  int acts;
  std::vector<Word> bits;
};

absl::StatusOr<StepOrder> StepOrder::Make(const PhysicalGraph& graph) {
  BRAID_ASSIGN_OR_RETURN(const std::vector<GroupId> topological, graph.TopologicalOrder());
  StepOrder order(&graph);
  order.node_.resize(graph.groups().size());
  for (GroupId id : topological) {
    const TaskGroup& group = graph.group(id);
    order.most_acts_ = std::max(order.most_acts_, group.acts_per_step);
    GroupNodes& nodes = order.node_[id];
    nodes.reader = nodes.writer = static_cast<int>(order.devices_.size());
    if (group.is<Exchange>()) {
      order.devices_.push_back(order.DevicesOf(graph.reg(group.inputs[0].reg).placement));
      order.reads_exchange_.push_back(true);
      ++nodes.writer;
    }
    order.devices_.push_back(order.DevicesOf(group.placement));
    order.reads_exchange_.push_back(false);
  }
  order.edges_.resize(order.devices_.size());
  order.AddEdges();
  return order;
}

int StepOrder::DevicesOf(const Placement& placement) {
  return device_lists_.try_emplace(placement, static_cast<int>(device_lists_.size())).first->second;
}

void StepOrder::AddEdges() {
  for (const TaskGroup& group : graph_->groups()) {
    for (size_t i = 0; i < group.inputs.size(); ++i) {
      AddRegisterEdges(graph_->reg(group.inputs[i].reg), group.id, static_cast<int>(i));
    }
    if (group.is<Exchange>()) AddExchangeEdges(group);
  }
}

void StepOrder::AddRegisterEdges(const Register& reg, GroupId consumer, int input) {
  const TaskGroup& producer = graph_->group(reg.producer);
  const TaskGroup& reader = graph_->group(consumer);
  // Each of a server's lanes goes on by itself.
  if (reg.is_by_lane || reader.exchange_lanes() == Exchange::Lanes::kPull) return;
  // Control edges of an exchange start at the tasks that read its source.
  const int from = reg.is_control() ? node_[producer.id].reader : node_[producer.id].writer;
  const int to = node_[consumer].reader;
  if (devices_[from] != devices_[to]) return;
  const int pieces = producer.acts_per_step / reg.period;
  const int tokens = reg.initial_tokens;
  Relation relation = Relation::kRank;
  if (reader.is<Collective>() && input == 0 && !reg.is_control()) {
    relation = RelationInto(reader);
  }
  const bool goes_by_acts = pieces == most_acts_;
  // Piece i of the producer is the consumer's piece i + tokens.
  if (tokens == 0) {
    AddEdge(to, {.from = from, .relation = relation, .is_full = pieces == 1});
  } else if (tokens <= pieces) {
    AddEdge(to, {.from = from,
                 .relation = relation,
                 .is_full = tokens == 1,
                 .is_next = true,
                 .next_acts = goes_by_acts ? tokens : 0});
  }
  // The consumer's piece i frees the slot of the producer's piece i + credits.
  const int credits = reg.slots - tokens;
  if (credits >= 1 && credits <= pieces) {
    AddEdge(from, {.from = to,
                   .is_full = credits == 1,
                   .is_next = true,
                   .next_acts = goes_by_acts ? credits : 0});
  }
}

// Every member of a collective waits for every other, unless some have nothing to give or to get.
StepOrder::Relation StepOrder::RelationInto(const TaskGroup& group) const {
  const auto& collective = std::get<Collective>(group.work);
  const Placement& placement = group.placement;
  if (collective.hierarchy_dim >= 0 && placement.hierarchy().size() > 1) return Relation::kRank;
  const auto& [part, source, destination, reduction] = collective.movement;
  const int last = placement.size() - 1;  // its part is the smallest
  switch (collective.kind) {
    case CollectiveKind::kAllReduce:
      return RegionOf(source, placement, 0).empty() ? Relation::kRank : Relation::kAll;
    case CollectiveKind::kAllGather:
      return RegionOf(source, placement, last).empty() ? Relation::kRank : Relation::kAll;
    case CollectiveKind::kReduceScatter:
      return RegionOf(destination, placement, last).empty() ? Relation::kRank : Relation::kAll;
    case CollectiveKind::kAllToAll:
      return Relation::kRank;
    case CollectiveKind::kBroadcast:
      break;
  }
  LOG(FATAL) << "collective " << group.name;
}

StepOrder::Reach StepOrder::ReachOf(const TaskGroup& exchange) {
  const Placement& source = graph_->reg(exchange.inputs[0].reg).placement;
  const Placement& destination = exchange.placement;
  const bool same_size = source.size() == destination.size();
  if (source.size() == 1) {
    return {.all = true, .rank = same_size, .gather = true, .is_one_to_one = same_size};
  }
  if (source.size() > kMaxRanks || destination.size() > kMaxRanks) return {};
  const Movement& movement = *exchange.movement();
  const auto [found, is_new] =
      reaches_.try_emplace({movement.source.ToString(), movement.destination.ToString(),
                            DevicesOf(source), DevicesOf(destination)});
  Reach& reach = found->second;
  if (!is_new) return reach;
  reach = {.all = true, .rank = same_size, .gather = true, .is_one_to_one = same_size};
  const ExchangeMoves moves(exchange, source);
  std::set<int> read;  // source ranks
  for (int rank = 0; rank < destination.size(); ++rank) {
    std::set<int> sources;
    for (const Move& move : moves.To(rank)) {
      if (!move.region.empty()) sources.insert(move.source_rank);
    }
    read.insert(sources.begin(), sources.end());
    if (static_cast<int>(sources.size()) != source.size()) reach.all = false;
    if (!sources.contains(rank)) reach.rank = false;
    if (sources != std::set<int>{rank}) reach.is_one_to_one = false;
  }
  if (static_cast<int>(read.size()) != source.size()) reach.gather = false;
  return reach;
}

void StepOrder::AddExchangeEdges(const TaskGroup& group) {
  if (group.exchange_lanes() != Exchange::Lanes::kNone) return;
  const Reach reach = ReachOf(group);
  const Register& reg = graph_->reg(group.inputs[0].reg);
  const GroupNodes& nodes = node_[group.id];
  // Once all destinations are done, so are all tasks that read the source.
  AddEdge(nodes.writer, {.from = nodes.reader,
                         .relation = reach.is_one_to_one ? Relation::kRank : Relation::kGather,
                         .is_full = group.acts_per_step == 1});
  if (!reach.all && !reach.rank && !reach.gather) return;
  if (reg.initial_tokens > 0) return;
  AddEdge(nodes.writer, {.from = node_[reg.producer].writer,
                         .relation = reach.all    ? Relation::kAll
                                     : reach.rank ? Relation::kRank
                                                  : Relation::kGather,
                         .is_full = graph_->group(reg.producer).acts_per_step == reg.period});
}

void StepOrder::Propagate(const std::vector<Constraint>& constraints, Rows& rows,
                          std::vector<Constraint>* added) const {
  // Columns are the readers in ascending order; `needs` are the constraints by writer.
  std::vector<int> column_of(devices_.size(), -1);
  for (const Constraint& c : constraints) column_of[node_[c.reader].reader] = 0;
  int columns = 0;
  for (int& column : column_of) {
    if (column == 0) column = columns++;
  }
  std::vector<std::vector<const Constraint*>> needs(devices_.size());
  if (added != nullptr) {
    for (const Constraint& c : constraints) needs[node_[c.writer].writer].push_back(&c);
    for (auto& list : needs) {
      // The latest first: what it brings along needs no edge.
      std::sort(list.begin(), list.end(), [this](const Constraint* a, const Constraint* b) {
        return node_[a->reader].reader > node_[b->reader].reader;
      });
    }
  }
  const auto insert = [&](int node, bool is_next) {
    for (const Constraint* c : needs[node]) {
      if (c->is_next() != is_next) continue;
      const int reader = node_[c->reader].reader;
      if (IsOrdered(rows, column_of[reader], *c)) continue;
      added->push_back(*c);
      const Edge edge = EdgeOf(*c);
      if (is_next) {
        rows.FollowIntoNext(edge, node, column_of[reader]);
      } else {
        rows.FollowInStep(edge, node, column_of[reader]);
      }
    }
  };
  const int nodes = static_cast<int>(devices_.size());
  std::vector<std::vector<Edge>> inserted;
  for (int v = 0; v < nodes; ++v) {
    for (const Edge& edge : edges_[v]) {
      if (!edge.is_next) rows.FollowInStep(edge, v, column_of[edge.from]);
    }
    const size_t before = added == nullptr ? 0 : added->size();
    insert(v, /*is_next=*/false);
    if (added == nullptr) continue;
    inserted.resize(nodes);
    for (size_t i = before; i < added->size(); ++i) inserted[v].push_back(EdgeOf((*added)[i]));
  }
  for (int v = 0; v < nodes; ++v) {
    // A node's acts of one step are over before those of the next, as each is before the next.
    // Of the tasks that read an exchange's source, some may be an act ahead of others.
    rows.FollowIntoNext({.from = v, .is_next = true}, v, column_of[v]);
    const Edge self = {.from = v, .is_next = true, .next_acts = 1};
    rows.FollowIntoNext(self, v, reads_exchange_[v] ? -1 : column_of[v]);
    for (const Edge& edge : edges_[v]) {
      if (edge.is_next) {
        rows.FollowIntoNext(edge, v, column_of[edge.from]);
      } else {
        rows.FollowLater(edge, v);
      }
    }
    if (added == nullptr) continue;
    for (const Edge& edge : inserted[v]) rows.FollowLater(edge, v);
    insert(v, /*is_next=*/true);
  }
}

// The control edge with which it holds. Of acts, it has a piece an act.
StepOrder::Edge StepOrder::EdgeOf(const Constraint& constraint) const {
  const int acts = graph_->group(constraint.reader).acts_per_step;
  return {
      .from = node_[constraint.reader].reader,
      .is_full =
          acts == 1 || !constraint.is_of_acts() || (constraint.is_next() && constraint.acts == 1),
      .is_next = constraint.is_next(),
      .next_acts = constraint.when == When::kNextAct && acts == most_acts_ ? constraint.acts : 0};
}

bool StepOrder::IsOrdered(const Rows& rows, int column, const Constraint& constraint) const {
  constexpr std::array<Rows::Way, 4> kWayOf = {Rows::kSameFull, Rows::kNextFull, Rows::kSame,
                                               Rows::kNextAct};
  const int reader = node_[constraint.reader].reader;
  const int writer = node_[constraint.writer].writer;
  if (constraint.is_of_acts() && graph_->group(constraint.reader).acts_per_step !=
                                     graph_->group(constraint.writer).acts_per_step) {
    return false;
  }
  const Relation needed = devices_[reader] == devices_[writer] ? Relation::kRank : Relation::kAll;
  return rows.Test(writer, kWayOf[static_cast<size_t>(constraint.when)], needed, column);
}

std::vector<bool> StepOrder::Holds(const std::vector<Constraint>& constraints) const {
  std::vector<bool> holds(constraints.size());
  // By how many acts later is next, then by reader, some readers at a time.
  std::vector<size_t> index(constraints.size());
  for (size_t i = 0; i < index.size(); ++i) index[i] = i;
  const auto acts_of = [&](size_t i) { return constraints[i].acts; };
  const auto reader_of = [&](size_t i) { return node_[constraints[i].reader].reader; };
  std::sort(index.begin(), index.end(), [&](size_t a, size_t b) {
    return std::tuple(acts_of(a), reader_of(a), a) < std::tuple(acts_of(b), reader_of(b), b);
  });
  for (size_t begin = 0; begin < index.size();) {
    std::vector<Constraint> block;
    std::vector<int> column;
    size_t end = begin;
    const int acts = acts_of(index[begin]);
    for (; end < index.size() && acts_of(index[end]) == acts; ++end) {
      const bool is_new = end == begin || reader_of(index[end]) != reader_of(index[end - 1]);
      const int next = column.empty() ? 0 : column.back() + (is_new ? 1 : 0);
      if (next == static_cast<int>(kMaxColumns)) break;
      column.push_back(next);
      block.push_back(constraints[index[end]]);
    }
    Rows rows(devices_.size(), column.back() + 1, acts);
    Propagate(block, rows, nullptr);
    for (size_t i = begin; i < end; ++i) {
      holds[index[i]] = IsOrdered(rows, column[i - begin], constraints[index[i]]);
    }
    begin = end;
  }
  return holds;
}

StepOrder::Table::Table(const StepOrder* order, const std::vector<GroupId>& readers, int acts)
    : order_(order), column_(order->node_.size(), -1) {
  std::vector<Constraint> constraints;
  std::vector<std::pair<int, GroupId>> by_node;
  for (GroupId reader : readers) {
    constraints.push_back({.reader = reader, .writer = reader});
    by_node.emplace_back(order->node_[reader].reader, reader);
  }
  std::sort(by_node.begin(), by_node.end());
  by_node.erase(std::unique(by_node.begin(), by_node.end()), by_node.end());
  for (size_t i = 0; i < by_node.size(); ++i) {
    column_[by_node[i].second] = static_cast<int>(i);
    readers_.push_back(by_node[i].second);
  }
  rows_ = std::make_unique<Rows>(order->devices_.size(), by_node.size(), acts);
  order->Propagate(constraints, *rows_, nullptr);
}
StepOrder::Table::Table(Table&&) = default;
StepOrder::Table::~Table() = default;

bool StepOrder::Table::Holds(const Constraint& constraint) const {
  DCHECK(constraint.when != When::kNextAct || constraint.acts == rows_->acts);
  return order_->IsOrdered(*rows_, column_[constraint.reader], constraint);
}

StepOrder::Table StepOrder::TableOf(const std::vector<GroupId>& readers, int acts) const {
  return Table(this, readers, acts);
}

std::vector<StepOrder::Constraint> StepOrder::Missing(
    const std::vector<Constraint>& constraints) const {
  // Those of one distance at a time: what was added for others is not seen.
  std::map<int, std::vector<Constraint>> by_acts;
  for (const Constraint& c : constraints) by_acts[c.acts].push_back(c);
  std::vector<Constraint> added;
  for (const auto& [acts, alike] : by_acts) {
    std::set<int> readers;
    for (const Constraint& c : alike) readers.insert(node_[c.reader].reader);
    Rows rows(devices_.size(), readers.size(), acts);
    Propagate(alike, rows, &added);
  }
  return added;
}

}  // namespace braid::compiler
