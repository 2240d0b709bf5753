#include "compiler/boxing/collective_rules.h"
#include "compiler/boxing/rules.h"

namespace braid::compiler {
namespace {

bool MatchesReduceScatter(const BoxingEdge& edge) {
  std::optional<CollectiveView> view = ViewAsCollective(edge);
  return view && view->from.is_partial() && view->to.is_split();
}

// A ring: a rank sends every block but its own, summed up so far.
BoxingCost CostOfReduceScatter(const BoxingEdge& edge, const Machine& machine) {
  const CollectiveView view = *ViewAsCollective(edge);
  return SumTraffic(view, CollectiveKind::kReduceScatter, machine, AllRanksAlike(view),
                    [&view](int rank) {
                      const int64_t sent = SourceBytes(view, rank) - DestinationBytes(view, rank);
                      return RankTraffic{sent, sent};
                    });
}

GroupRegisterId BuildReduceScatter(const BoxingEdge& edge, const BoxingRule::Source& source,
                                   PhysicalGraph& graph) {
  return BuildCollective(CollectiveKind::kReduceScatter, "reduce_scatter", *ViewAsCollective(edge),
                         source, graph);
}

}  // namespace

BoxingRule ReduceScatterRule() {
  return {"reduce_scatter", MatchesReduceScatter, CostOfReduceScatter, BuildReduceScatter};
}

}  // namespace braid::compiler
