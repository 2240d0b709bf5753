#include "absl/strings/str_cat.h"
#include "compiler/boxing/edge.h"
#include "compiler/boxing/rules.h"
#include "compiler/plan/exchange_moves.h"

namespace braid::compiler {
namespace {

TaskGroup ExchangeOf(const BoxingEdge& edge) {
  TaskGroup group;
  group.stream = StreamKind::kTransfer;
  group.placement = edge.destination;
  Movement& movement = group.work.emplace<Exchange>().movement;
  movement.source = SourceLayout(edge);
  movement.destination = DestinationLayout(edge);
  for (int dim = 0; dim < edge.source_sbp.rank(); ++dim) {
    if (edge.source.hierarchy()[dim] == 1 || !edge.source_sbp[dim].is_partial()) continue;
    movement.reduction = edge.source_sbp[dim].kind;
  }
  return group;
}

// Values that each device has for itself are no copies that could be had elsewhere.
bool MatchesSliceExchange(const BoxingEdge& edge) {
  return !edge.source_sbp.has_mirrored() && !edge.destination_sbp.has_mirrored();
}

BoxingCost CostOfSliceExchange(const BoxingEdge& edge, const Machine& machine) {
  const TaskGroup exchange = ExchangeOf(edge);
  const ExchangeTraffic traffic = ExchangeMoves(exchange, edge.source).Traffic();
  return {.total_bytes = traffic.total_bytes,
          .busiest_bytes = traffic.busiest_bytes,
          .messages = traffic.messages,
          .least_messages = traffic.messages,
          .link = machine.LinkAcross(edge.source, edge.destination)};
}

GroupRegisterId BuildSliceExchange(const BoxingEdge& edge, const BoxingRule::Source& source,
                                   PhysicalGraph& graph) {
  TaskGroup group = ExchangeOf(edge);
  group.name = absl::StrCat(std::string(source.name), ".slice_exchange");
  Movement& movement = *group.movement();
  movement.part = source.part;
  // The register may see the same devices under another hierarchy than the edge does (a merged
  // collective made it): its own layout, on its own placement, names the same boxes and addends.
  const Register& reg = graph.reg(source.reg);
  if (reg.placement != edge.source) movement.source = reg.parts[source.part].layout;
  TensorLayout layout = movement.destination;
  return AddBoxingGroup(std::move(group), edge.destination, std::move(layout), source, graph);
}

}  // namespace

BoxingRule SliceExchangeRule() {
  return {"slice_exchange", MatchesSliceExchange, CostOfSliceExchange, BuildSliceExchange};
}

}  // namespace braid::compiler
