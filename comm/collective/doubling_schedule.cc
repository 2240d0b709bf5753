#include "comm/collective/doubling_schedule.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>
#include <vector>

#include "comm/collective/chunk_blocks.h"
#include "glog/logging.h"

namespace braid {
namespace {

int StepsOf(int members) { return std::bit_width(static_cast<unsigned>(members - 1)); }

void AddHops(SendHop send, ReceiveHop receive, ChunkSchedule& schedule) {
  if (!send.items.empty()) schedule.sends.push_back(std::move(send));
  if (!receive.items.empty()) schedule.receives.push_back(std::move(receive));
}

// The blocks of members `first`, `first` + 1, ... (modulo their number): where they lie one after
// another in the whole, as pieces of a chunk at most. Calls piece(offset, bytes).
template <typename F>
void ForPieces(const ChunkBlocks& blocks, int members, int first, int number, F piece) {
  for (const auto& [begin, end] : {std::pair(first, std::min(first + number, members)),
                                   std::pair(0, std::max(0, first + number - members))}) {
    if (begin >= end) continue;
    const int64_t stop = blocks.offset(end - 1) + blocks.bytes(end - 1);
    for (int64_t at = blocks.offset(begin); at < stop; at += blocks.full_chunk()) {
      piece(at, std::min(blocks.full_chunk(), stop - at));
    }
  }
}

// Where a member's blocks are gathered.
struct Gathering {
  ChunkBuffer buffer = ChunkBuffer::kOutput;
  ChunkBlocks blocks;
};

// Dissemination (Bruck et al., "Efficient algorithms for all-to-all communications in multiport
// message-passing systems", 1997): in step k each gives the one 2^k before it the blocks that it
// has, its own and those of the 2^k - 1 after it, of the last step only as many as are missing
// there. What comes in a step is worked in when all of the step before has been.
ChunkSchedule MakeGathering(const CollectiveSpec& spec, const Gathering& to) {
  const int p = static_cast<int>(spec.members.size());
  const int rank = spec.my_rank;
  ChunkSchedule schedule;
  schedule.slots = kRingSlots;
  ItemsBefore before;  // all that came in earlier steps
  for (int step = 0; step < StepsOf(p); ++step) {
    const int distance = 1 << step;
    const int number = std::min(distance, p - distance);
    SendHop send{.to = (rank + p - distance) % p, .items = {}};
    ReceiveHop receive{.from = (rank + distance) % p, .items = {}};
    ForPieces(to.blocks, p, rank, number, [&](int64_t at, int64_t bytes) {
      SendItem item{.buffer = to.buffer, .offset = at, .bytes = bytes};
      item.after_receives = before;
      if (before.items == 0) {  // then there is nothing but the own block
        item.buffer = ChunkBuffer::kInput;
        item.offset -= to.blocks.offset(rank);
      }
      send.items.push_back(item);
    });
    ForPieces(to.blocks, p, receive.from, number, [&](int64_t at, int64_t bytes) {
      receive.items.push_back(
          {.target = to.buffer, .offset = at, .bytes = bytes, .after_receives = before});
    });
    const auto items = static_cast<int64_t>(receive.items.size());
    AddHops(std::move(send), std::move(receive), schedule);
    if (items > 0) before = {.hop = static_cast<int>(schedule.receives.size()) - 1, .items = items};
  }
  schedule.copy_target = to.buffer;
  schedule.copy_to = to.blocks.offset(rank);
  schedule.copy_bytes = to.blocks.bytes(rank);
  return schedule;
}

// All members gather what all of them have, and each sums it up by itself, in the order that a ring
// has; of a reduce_scatter its own block.
ChunkSchedule MakeGatheredSum(const CollectiveSpec& spec, const std::vector<int64_t>& counts) {
  const int p = static_cast<int>(spec.members.size());
  if (p == 1) return MakeGathering(spec, {.blocks = ChunkBlocks(spec, counts)});
  const int64_t whole = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  const Gathering to{.buffer = ChunkBuffer::kStaging,
                     .blocks = ChunkBlocks(spec, std::vector<int64_t>(p, whole))};
  ChunkSchedule schedule = MakeGathering(spec, to);
  schedule.staging_bytes = to.blocks.whole();
  const ChunkBlocks summed(spec, counts);
  const bool scatters = spec.kind == CollectiveKind::kReduceScatter;
  for (int block = 0; block < p; ++block) {
    const int64_t at = summed.offset(block), output_at = scatters ? 0 : at;
    if (summed.bytes(block) == 0 || (scatters && block != spec.my_rank)) continue;
    for (int i = 2; i <= p; ++i) {
      LocalSum sum{.offset = output_at, .bytes = summed.bytes(block)};
      sum.first = i == 2 ? ChunkBuffer::kStaging : ChunkBuffer::kOutput;
      sum.first_offset = i == 2 ? to.blocks.offset((block + 1) % p) + at : output_at;
      sum.second_offset = to.blocks.offset((block + i) % p) + at;
      schedule.sums.push_back(sum);
    }
  }
  return schedule;
}

}  // namespace

ChunkSchedule MakeDoublingSchedule(const CollectiveSpec& spec, const std::vector<int64_t>& counts) {
  switch (spec.kind) {
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kReduceScatter:
      return MakeGatheredSum(spec, counts);
    case CollectiveKind::kAllGather:
      return MakeGathering(spec, {.blocks = ChunkBlocks(spec, counts)});
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kAllToAll:
      break;
  }
  LOG(FATAL) << "collective " << spec.id << " does not go in doubling steps";
}

}  // namespace braid
