#include "comm/collective/broadcast_schedule.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "comm/collective/chunk_blocks.h"

namespace braid {
namespace {

// The members from the root on: in the order of ranks, or host after host.
std::vector<int> OrderFromRoot(const CollectiveSpec& spec) {
  const int p = static_cast<int>(spec.members.size());
  std::vector<int> order(p);
  for (int i = 0; i < p; ++i) order[i] = (spec.root + i) % p;
  if (spec.algorithm != CollectiveAlgorithm::kHierarchical) return order;
  std::map<uint32_t, int> first;  // of each host
  for (int i = 0; i < p; ++i) first.try_emplace(spec.members[order[i]].host, i);
  std::ranges::stable_sort(order, {}, [&](int r) { return first.at(spec.members[r].host); });
  return order;
}

// Places in that order.
struct Neighbours {
  int giver = -1;  // none: the root
  std::vector<int> takers;
};

Neighbours InChain(int place, int members) {
  Neighbours in{.giver = place - 1, .takers = {}};
  if (place + 1 < members) in.takers.push_back(place + 1);
  return in;
}

// In step k each of the first 2^k members gives to the one 2^k after it.
Neighbours InTree(int place, int members) {
  const auto step = static_cast<int>(std::bit_floor(static_cast<unsigned>(place)));
  Neighbours in{.giver = place == 0 ? -1 : place - step, .takers = {}};
  for (int distance = std::max(1, 2 * step); place + distance < members; distance *= 2) {
    in.takers.push_back(place + distance);
  }
  return in;
}

}  // namespace

ChunkSchedule MakeBroadcastSchedule(const CollectiveSpec& spec) {
  const std::vector<int> order = OrderFromRoot(spec);
  const auto place = static_cast<int>(std::ranges::find(order, spec.my_rank) - order.begin());
  const auto members = static_cast<int>(order.size());
  const bool is_root = place == 0;
  const Neighbours in = spec.algorithm == CollectiveAlgorithm::kDoubling ? InTree(place, members)
                                                                         : InChain(place, members);
  const ChunkBlocks blocks(spec, spec.counts);
  const bool places = blocks.whole() >= spec.place_from;
  const int64_t placed_bytes = places ? blocks.whole() : 0;
  ChunkSchedule schedule;
  schedule.slots = kRingSlots;
  if (is_root) schedule.copy_bytes = blocks.whole();
  if (blocks.num_chunks(0) == 0) return schedule;
  if (!is_root) {
    ReceiveHop receive{.from = order[in.giver], .items = {}, .placed_bytes = placed_bytes};
    for (int64_t c = 0; c < blocks.num_chunks(0); ++c) {
      receive.items.push_back({.offset = blocks.chunk_offset(c),
                               .bytes = blocks.chunk_size(0, c),
                               .is_placed = places});
    }
    schedule.receives.push_back(std::move(receive));
  }
  for (const int taker : in.takers) {
    SendHop send{.to = order[taker], .items = {}, .placed_bytes = placed_bytes};
    for (int64_t c = 0; c < blocks.num_chunks(0); ++c) {
      send.items.push_back({.buffer = is_root ? ChunkBuffer::kInput : ChunkBuffer::kOutput,
                            .offset = blocks.chunk_offset(c),
                            .bytes = blocks.chunk_size(0, c),
                            .after_receives = {.items = is_root ? 0 : c + 1},
                            .is_placed = places,
                            .place = blocks.chunk_offset(c)});
    }
    schedule.sends.push_back(std::move(send));
  }
  return schedule;
}

}  // namespace braid
