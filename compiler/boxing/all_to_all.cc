#include "compiler/boxing/collective_rules.h"
#include "compiler/boxing/rules.h"

namespace braid::compiler {
namespace {

bool MatchesAllToAll(const BoxingEdge& edge) {
  std::optional<CollectiveView> view = ViewAsCollective(edge);
  return view && view->from.is_split() && view->to.is_split();
}

// A rank sends all of its box but what it keeps, straight to whom it is for.
BoxingCost CostOfAllToAll(const BoxingEdge& edge, const Machine& machine) {
  const CollectiveView view = *ViewAsCollective(edge);
  return SumTraffic(
      view, CollectiveKind::kAllToAll, machine, AllRanksAlike(view), [&view](int rank) {
        const Region source = RegionOf(view.source, view.placement, rank);
        const Region destination = RegionOf(view.destination, view.placement, rank);
        const int64_t kept = Intersect(source, destination).size.num_elements() *
                             static_cast<int64_t>(SizeOf(view.source.type.dtype));
        return RankTraffic{SourceBytes(view, rank) - kept, DestinationBytes(view, rank) - kept};
      });
}

GroupRegisterId BuildAllToAll(const BoxingEdge& edge, const BoxingRule::Source& source,
                              PhysicalGraph& graph) {
  return BuildCollective(CollectiveKind::kAllToAll, "all_to_all", *ViewAsCollective(edge), source,
                         graph);
}

}  // namespace

BoxingRule AllToAllRule() { return {"all_to_all", MatchesAllToAll, CostOfAllToAll, BuildAllToAll}; }

}  // namespace braid::compiler
