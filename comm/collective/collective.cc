#include "comm/collective/collective.h"

#include <limits>

#include "absl/strings/str_format.h"
#include "comm/collective/collective_algorithm.h"

namespace braid {
namespace {

bool Reduces(CollectiveKind kind) {
  return kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kReduceScatter;
}

absl::Status WrongSpec(const CollectiveSpec& spec, std::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrFormat("collective %d (%s): %s", spec.id, CollectiveKindName(spec.kind), what));
}

}  // namespace

std::vector<uint32_t> HostsOf(const CollectiveSpec& spec) {
  std::vector<uint32_t> hosts;
  for (const Member& member : spec.members) hosts.push_back(member.host);
  return hosts;
}

size_t NumCounts(CollectiveKind kind, size_t members) {
  switch (kind) {
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kBroadcast:
      return 1;
    case CollectiveKind::kAllGather:
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kAllToAll:
      return members;
  }
  return 0;
}

absl::Status CheckCollective(const CollectiveSpec& spec) {
  const size_t p = spec.members.size();
  if (CollectiveKindName(spec.kind) == "unknown") {
    return WrongSpec(spec, absl::StrFormat("kind %d is unknown", static_cast<int>(spec.kind)));
  }
  if (p == 0 || p > std::numeric_limits<uint16_t>::max()) {
    return WrongSpec(spec, absl::StrFormat("%d members, must be 1 to 65535", p));
  }
  if (spec.my_rank < 0 || static_cast<size_t>(spec.my_rank) >= p) {
    return WrongSpec(spec, absl::StrFormat("rank %d of %d members", spec.my_rank, p));
  }
  if (spec.element_size <= 0) {
    return WrongSpec(spec, absl::StrFormat("element_size is %d", spec.element_size));
  }
  if (spec.chunk_bytes <= 0) {
    return WrongSpec(spec, absl::StrFormat("chunk_bytes is %d", spec.chunk_bytes));
  }
  const size_t blocks = NumCounts(spec.kind, p);
  if (spec.counts.size() != blocks) {
    return WrongSpec(spec, absl::StrFormat("%d counts for %d members, must be %d",
                                           spec.counts.size(), p, blocks));
  }
  const size_t receives = spec.kind == CollectiveKind::kAllToAll ? p : 0;
  if (spec.receives.size() != receives) {
    return WrongSpec(spec, absl::StrFormat("%d counts of what it receives, must be %d",
                                           spec.receives.size(), receives));
  }
  const int64_t most = std::numeric_limits<int64_t>::max() / 4 / spec.element_size;
  for (const std::vector<int64_t>* counts : {&spec.counts, &spec.receives}) {
    int64_t sum = 0;
    for (const int64_t count : *counts) {
      if (count < 0 || count > most - sum) {
        return WrongSpec(spec, absl::StrFormat("count %d is negative or too large", count));
      }
      sum += count;
    }
  }
  if (receives > 0 && spec.counts[spec.my_rank] != spec.receives[spec.my_rank]) {
    return WrongSpec(
        spec, absl::StrFormat("member %d sends itself %d elements and receives %d", spec.my_rank,
                              spec.counts[spec.my_rank], spec.receives[spec.my_rank]));
  }
  if (Reduces(spec.kind) && !spec.reduce) return WrongSpec(spec, "has no reduce function");
  if (spec.kind == CollectiveKind::kBroadcast &&
      (spec.root < 0 || static_cast<size_t>(spec.root) >= p)) {
    return WrongSpec(spec, absl::StrFormat("root %d of %d members", spec.root, p));
  }
  const CollectiveAlgorithmEntry* entry = FindCollectiveAlgorithm(spec.algorithm);
  if (!entry) {
    return WrongSpec(
        spec, absl::StrFormat("algorithm %d is not in the list", static_cast<int>(spec.algorithm)));
  }
  return entry->check(spec);
}

int64_t CollectiveMemoryBytes(const CollectiveSpec& spec) {
  const CollectiveAlgorithmEntry* entry = FindCollectiveAlgorithm(spec.algorithm);
  return entry ? entry->memory_bytes(spec) : 0;
}

}  // namespace braid
