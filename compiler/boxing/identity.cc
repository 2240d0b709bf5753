#include "compiler/boxing/edge.h"
#include "compiler/boxing/rules.h"

namespace braid::compiler {
namespace {

// Every rank's bytes are the same addend of the same reduction on both sides, or no addend at all.
bool SameAddends(const BoxingEdge& edge) {
  const NdSbp source = DropUnitDims(edge.source_sbp, edge.source);
  const NdSbp destination = DropUnitDims(edge.destination_sbp, edge.destination);
  if (!source.has_partial() && !destination.has_partial()) return true;
  if (edge.source == edge.destination) {
    for (int dim = 0; dim < source.rank(); ++dim) {
      if (source[dim].is_partial() || destination[dim].is_partial()) {
        if (source[dim] != destination[dim]) return false;
      }
    }
    return true;
  }
  // Other hierarchies of the same devices: one addend a rank on both sides, or not this rule's
  // case.
  auto all_equal = [](const NdSbp& sbp, const Placement& placement) -> std::optional<Sbp> {
    std::optional<Sbp> common;
    for (int dim = 0; dim < sbp.rank(); ++dim) {
      if (placement.hierarchy()[dim] == 1) continue;
      if (common && *common != sbp[dim]) return std::nullopt;
      common = sbp[dim];
    }
    return common;
  };
  std::optional<Sbp> from = all_equal(source, edge.source);
  return from && from == all_equal(destination, edge.destination);
}

bool MatchesIdentity(const BoxingEdge& edge) {
  if (!SameDevices(edge.source, edge.destination)) return false;
  if (edge.source == edge.destination && edge.source_sbp == edge.destination_sbp) return true;
  if (edge.source_sbp.has_mirrored() || edge.destination_sbp.has_mirrored()) return false;
  return SameAddends(edge) &&
         SameBoxes(SourceLayout(edge), edge.source, DestinationLayout(edge), edge.destination);
}

BoxingCost CostOfIdentity(const BoxingEdge&, const Machine&) { return {}; }

GroupRegisterId BuildIdentity(const BoxingEdge&, const BoxingRule::Source& source, PhysicalGraph&) {
  return source.reg;
}

}  // namespace

BoxingRule IdentityRule() { return {"identity", MatchesIdentity, CostOfIdentity, BuildIdentity}; }

}  // namespace braid::compiler
