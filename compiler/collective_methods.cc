#include "compiler/collective_methods.h"

#include <algorithm>
#include <bit>

#include "glog/logging.h"
#include "runtime/base/members_by_host.h"

namespace braid::compiler {
namespace {

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// In each of its turns around, a ring passes on up to kRingSlots chunks of every block.
int64_t TurnsOf(const CollectiveUse& use, const CollectiveMethod& method) {
  return std::max<int64_t>(1, CeilDiv(CeilDiv(use.block_bytes, method.chunk_bytes), kRingSlots));
}

// Around the hosts, and before that and after it within a host; or from host to host.
int64_t HierarchicalMessages(const CollectiveUse& use, const CollectiveMethod& method) {
  if (use.kind == CollectiveKind::kBroadcast) return use.members - 1;
  const bool is_all_reduce = use.kind == CollectiveKind::kAllReduce;
  const int64_t steps = (is_all_reduce ? 2 : 1) * (use.hosts - 1);
  return TurnsOf(use, method) * (steps - 1) + 1 + (is_all_reduce ? 2 : 1);
}

}  // namespace

CollectiveUse UseOf(CollectiveKind kind, const TensorLayout& source,
                    const TensorLayout& destination, const Placement& placement, int dim) {
  CollectiveUse use{.kind = kind, .members = placement.hierarchy()[dim], .is_planned = true};
  TensorLayout whole = source;
  whole.sbp[dim] = sbp::B;
  use.bytes = BytesOf(whole, placement, 0);
  const auto element = static_cast<int64_t>(SizeOf(source.type.dtype));
  switch (kind) {
    case CollectiveKind::kAllReduce:
      use.block_bytes = SplitEvenly(use.bytes / element, use.members, 0).size * element;
      break;
    case CollectiveKind::kAllGather:
      use.block_bytes = BytesOf(source, placement, 0);
      break;
    case CollectiveKind::kReduceScatter:
      use.block_bytes = BytesOf(destination, placement, 0);
      break;
    case CollectiveKind::kAllToAll:
    case CollectiveKind::kBroadcast:
      break;
  }
  return use;
}

int64_t HostsAlong(const Machine& machine, const Placement& placement, int dim) {
  int64_t most = 1;
  for (int rank = 0; rank < placement.size(); ++rank) {
    std::vector<int64_t> coordinate = placement.CoordinateOf(rank);
    if (coordinate[dim] != 0) continue;
    std::vector<uint32_t> hosts;
    for (; coordinate[dim] < placement.hierarchy()[dim]; ++coordinate[dim]) {
      hosts.push_back(machine.HostOf(placement.device(placement.RankOf(coordinate)).node));
    }
    const int64_t alike = NumHostsAlike(hosts);
    if (alike == 1) return 1;
    most = std::max(most, alike);
  }
  return most;
}

int64_t MessagesOf(const CollectiveUse& use, const CollectiveMethod& method) {
  const int64_t others = use.members - 1;
  const bool is_all_reduce = use.kind == CollectiveKind::kAllReduce;
  switch (method.algorithm) {
    case CollectiveAlgorithm::kDirectByOne:
    case CollectiveAlgorithm::kDevice:
      return 1;  // all meet
    case CollectiveAlgorithm::kDirect:
      return 2;  // all meet before and after the work
    case CollectiveAlgorithm::kExchange:
      return 1;
    case CollectiveAlgorithm::kPairwise:
      return is_all_reduce ? 2 : 1;
    case CollectiveAlgorithm::kDoubling:
      return LeastMessagesOf(use.kind, use.members);
    case CollectiveAlgorithm::kHierarchical:
      return HierarchicalMessages(use, method);
    case CollectiveAlgorithm::kRing: {
      if (use.kind == CollectiveKind::kAllToAll) return others;
      const int64_t steps = is_all_reduce ? 2 * others : others;
      return steps == 0 ? 0 : TurnsOf(use, method) * (steps - 1) + 1;
    }
  }
  LOG(FATAL) << "no such algorithm: " << static_cast<int>(method.algorithm);
}

int64_t LeastMessagesOf(CollectiveKind kind, int64_t members) {
  if (kind == CollectiveKind::kAllToAll) return members - 1;
  return std::bit_width(static_cast<uint64_t>(members - 1));
}

}  // namespace braid::compiler
