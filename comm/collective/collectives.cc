// The list of collective algorithms: a new one is a file and a line here.
#include "comm/collective/collective_algorithm.h"
#include "comm/collective/direct_collective.h"
#include "comm/collective/ring_collective.h"

namespace braid {

const CollectiveAlgorithmEntry* FindCollectiveAlgorithm(CollectiveAlgorithm algorithm) {
  static constexpr CollectiveAlgorithmEntry kEntries[] = {
      {CollectiveAlgorithm::kDirect, CheckDirect, DirectMemoryBytes, MakeDirect},
      {CollectiveAlgorithm::kDirectByOne, CheckDirect, DirectMemoryBytes, MakeDirect},
      {CollectiveAlgorithm::kDevice, CheckDirect, DirectMemoryBytes, MakeDirect},
      {CollectiveAlgorithm::kRing, CheckRing, RingMemoryBytes, MakeRing},
      {CollectiveAlgorithm::kExchange, CheckExchange, RingMemoryBytes, MakeRing},
      {CollectiveAlgorithm::kDoubling, CheckDoubling, RingMemoryBytes, MakeRing},
      {CollectiveAlgorithm::kPairwise, CheckPairwise, RingMemoryBytes, MakeRing},
      {CollectiveAlgorithm::kHierarchical, CheckHierarchical, RingMemoryBytes, MakeRing},
  };
  for (const CollectiveAlgorithmEntry& entry : kEntries) {
    if (entry.algorithm == algorithm) return &entry;
  }
  return nullptr;
}

}  // namespace braid
