#include "compiler/physical/step_order.h"

#include <algorithm>
#include <memory>
#include <set>
#include <string>

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

// For every node, the readers that come before it: a bit each, by relation, by fullness, by step.
struct StepOrder::Rows {
  static constexpr size_t kRelations = 3;
  // The rows of one node: of this step, and of this or the one before.
  enum Step : size_t { kSame = 0, kNext = 1 };

  Rows(size_t nodes, size_t columns)
      : words((columns + kBits - 1) / kBits), bits(nodes * 4 * kRelations * words, 0) {}

  Word* Row(size_t node, Step step, bool is_full, Relation relation) {
    return bits.data() + (((node * 2 + step) * 2 + (is_full ? 1 : 0)) * kRelations +
                          static_cast<size_t>(relation)) *
                             words;
  }
  const Word* Row(size_t node, Step step, bool is_full, Relation relation) const {
    return const_cast<Rows*>(this)->Row(node, step, is_full, relation);
  }
  void Set(size_t node, Step step, bool is_full, Relation relation, size_t column) {
    Row(node, step, is_full, relation)[column / kBits] |= Word{1} << (column % kBits);
  }
  bool Test(size_t node, Step step, bool is_full, Relation relation, size_t column) const {
    return (Row(node, step, is_full, relation)[column / kBits] >> (column % kBits) & 1) != 0;
  }
  void Merge(Word* into, const Word* from) const {
    for (size_t w = 0; w < words; ++w) into[w] |= from[w];
  }

  // Everything before `edge.from` is also before `to`, as far as the edge's relation carries.
  void Follow(const Edge& edge, int to, Step from_step, Step to_step) {
    for (const bool is_full : {false, true}) {
      // A full edge makes a path full; any path counts as not (known to be) full.
      const bool source_is_full = is_full && !edge.is_full;
      const auto from = [&](Relation relation) {
        return Row(edge.from, from_step, source_is_full, relation);
      };
      const auto into = [&](Relation relation) { return Row(to, to_step, is_full, relation); };
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
  }

  // `column` is the edge's own start.
  void Begin(const Edge& edge, int to, Step step, size_t column) {
    for (const bool is_full : {false, true}) {
      if (is_full && !edge.is_full) continue;
      for (size_t r = 0; r <= static_cast<size_t>(edge.relation); ++r) {
        Set(to, step, is_full, static_cast<Relation>(r), column);
      }
    }
  }

  size_t words;
  std::vector<Word> bits;
};

absl::StatusOr<StepOrder> StepOrder::Make(const PhysicalGraph& graph) {
  ASSIGN_OR_RETURN(const std::vector<GroupId> topological, graph.TopologicalOrder());
  StepOrder order(&graph);
  order.node_.resize(graph.groups().size());
  for (GroupId id : topological) {
    const TaskGroup& group = graph.group(id);
    GroupNodes& nodes = order.node_[id];
    nodes.reader = nodes.writer = static_cast<int>(order.devices_.size());
    if (group.is<Exchange>()) {
      order.devices_.push_back(order.DevicesOf(graph.reg(group.inputs[0].reg).placement));
      ++nodes.writer;
    }
    order.devices_.push_back(order.DevicesOf(group.placement));
  }
  order.edges_.resize(order.devices_.size());
  order.AddEdges();
  return order;
}

int StepOrder::DevicesOf(const Placement& placement) {
  return device_lists_.try_emplace(placement, static_cast<int>(device_lists_.size())).first->second;
}

void StepOrder::AddEdge(int from, int to, Relation relation, bool is_full, bool is_next) {
  edges_[to].push_back(
      {.from = from, .relation = relation, .is_full = is_full, .is_next = is_next});
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
  // Piece i of the producer is the consumer's piece i + tokens.
  if (tokens == 0) {
    AddEdge(from, to, relation, pieces == 1, false);
  } else if (tokens == 1) {
    AddEdge(from, to, relation, true, true);
  } else if (tokens == pieces) {
    AddEdge(from, to, relation, false, true);
  }
  // The consumer's piece i frees the slot of the producer's piece i + credits.
  const int credits = reg.slots - tokens;
  if (credits == 1) {
    AddEdge(to, from, Relation::kRank, true, true);
  } else if (credits == pieces) {
    AddEdge(to, from, Relation::kRank, false, true);
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
  const Reach reach = ReachOf(group);
  const Register& reg = graph_->reg(group.inputs[0].reg);
  const GroupNodes& nodes = node_[group.id];
  // Once all destinations are done, so are all tasks that read the source.
  AddEdge(nodes.reader, nodes.writer, reach.is_one_to_one ? Relation::kRank : Relation::kGather,
          group.acts_per_step == 1, false);
  if (!reach.all && !reach.rank && !reach.gather) return;
  if (reg.initial_tokens > 0) return;
  AddEdge(node_[reg.producer].writer, nodes.writer,
          reach.all    ? Relation::kAll
          : reach.rank ? Relation::kRank
                       : Relation::kGather,
          graph_->group(reg.producer).acts_per_step == reg.period, false);
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
  const auto follow = [&](const Edge& edge, int to, Rows::Step from_step, Rows::Step to_step) {
    rows.Follow(edge, to, from_step, to_step);
    if (from_step == Rows::kSame && column_of[edge.from] >= 0) {
      rows.Begin(edge, to, to_step, column_of[edge.from]);
    }
  };
  const auto insert = [&](int node, Rows::Step step) {
    for (const Constraint* c : needs[node]) {
      if (c->next_step != (step == Rows::kNext)) continue;
      const int reader = node_[c->reader].reader;
      if (IsOrdered(rows, column_of[reader], *c)) continue;
      added->push_back(*c);
      follow({.from = reader, .is_next = c->next_step}, node, Rows::kSame, step);
    }
  };
  const int nodes = static_cast<int>(devices_.size());
  std::vector<std::vector<Edge>> inserted;
  for (int v = 0; v < nodes; ++v) {
    for (const Edge& edge : edges_[v]) {
      if (!edge.is_next) follow(edge, v, Rows::kSame, Rows::kSame);
    }
    const size_t before = added == nullptr ? 0 : added->size();
    insert(v, Rows::kSame);
    if (added == nullptr) continue;
    inserted.resize(nodes);
    for (size_t i = before; i < added->size(); ++i) {
      inserted[v].push_back({.from = node_[(*added)[i].reader].reader});
    }
  }
  for (int v = 0; v < nodes; ++v) {
    // A node's acts of one step are over before those of the next.
    const Edge self = {.from = v, .is_next = true};
    follow(self, v, Rows::kSame, Rows::kNext);
    for (const Edge& edge : edges_[v]) {
      if (edge.is_next) {
        follow(edge, v, Rows::kSame, Rows::kNext);
      } else {
        rows.Follow(edge, v, Rows::kNext, Rows::kNext);
      }
    }
    if (added == nullptr) continue;
    for (const Edge& edge : inserted[v]) rows.Follow(edge, v, Rows::kNext, Rows::kNext);
    insert(v, Rows::kNext);
  }
}

bool StepOrder::IsOrdered(const Rows& rows, int column, const Constraint& constraint) const {
  const int reader = node_[constraint.reader].reader;
  const int writer = node_[constraint.writer].writer;
  const Relation needed = devices_[reader] == devices_[writer] ? Relation::kRank : Relation::kAll;
  return rows.Test(writer, constraint.next_step ? Rows::kNext : Rows::kSame, true, needed, column);
}

std::vector<bool> StepOrder::Holds(const std::vector<Constraint>& constraints) const {
  std::vector<bool> holds(constraints.size());
  // By reader, some readers at a time.
  std::vector<size_t> index(constraints.size());
  for (size_t i = 0; i < index.size(); ++i) index[i] = i;
  const auto reader_of = [&](size_t i) { return node_[constraints[i].reader].reader; };
  std::sort(index.begin(), index.end(), [&](size_t a, size_t b) {
    return std::pair(reader_of(a), a) < std::pair(reader_of(b), b);
  });
  for (size_t begin = 0; begin < index.size();) {
    std::vector<Constraint> block;
    std::vector<int> column;
    size_t end = begin;
    for (; end < index.size(); ++end) {
      const bool is_new = end == begin || reader_of(index[end]) != reader_of(index[end - 1]);
      const int next = column.empty() ? 0 : column.back() + (is_new ? 1 : 0);
      if (next == static_cast<int>(kMaxColumns)) break;
      column.push_back(next);
      block.push_back(constraints[index[end]]);
    }
    Rows rows(devices_.size(), column.back() + 1);
    Propagate(block, rows, nullptr);
    for (size_t i = begin; i < end; ++i) {
      holds[index[i]] = IsOrdered(rows, column[i - begin], constraints[index[i]]);
    }
    begin = end;
  }
  return holds;
}

StepOrder::Table::Table(const StepOrder* order, const std::vector<GroupId>& readers)
    : order_(order), column_(order->node_.size(), -1) {
  std::vector<Constraint> constraints;
  std::vector<std::pair<int, GroupId>> by_node;
  for (GroupId reader : readers) {
    constraints.push_back({.reader = reader, .writer = reader});
    by_node.emplace_back(order->node_[reader].reader, reader);
  }
  std::sort(by_node.begin(), by_node.end());
  by_node.erase(std::unique(by_node.begin(), by_node.end()), by_node.end());
  for (size_t i = 0; i < by_node.size(); ++i) column_[by_node[i].second] = static_cast<int>(i);
  rows_ = std::make_unique<Rows>(order->devices_.size(), by_node.size());
  order->Propagate(constraints, *rows_, nullptr);
}
StepOrder::Table::Table(Table&&) = default;
StepOrder::Table::~Table() = default;

bool StepOrder::Table::Holds(const Constraint& constraint) const {
  return order_->IsOrdered(*rows_, column_[constraint.reader], constraint);
}

StepOrder::Table StepOrder::TableOf(const std::vector<GroupId>& readers) const {
  return Table(this, readers);
}

std::vector<StepOrder::Constraint> StepOrder::Missing(
    const std::vector<Constraint>& constraints) const {
  if (constraints.empty()) return {};
  std::set<int> readers;
  for (const Constraint& c : constraints) readers.insert(node_[c.reader].reader);
  Rows rows(devices_.size(), readers.size());
  std::vector<Constraint> added;
  Propagate(constraints, rows, &added);
  return added;
}

}  // namespace braid::compiler
