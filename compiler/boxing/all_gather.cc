#include "compiler/boxing/collective_rules.h"
#include "compiler/boxing/rules.h"

namespace braid::compiler {
namespace {

bool MatchesAllGather(const BoxingEdge& edge) {
  std::optional<CollectiveView> view = ViewAsCollective(edge);
  return view && view->from.is_split() && view->to.is_broadcast();
}

// A ring: a rank receives every block but its own, and passes on every block but the next rank's,
// so that the one with the smallest block receives, and the one before it sends, the most.
BoxingCost CostOfAllGather(const BoxingEdge& edge, const Machine& machine) {
  const CollectiveView view = *ViewAsCollective(edge);
  return SumTraffic(
      view, CollectiveKind::kAllGather, machine, AllRanksAlike(view), [&view](int rank) {
        const int64_t received = DestinationBytes(view, rank) - SourceBytes(view, rank);
        return RankTraffic{received, received};
      });
}

GroupRegisterId BuildAllGather(const BoxingEdge& edge, const BoxingRule::Source& source,
                               PhysicalGraph& graph) {
  return BuildCollective(CollectiveKind::kAllGather, "all_gather", *ViewAsCollective(edge), source,
                         graph);
}

}  // namespace

BoxingRule AllGatherRule() {
  return {"all_gather", MatchesAllGather, CostOfAllGather, BuildAllGather};
}

}  // namespace braid::compiler
