#include "compiler/boxing/collective_rules.h"
#include "compiler/boxing/rules.h"

namespace braid::compiler {
namespace {

bool MatchesAllReduce(const BoxingEdge& edge) {
  std::optional<CollectiveView> view = ViewAsCollective(edge);
  return view && view->from.is_partial() && view->to.is_broadcast();
}

// A ring that scatters the sums, then gathers them: a rank sends all chunks but its own, then all
// but the next rank's.
BoxingCost CostOfAllReduce(const BoxingEdge& edge, const Machine& machine) {
  const CollectiveView view = *ViewAsCollective(edge);
  const auto element = static_cast<int64_t>(SizeOf(view.source.type.dtype));
  const bool even_chunks = SourceBytes(view, 0) / element % view.members == 0;
  return SumTraffic(
      view, CollectiveKind::kAllReduce, machine, AllRanksAlike(view) && even_chunks,
      [&view, element](int rank) {
        const int64_t n = SourceBytes(view, rank) / element;
        const int64_t member = view.placement.CoordinateOf(rank)[view.dim];
        const int64_t own = SplitEvenly(n, view.members, member).size;
        const int64_t next = SplitEvenly(n, view.members, (member + 1) % view.members).size;
        const int64_t before =
            SplitEvenly(n, view.members, (member + view.members - 1) % view.members).size;
        return RankTraffic{.sent = (2 * n - own - next) * element,
                           .received = (2 * n - own - before) * element};
      });
}

GroupRegisterId BuildAllReduce(const BoxingEdge& edge, const BoxingRule::Source& source,
                               PhysicalGraph& graph) {
  return BuildCollective(CollectiveKind::kAllReduce, "all_reduce", *ViewAsCollective(edge), source,
                         graph);
}

}  // namespace

BoxingRule AllReduceRule() {
  return {"all_reduce", MatchesAllReduce, CostOfAllReduce, BuildAllReduce};
}

}  // namespace braid::compiler
