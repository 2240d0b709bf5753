#include "runtime/base/collective_kind.h"

namespace braid {

std::string_view CollectiveKindName(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kAllReduce:
      return "all_reduce";
    case CollectiveKind::kAllGather:
      return "all_gather";
    case CollectiveKind::kReduceScatter:
      return "reduce_scatter";
    case CollectiveKind::kAllToAll:
      return "all_to_all";
    case CollectiveKind::kBroadcast:
      return "broadcast";
  }
  return "unknown";
}

bool SendsChunks(CollectiveAlgorithm algorithm) {
  switch (algorithm) {
    case CollectiveAlgorithm::kRing:
    case CollectiveAlgorithm::kExchange:
    case CollectiveAlgorithm::kHierarchical:
    case CollectiveAlgorithm::kDoubling:
    case CollectiveAlgorithm::kPairwise:
      return true;
    case CollectiveAlgorithm::kDirect:
    case CollectiveAlgorithm::kDirectByOne:
    case CollectiveAlgorithm::kDevice:
      return false;
  }
  return false;
}

std::string_view CollectiveAlgorithmName(CollectiveAlgorithm algorithm) {
  switch (algorithm) {
    case CollectiveAlgorithm::kDirect:
      return "direct";
    case CollectiveAlgorithm::kRing:
      return "ring";
    case CollectiveAlgorithm::kDirectByOne:
      return "direct_by_one";
    case CollectiveAlgorithm::kExchange:
      return "exchange";
    case CollectiveAlgorithm::kDevice:
      return "device";
    case CollectiveAlgorithm::kHierarchical:
      return "hierarchical";
    case CollectiveAlgorithm::kDoubling:
      return "doubling";
    case CollectiveAlgorithm::kPairwise:
      return "pairwise";
  }
  return "unknown";
}

}  // namespace braid
