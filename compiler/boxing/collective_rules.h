// What the four collective rules share. A collective acts on contiguous blocks in rank order; its
// group says so in logical terms, and plan/expand derives the numbers:
//
//   members  hierarchy_dim == -1: all ranks of `placement`, in order. Otherwise the ranks that
//            differ from this one in that dimension only, in its order. g of them.
//   input    the input register's part `part`, BytesOf(source, placement, rank) bytes; a bucket's
//            parts together are one vector.
//   output   the output register's part, BytesOf(destination, placement, rank) bytes.
//   counts   elements; `s` and `d` are members:
//     all_reduce      SplitEvenly(n, g, d).size, where n is the number of elements of the input:
//                     how the vector is cut for reducing; source and destination boxes are equal
//     all_gather      |RegionOf(source, s)|; block s of the output is the input of s
//     reduce_scatter  |RegionOf(destination, d)|; block d of the input goes to d
//     all_to_all      s * g + d: |Intersect(RegionOf(source, s), RegionOf(destination, d))|; inputs
//                     are blocks by d, outputs blocks by s
//   reduction  what all_reduce and reduce_scatter do to addends.
//
// Where blocks cut an axis that is not the outermost of the local box (axes of size 1 aside), they
// are not contiguous in a dense box. Then a block_pack stands before (reduce_scatter, all_to_all)
// or a block_unpack after (all_gather, all_to_all), compute groups with {axis, parts = g}. The
// register between holds the local box of its layout with its bytes permuted: block 0 dense, block
// 1 dense,
// ..., so its size, and all counts, are those of the dense box.
#pragma once

#include <algorithm>
#include <optional>
#include <string_view>

#include "compiler/boxing/boxing.h"

namespace braid::compiler {

// An edge on one placement in which one dimension changes its kind, or all change it alike.
struct CollectiveView {
  Placement placement;  // dimensions of size 1 gone, neighbours of equal kinds merged
  TensorLayout source, destination;
  int dim = 0;  // of `placement`: the one that changes
  Sbp from, to;
  int64_t members = 1;  // in each group that acts together
};

// Nothing if the edge is no such thing, or if a later dimension splits the axis of the changed one:
// then a group's blocks are not neighbours in the logical tensor.
std::optional<CollectiveView> ViewAsCollective(const BoxingEdge& edge);

int64_t SourceBytes(const CollectiveView& view, int rank);
int64_t DestinationBytes(const CollectiveView& view, int rank);
// All ranks hold equally much before, and equally much after.
bool AllRanksAlike(const CollectiveView& view);

struct RankTraffic {
  int64_t sent = 0, received = 0;  // bytes
};

// Messages and links of a collective; no bytes yet.
BoxingCost CollectiveCost(CollectiveKind kind, const CollectiveView& view, const Machine& machine);

// The whole cost: adds up what `traffic_of(rank)` says; asks for rank 0 only where `all_alike`.
template <class TrafficOf>
BoxingCost SumTraffic(const CollectiveView& view, CollectiveKind kind, const Machine& machine,
                      bool all_alike, TrafficOf traffic_of) {
  const int size = view.placement.size();
  const int distinct = all_alike ? 1 : size;
  BoxingCost cost = CollectiveCost(kind, view, machine);
  for (int rank = 0; rank < distinct; ++rank) {
    const RankTraffic traffic = traffic_of(rank);
    cost.total_bytes += traffic.sent * (size / distinct);
    cost.busiest_bytes = std::max({cost.busiest_bytes, traffic.sent, traffic.received});
  }
  return cost;
}

// The collective itself, between the packing and the unpacking that it needs.
GroupRegisterId BuildCollective(CollectiveKind kind, std::string_view name,
                                const CollectiveView& view, const BoxingRule::Source& source,
                                PhysicalGraph& graph);

}  // namespace braid::compiler
