#include "runtime/base/collective_table.h"

#include <algorithm>

#include "glog/logging.h"

namespace braid {
namespace {

// Up to this many bytes to read or write by all together, one member does the work of all: the
// others meet once only, and a second meeting costs more than the work.
constexpr int64_t kSmallBytes = int64_t{16} << 10;
// Up to this many bytes, two members send each other all they have, and both reduce it. Of more, a
// ring is faster, in which each reduces a half and copies the other: a tenth at 1 MB and above,
// over TCP on loopback.
constexpr int64_t kExchangedBytes = int64_t{256} << 10;

// Among more members, the number of messages decides up to this many bytes: a ring has one after
// another for each member. The limit is lower for sums, because all members then get everything.
// A plan keeps so much memory for each of its sums; among many members even a sum of a few bytes
// reaches it, so there it is lower for plans.
constexpr int64_t kFewMembers = 8;
constexpr int64_t kDoubledSumBytes = int64_t{128} << 10;
constexpr int64_t kPlannedSumBytesOfMany = int64_t{8} << 10;
constexpr int64_t kDoubledBytes = int64_t{256} << 10;
// Of a few members' sums the two messages of each pair take less than a ring's steps, up to this
// many bytes of all. It stages what it sums, which a plan would keep for each of its sums.
constexpr int64_t kMostPairwiseMembers = 4;
constexpr int64_t kPairwiseSumBytes = int64_t{2} << 20;

constexpr CollectiveMethod By(CollectiveAlgorithm algorithm) { return {.algorithm = algorithm}; }

using enum CollectiveAlgorithm;
using enum MemberSpread;

constexpr CollectiveRow kTable[] = {
    {kProcess, {}, kAnyNumber, kSmallBytes, By(kDirectByOne)},
    {kProcess, {}, kAnyNumber, kAnyNumber, By(kDirect)},
    {kProcesses, {}, 1, kAnyNumber, By(kRing)},
    {kProcesses, CollectiveKind::kAllReduce, 2, kExchangedBytes, By(kExchange)},
    {kProcesses, {}, 2, kAnyNumber, By(kRing)},
    {kProcesses, CollectiveKind::kAllReduce, kFewMembers, kDoubledSumBytes, By(kDoubling)},
    {kProcesses, CollectiveKind::kAllReduce, kAnyNumber, kPlannedSumBytesOfMany, By(kDoubling)},
    {kProcesses, CollectiveKind::kAllReduce, kAnyNumber, kDoubledSumBytes, By(kDoubling),
     /*is_for_plans=*/false},
    {kProcesses, CollectiveKind::kAllReduce, kMostPairwiseMembers, kPairwiseSumBytes, By(kPairwise),
     /*is_for_plans=*/false},
    {kProcesses, CollectiveKind::kReduceScatter, kAnyNumber, kDoubledSumBytes, By(kDoubling),
     /*is_for_plans=*/false},
    {kProcesses, CollectiveKind::kAllGather, kAnyNumber, kDoubledBytes, By(kDoubling)},
    {kProcesses, CollectiveKind::kBroadcast, kAnyNumber, kDoubledBytes, By(kDoubling)},
    {kProcesses, {}, kAnyNumber, kAnyNumber, By(kRing)},
    {kHosts, CollectiveKind::kAllToAll, kAnyNumber, kAnyNumber, By(kRing)},
    {kHosts, {}, kAnyNumber, kAnyNumber, By(kHierarchical)},
};

}  // namespace

std::string_view MemberSpreadName(MemberSpread spread) {
  switch (spread) {
    case MemberSpread::kProcess:
      return "one process";
    case MemberSpread::kProcesses:
      return "processes";
    case MemberSpread::kHosts:
      return "hosts";
  }
  return "unknown";
}

bool CollectiveRow::Fits(const CollectiveUse& use) const {
  const int64_t bytes = use.kind == CollectiveKind::kAllToAll ? use.bytes : use.bytes * use.members;
  return spread == use.spread && kind.value_or(use.kind) == use.kind &&
         use.members <= most_members && bytes <= most_bytes && (is_for_plans || !use.is_planned);
}

std::span<const CollectiveRow> CollectiveTable() { return kTable; }

CollectiveMethod MethodOf(const CollectiveUse& use) {
  const auto* const row =
      std::ranges::find_if(kTable, [&](const CollectiveRow& row) { return row.Fits(use); });
  CHECK(row != std::end(kTable)) << "the last row of each spread fits everything";
  return row->method;
}

}  // namespace braid
