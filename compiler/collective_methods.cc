#include "compiler/collective_methods.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <optional>

#include "glog/logging.h"

namespace braid::compiler {
namespace {

// Up to this many bytes to read or write by all together, one member does the work of all: each of
// the others is woken once, and that costs more than the work.
constexpr int64_t kSmallBytes = int64_t{16} << 10;
constexpr int64_t kAny = std::numeric_limits<int64_t>::max();

// The first row that fits says how.
struct Row {
  bool is_on_one_node;
  std::optional<CollectiveKind> kind;  // none: any
  int64_t most_members;
  int64_t most_bytes;  // read or written by all members together
  CollectiveMethod method;
};

constexpr Row kTable[] = {
    {true, {}, kAny, kSmallBytes, {.algorithm = CollectiveAlgorithm::kDirectByOne}},
    {true, {}, kAny, kAny, {.algorithm = CollectiveAlgorithm::kDirect}},
    {false, CollectiveKind::kAllReduce, 2, kAny, {.algorithm = CollectiveAlgorithm::kExchange}},
    {false, {}, kAny, kAny, {.algorithm = CollectiveAlgorithm::kRing}},
};

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// In each of its turns around, a ring passes on up to kRingSlots chunks of every block.
int64_t TurnsOf(const CollectiveUse& use, const CollectiveMethod& method) {
  return std::max<int64_t>(1, CeilDiv(CeilDiv(use.block_bytes, method.chunk_bytes), kRingSlots));
}

}  // namespace

CollectiveUse UseOf(CollectiveKind kind, const TensorLayout& source,
                    const TensorLayout& destination, const Placement& placement, int dim) {
  CollectiveUse use{.kind = kind, .members = placement.hierarchy()[dim]};
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

CollectiveMethod MethodOf(const CollectiveUse& use) {
  const int64_t bytes = use.kind == CollectiveKind::kAllToAll ? use.bytes : use.bytes * use.members;
  for (const Row& row : kTable) {
    if (row.is_on_one_node == use.is_on_one_node && row.kind.value_or(use.kind) == use.kind &&
        use.members <= row.most_members && bytes <= row.most_bytes) {
      return row.method;
    }
  }
  LOG(FATAL) << "the last row of the table fits everything";
}

int64_t MessagesOf(const CollectiveUse& use, const CollectiveMethod& method) {
  const int64_t others = use.members - 1;
  const bool is_all_reduce = use.kind == CollectiveKind::kAllReduce;
  switch (method.algorithm) {
    case CollectiveAlgorithm::kDirectByOne:
    case CollectiveAlgorithm::kDevice:
      return 1;  // all meet
    case CollectiveAlgorithm::kDirect:
      return is_all_reduce ? 3 : 2;  // all meet before and after the work, and before they copy
    case CollectiveAlgorithm::kExchange:
      return 1;
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
