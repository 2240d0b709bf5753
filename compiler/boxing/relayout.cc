#include "compiler/boxing/edge.h"
#include "compiler/boxing/rules.h"

namespace braid::compiler {
namespace {

// What a dimension's change of kind asks of a rank beyond keeping its own bytes.
enum class Change {
  kNone,
  kCut,      // B -> S: less is kept. S -> P: zeros around
  kOnce,     // B -> P: one rank keeps it, the others hold zeros
  kForeign,  // not possible with a rank's own bytes
};

Change ChangeOf(const Sbp& from, const Sbp& to) {
  if (from == to) return Change::kNone;
  if (from.is_broadcast() && to.is_split()) return Change::kCut;
  if (from.is_split() && to == sbp::P) return Change::kCut;
  if (from.is_broadcast() && to == sbp::P) return Change::kOnce;
  // The largest of equal values is that value: all ranks may keep it.
  if (from.is_broadcast() && to.is_partial()) return Change::kCut;
  return Change::kForeign;
}

// Splits keep their meaning only if no later dimension splits the same axis before and after: its
// parts would be parts of something else.
bool AxisIsSplitLater(const BoxingEdge& edge, int dim, int axis) {
  for (int later = dim + 1; later < edge.source_sbp.rank(); ++later) {
    if (edge.source.hierarchy()[later] == 1) continue;
    if (edge.source_sbp[later] == sbp::S(axis) && edge.destination_sbp[later] == sbp::S(axis)) {
      return true;
    }
  }
  return false;
}

// Which of S -> P and B -> P occur. A kernel does one of them: after S -> P every rank keeps its
// bytes, after B -> P one does.
struct Kinds {
  bool possible = true;
  bool any = false;
  bool split_to_partial = false;
  bool once = false;
};

Kinds KindsOf(const BoxingEdge& edge) {
  Kinds kinds;
  for (int dim = 0; dim < edge.source_sbp.rank(); ++dim) {
    if (edge.source.hierarchy()[dim] == 1) continue;
    const Sbp& from = edge.source_sbp[dim];
    const Sbp& to = edge.destination_sbp[dim];
    const Change change = ChangeOf(from, to);
    if (change == Change::kNone) continue;
    kinds.any = true;
    if (change == Change::kForeign) kinds.possible = false;
    if (change == Change::kOnce) kinds.once = true;
    if (from.is_split() && to.is_partial()) kinds.split_to_partial = true;
    if (from.is_split() && AxisIsSplitLater(edge, dim, from.axis)) kinds.possible = false;
    if (to.is_split() && AxisIsSplitLater(edge, dim, to.axis)) kinds.possible = false;
  }
  if (kinds.once && kinds.split_to_partial) kinds.possible = false;
  return kinds;
}

bool MatchesRelayout(const BoxingEdge& edge) {
  if (edge.source != edge.destination) return false;
  const Kinds kinds = KindsOf(edge);
  return kinds.possible && kinds.any;
}

BoxingCost CostOfRelayout(const BoxingEdge&, const Machine&) { return {}; }

// The kernel fills the output's box with zeros and copies what the input's box shares with it; with
// once=true only on ranks whose KernelSpec::contributes is set.
GroupRegisterId BuildRelayout(const BoxingEdge& edge, const BoxingRule::Source& source,
                              PhysicalGraph& graph) {
  return AddKernelGroup("relayout", {{"once", KindsOf(edge).once}}, SourceLayout(edge),
                        DestinationLayout(edge), edge.source, source, graph);
}

}  // namespace

BoxingRule RelayoutRule() { return {"relayout", MatchesRelayout, CostOfRelayout, BuildRelayout}; }

}  // namespace braid::compiler
