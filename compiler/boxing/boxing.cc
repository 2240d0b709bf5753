#include "compiler/boxing/boxing.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "compiler/boxing/edge.h"
#include "glog/logging.h"

namespace braid::compiler {
namespace {

// The most layouts of one placement that a search looks at.
constexpr size_t kMaxCandidates = 64;

// A layout on the source's or the destination's placement.
struct Node {
  bool at_destination = false;
  NdSbp sbp;
};

// How long a route takes, then how many groups it has, then what it moves.
struct Distance {
  int64_t ticks = std::numeric_limits<int64_t>::max();
  int steps = 0;
  int64_t bytes = 0;

  Distance Add(const BoxingStep& step) const {
    return {ticks + step.ticks, steps + 1, bytes + step.cost.total_bytes};
  }
  friend auto operator<=>(const Distance&, const Distance&) = default;
};

void AddUnique(std::vector<Sbp>& kinds, const Sbp& kind) {
  if (kind.is_mirrored()) return;  // where it is not yet, it cannot come to be
  if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) kinds.push_back(kind);
}

// An axis along which work can be shared evenly: the first that both placements divide, else that
// the destination divides, else the largest.
std::optional<Sbp> SpreadKind(const BoxingEdge& edge) {
  Shape shape = edge.type.shape;
  if (shape.rank() == 0) return std::nullopt;
  if (edge.micro_batch_sbp.is_split()) shape[edge.micro_batch_sbp.axis] /= edge.micro_batches;
  auto score = [&](int axis) {
    const bool source = shape[axis] % edge.source.size() == 0;
    const bool destination = shape[axis] % edge.destination.size() == 0;
    return std::tuple(source && destination, destination, source && destination ? 0 : shape[axis]);
  };
  int best = 0;
  for (int axis = 1; axis < shape.rank(); ++axis) {
    if (score(axis) > score(best)) best = axis;
  }
  return sbp::S(best);
}

bool MixesPartials(const NdSbp& sbp) {
  std::optional<Sbp> partial;
  for (const Sbp& kind : sbp.dims()) {
    if (!kind.is_partial()) continue;
    if (partial && *partial != kind) return true;
    partial = kind;
  }
  return false;
}

// Layouts of a placement that a route may pass through. `own` is the end of the route that lies on
// this placement, `other` the other end if it has as many dimensions.
std::vector<NdSbp> Candidates(const Placement& placement, const NdSbp& own, const NdSbp& other,
                              const std::vector<Sbp>& kinds) {
  std::vector<std::vector<Sbp>> options(own.rank());
  size_t product = 1;
  for (int dim = 0; dim < own.rank(); ++dim) {
    options[dim] = placement.hierarchy()[dim] == 1 ? std::vector<Sbp>{sbp::B} : kinds;
    if (own[dim].is_mirrored()) options[dim] = {own[dim]};  // it never is anything else
    product *= options[dim].size();
  }
  if (product > kMaxCandidates) {
    product = 1;
    for (int dim = 0; dim < own.rank(); ++dim) {
      if (placement.hierarchy()[dim] == 1) continue;
      options[dim] = {own[dim]};
      if (product <= kMaxCandidates) AddUnique(options[dim], sbp::B);
      if (product <= kMaxCandidates / 2 && other.rank() == own.rank()) {
        AddUnique(options[dim], other[dim]);
      }
      product *= options[dim].size();
    }
  }
  std::vector<NdSbp> candidates = {NdSbp::Uniform(own.rank(), sbp::B)};
  for (int dim = 0; dim < own.rank(); ++dim) {
    std::vector<NdSbp> finer;
    for (const NdSbp& prefix : candidates) {
      for (const Sbp& kind : options[dim]) {
        finer.push_back(prefix);
        finer.back()[dim] = kind;
      }
    }
    candidates = std::move(finer);
  }
  std::erase_if(candidates, MixesPartials);
  return candidates;
}

// Dijkstra's search over layouts.
class Search {
 public:
  Search(const BoxingEdge& edge, const Machine& machine)
      : edge_(edge), machine_(machine), one_placement_(edge.source == edge.destination) {
    edge_.source_sbp = DropUnitDims(edge.source_sbp, edge.source);
    edge_.destination_sbp = DropUnitDims(edge.destination_sbp, edge.destination);
    CHECK(!MixesPartials(edge_.source_sbp)) << edge_.source_sbp.ToString();
    CHECK(!MixesPartials(edge_.destination_sbp)) << edge_.destination_sbp.ToString();
    std::vector<Sbp> kinds = {sbp::B};
    for (const Sbp& kind : edge_.source_sbp.dims()) AddUnique(kinds, kind);
    for (const Sbp& kind : edge_.destination_sbp.dims()) AddUnique(kinds, kind);
    if (std::optional<Sbp> spread = SpreadKind(edge_)) AddUnique(kinds, *spread);
    nodes_ = {{false, edge_.source_sbp}, {!one_placement_, edge_.destination_sbp}};
    AddNodes(false, Candidates(edge_.source, edge_.source_sbp, edge_.destination_sbp, kinds));
    if (!one_placement_) {
      AddNodes(true, Candidates(edge_.destination, edge_.destination_sbp, edge_.source_sbp, kinds));
    }
  }

  std::vector<BoxingStep> Run() {
    const size_t n = nodes_.size();
    std::vector<Distance> distance(n);
    std::vector<bool> done(n, false);
    std::vector<std::pair<size_t, BoxingStep>> came(n);
    distance[kSource] = {.ticks = 0};
    while (true) {
      std::optional<size_t> next;
      for (size_t i = 0; i < n; ++i) {
        if (done[i] || distance[i] == Distance()) continue;
        if (!next || distance[i] < distance[*next]) next = i;
      }
      CHECK(next) << "slice_exchange reaches every layout, and B those with mirrored dimensions";
      if (*next == kDestination) break;
      done[*next] = true;
      for (size_t i = 0; i < n; ++i) {
        if (done[i]) continue;
        std::optional<BoxingStep> step = BestStep(*next, i);
        if (!step) continue;
        Distance reached = distance[*next].Add(*step);
        if (reached < distance[i]) {
          distance[i] = reached;
          came[i] = {*next, *std::move(step)};
        }
      }
    }
    std::vector<BoxingStep> route;
    for (size_t at = kDestination; at != kSource; at = came[at].first) {
      route.push_back(came[at].second);
    }
    std::reverse(route.begin(), route.end());
    std::erase_if(route, [](const BoxingStep& step) { return step.rule == "identity"; });
    return route;
  }

 private:
  static constexpr size_t kSource = 0, kDestination = 1;

  void AddNodes(bool at_destination, const std::vector<NdSbp>& layouts) {
    for (const NdSbp& sbp : layouts) {
      const bool known = std::any_of(nodes_.begin(), nodes_.end(), [&](const Node& node) {
        return node.at_destination == at_destination && node.sbp == sbp;
      });
      if (!known) nodes_.push_back({at_destination, sbp});
    }
  }

  BoxingEdge EdgeBetween(size_t from, size_t to) const {
    BoxingEdge edge = edge_;
    if (nodes_[from].at_destination) edge.source = edge_.destination;
    if (!nodes_[to].at_destination) edge.destination = edge_.source;
    edge.source_sbp = nodes_[from].sbp;
    edge.destination_sbp = nodes_[to].sbp;
    return edge;
  }

  // An exchange takes longest to price. Between placements it may stand anywhere if they are flat;
  // else at one end of the route, or between equal layouts. On one placement only as the whole.
  bool TriesExchange(size_t from, size_t to) const {
    const bool ends = from == kSource && to == kDestination;
    if (nodes_[from].at_destination == nodes_[to].at_destination) return ends && one_placement_;
    const bool flat = nodes_[from].sbp.rank() == 1 && nodes_[to].sbp.rank() == 1;
    return flat || from == kSource || to == kDestination || nodes_[from].sbp == nodes_[to].sbp;
  }

  std::optional<BoxingStep> BestStep(size_t from, size_t to) const {
    if (nodes_[from].at_destination && !nodes_[to].at_destination) return std::nullopt;
    const BoxingEdge edge = EdgeBetween(from, to);
    std::optional<BoxingStep> best;
    for (const BoxingRule& rule : BoxingRules()) {
      const bool is_exchange = &rule == &BoxingRules().back();
      if (is_exchange && !TriesExchange(from, to)) continue;
      // Where a collective does it, it does it with the fewest bytes, and bucket_collectives may
      // yet spare it its messages.
      if (is_exchange && best) continue;
      if (!rule.matches(edge)) continue;
      const BoxingStep step = StepBy(rule, edge);
      if (!best || Distance{0}.Add(step) < Distance{0}.Add(*best)) best = step;
    }
    return best;
  }

  BoxingStep StepBy(const BoxingRule& rule, const BoxingEdge& edge) const {
    const BoxingCost cost = rule.cost(edge, machine_);
    const int64_t messages = machine_.is_known ? cost.messages : cost.least_messages;
    return {rule.name, edge, cost, machine_.TransferTicks(cost.link, messages, cost.busiest_bytes)};
  }

  BoxingEdge edge_;
  const Machine& machine_;
  bool one_placement_;
  std::vector<Node> nodes_;
};

}  // namespace

int BoxingPlanner::PlacementId(const Placement& placement) {
  auto found = std::find(placements_.begin(), placements_.end(), placement);
  if (found == placements_.end()) found = placements_.insert(found, placement);
  return static_cast<int>(found - placements_.begin());
}

const std::vector<BoxingStep>& BoxingPlanner::Route(const BoxingEdge& edge) {
  const int source = PlacementId(edge.source);
  const int destination = PlacementId(edge.destination);
  std::string key = absl::StrCat(edge.type.ToString(), " ", edge.micro_batch_sbp.ToString(), "/",
                                 edge.micro_batches, " ", source, " ", edge.source_sbp.ToString(),
                                 " ", destination, " ", edge.destination_sbp.ToString());
  auto [it, is_new] = routes_.try_emplace(std::move(key));
  if (is_new && !BoxingRules().front().matches(edge)) it->second = Search(edge, machine_).Run();
  return it->second;
}

std::pair<GroupRegisterId, int> BuildRoute(std::span<const BoxingStep> route,
                                           const BoxingRule::Source& source, PhysicalGraph& graph) {
  BoxingRule::Source at = source;
  for (const BoxingStep& step : route) {
    auto rules = BoxingRules();
    auto rule = std::find_if(rules.begin(), rules.end(),
                             [&](const BoxingRule& rule) { return rule.name == step.rule; });
    CHECK(rule != rules.end()) << std::string(step.rule);
    GroupRegisterId reg = rule->build(step.edge, at, graph);
    if (reg != at.reg) at.part = 0;
    at.reg = reg;
  }
  return {at.reg, at.part};
}

}  // namespace braid::compiler
