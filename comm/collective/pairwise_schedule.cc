#include "comm/collective/pairwise_schedule.h"

#include <utility>
#include <vector>

#include "comm/collective/chunk_blocks.h"

namespace braid {
namespace {

// First every member sends each other one's block of what it has, and adds up its own block in the
// order of a ring: the parts of the members after it, in their order, then its own. Then it sends
// the sum to all. What a sum is written over in place, its sender has added already.
class PairwiseSchedule {
 public:
  PairwiseSchedule(const CollectiveSpec& spec, const std::vector<int64_t>& counts)
      : p_(static_cast<int>(spec.members.size())),
        rank_(spec.my_rank),
        place_from_(spec.place_from),
        gathers_(spec.kind == CollectiveKind::kAllReduce),
        blocks_(spec, counts),
        sum_at_(gathers_ ? blocks_.offset(rank_) : 0) {}

  ChunkSchedule Make() const {
    ChunkSchedule schedule;
    schedule.slots = kPairSlots;
    if (p_ == 1) schedule.copy_bytes = blocks_.bytes(0);
    if (p_ > 2) schedule.staging_bytes = blocks_.bytes(rank_);
    for (int k = 1; k < p_; ++k) {
      ReceiveHop receive = Receive(k);
      if (!receive.items.empty()) schedule.receives.push_back(std::move(receive));
      SendHop send = Send((rank_ + p_ - k) % p_);
      if (!send.items.empty()) schedule.sends.push_back(std::move(send));
    }
    return schedule;
  }

 private:
  bool Places(int block) const { return gathers_ && blocks_.bytes(block) >= place_from_; }

  // Of the k-th member after this one, a chunk of this one's block: it is added to what came
  // before, in staging, and of the last to come, the own part to that.
  ReceiveItem SumItem(int k, int64_t c) const {
    const int64_t chunk = blocks_.chunk_offset(c), bytes = blocks_.chunk_size(rank_, c);
    const int64_t own = blocks_.offset(rank_) + chunk;
    if (p_ == 2) {
      return {.is_reduction = true, .offset = sum_at_ + chunk, .own_offset = own, .bytes = bytes};
    }
    ReceiveItem item{.is_reduction = k > 1,
                     .is_own_first = true,
                     .target = ChunkBuffer::kStaging,
                     .offset = chunk,
                     .own = ChunkBuffer::kStaging,
                     .own_offset = chunk,
                     .bytes = bytes};
    if (k > 1) item.after_receives = {.hop = k - 2, .items = c + 1};
    if (k == p_ - 1) {
      item.target = ChunkBuffer::kOutput;
      item.offset = sum_at_ + chunk;
      item.last_offset = own;
    }
    return item;
  }

  // Of the k-th member after this one. If there is something to add up, no hop is without items, so
  // the k-th is number k - 1.
  ReceiveHop Receive(int k) const {
    ReceiveHop hop{.from = (rank_ + k) % p_, .items = {}};
    for (int64_t c = 0; c < blocks_.num_chunks(rank_); ++c) hop.items.push_back(SumItem(k, c));
    if (!gathers_) return hop;
    if (Places(hop.from)) {
      hop.placed_offset = blocks_.offset(hop.from);
      hop.placed_bytes = blocks_.bytes(hop.from);
    }
    for (int64_t c = 0; c < blocks_.num_chunks(hop.from); ++c) {
      hop.items.push_back({.offset = blocks_.offset(hop.from) + blocks_.chunk_offset(c),
                           .bytes = blocks_.chunk_size(hop.from, c),
                           .is_placed = Places(hop.from)});
    }
    return hop;
  }

  SendHop Send(int to) const {
    SendHop hop{.to = to, .items = {}};
    for (int64_t c = 0; c < blocks_.num_chunks(to); ++c) {
      hop.items.push_back({.buffer = ChunkBuffer::kInput,
                           .offset = blocks_.offset(to) + blocks_.chunk_offset(c),
                           .bytes = blocks_.chunk_size(to, c)});
    }
    if (!gathers_) return hop;
    if (Places(rank_)) hop.placed_bytes = blocks_.bytes(rank_);
    for (int64_t c = 0; c < blocks_.num_chunks(rank_); ++c) {
      hop.items.push_back({.buffer = ChunkBuffer::kOutput,
                           .offset = sum_at_ + blocks_.chunk_offset(c),
                           .bytes = blocks_.chunk_size(rank_, c),
                           .after_receives = {.hop = p_ - 2, .items = c + 1},
                           .is_placed = Places(rank_),
                           .place = blocks_.chunk_offset(c)});
    }
    return hop;
  }

  const int p_;
  const int rank_;
  const int64_t place_from_;
  const bool gathers_;
  const ChunkBlocks blocks_;
  const int64_t sum_at_;  // in the output
};

}  // namespace

ChunkSchedule MakePairwiseSchedule(const CollectiveSpec& spec, const std::vector<int64_t>& counts) {
  return PairwiseSchedule(spec, counts).Make();
}

}  // namespace braid
