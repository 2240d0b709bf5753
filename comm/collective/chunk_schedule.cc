#include "comm/collective/chunk_schedule.h"

#include <algorithm>
#include <limits>

#include "comm/collective/broadcast_schedule.h"
#include "comm/collective/chunk_blocks.h"
#include "comm/collective/doubling_schedule.h"
#include "comm/collective/hierarchical_schedule.h"
#include "comm/collective/pairwise_schedule.h"
#include "glog/logging.h"

namespace braid {
namespace {

// How many elements belong to each member.
std::vector<int64_t> BlockCounts(const CollectiveSpec& spec, const std::vector<int64_t>& blocks) {
  if (spec.kind != CollectiveKind::kAllReduce) return spec.counts;
  if (!blocks.empty()) return blocks;
  const int64_t p = spec.members.size();
  std::vector<int64_t> counts(p);
  for (int64_t r = 0; r < p; ++r) counts[r] = EvenBlock(spec.counts[0], p, r);
  return counts;
}

// The ring has two halves of p-1 steps each. In a step every member sends one block to the next
// member and receives another from the one before.
//   reduce half, step s: member r sends block r-1-s; what it receives, plus its own part, it sends
//   in
//     step s+1; after the last step it holds the finished block r.
//   gather half, step t: member r sends block r-t, having received it in the step before.
// Chunks go in groups of `slots` chunks of every block: group by group, in it step by step, in it
// chunk by chunk. Groups stay in the cache, bound the staging (a member is never more than two
// steps of a group ahead of its successor, so 2 * slots chunks do), and cannot deadlock: the first
// item in this order that is not done has its data, its slot and its staging.
class RingSchedule {
 public:
  RingSchedule(const CollectiveSpec& spec, std::vector<int64_t> counts)
      : kind_(spec.kind),
        p_(spec.members.size()),
        rank_(spec.my_rank),
        reduce_steps_(kind_ == CollectiveKind::kAllGather ? 0 : p_ - 1),
        steps_(reduce_steps_ + (kind_ == CollectiveKind::kReduceScatter ? 0 : p_ - 1)),
        blocks_(spec, counts),
        places_(steps_ > reduce_steps_ && blocks_.whole() >= spec.place_from) {}

  ChunkSchedule Make() {
    ChunkSchedule schedule;
    schedule.slots = kRingSlots;
    SendHop send{.to = Wrap(rank_ + 1), .items = {}};
    ReceiveHop receive{.from = Wrap(rank_ - 1), .items = {}};
    if (places_) send.placed_bytes = receive.placed_bytes = blocks_.whole();
    const int64_t most = blocks_.max_chunks();
    most_chunks_ = most;
    sent_.assign(steps_ * most, -1);
    received_ = sent_;
    for (int64_t group = 0; group < most; group += kRingSlots) {
      const int64_t end = std::min<int64_t>(most, group + kRingSlots);
      for (int step = 0; step < steps_; ++step) {
        for (int64_t c = group; c < end; ++c) AddSend(step, c, send.items);
        for (int64_t c = group; c < end; ++c) AddReceive(step, c, receive.items);
      }
    }
    if (!staged_.empty()) schedule.staging_bytes = kStagingChunks * blocks_.full_chunk();
    if (!send.items.empty()) schedule.sends.push_back(std::move(send));
    if (!receive.items.empty()) schedule.receives.push_back(std::move(receive));
    if (kind_ == CollectiveKind::kAllGather) {
      schedule.copy_to = blocks_.offset(rank_);
      schedule.copy_bytes = blocks_.bytes(rank_);
    } else if (p_ == 1) {
      schedule.copy_bytes = blocks_.bytes(0);
    }
    return schedule;
  }

 private:
  static constexpr int64_t kStagingChunks = 2 * kRingSlots;

  int Wrap(int rank) const { return ((rank % p_) + p_) % p_; }
  size_t At(int step, int64_t c) const { return step * most_chunks_ + c; }

  // What `rank` sends in `step`.
  int BlockOf(int rank, int step) const {
    return step < reduce_steps_ ? Wrap(rank - 1 - step) : Wrap(rank - (step - reduce_steps_));
  }

  void AddSend(int step, int64_t c, std::vector<SendItem>& items) {
    const int block = BlockOf(rank_, step);
    if (c >= blocks_.num_chunks(block)) return;
    SendItem item;
    item.bytes = blocks_.chunk_size(block, c);
    if (step > 0) item.after_receives.items = received_[At(step - 1, c)] + 1;
    if (step == 0) {
      item.buffer = ChunkBuffer::kInput;
      item.offset = blocks_.chunk_offset(c) +
                    (kind_ == CollectiveKind::kAllGather ? 0 : blocks_.offset(block));
    } else if (kind_ == CollectiveKind::kReduceScatter) {
      item.buffer = ChunkBuffer::kStaging;
      item.offset = StagingOffset(next_staged_send_++);
      staged_send_.push_back(items.size());
    } else {
      item.buffer = ChunkBuffer::kOutput;
      item.offset = blocks_.offset(block) + blocks_.chunk_offset(c);
    }
    item.is_placed = places_ && step >= reduce_steps_;
    item.place = blocks_.offset(block) + blocks_.chunk_offset(c);
    sent_[At(step, c)] = items.size();
    items.push_back(item);
  }

  void AddReceive(int step, int64_t c, std::vector<ReceiveItem>& items) {
    const int block = BlockOf(rank_ - 1, step);
    if (c >= blocks_.num_chunks(block)) return;
    const bool is_reduction = step < reduce_steps_;
    ReceiveItem item;
    item.is_reduction = is_reduction;
    item.is_placed = places_ && !is_reduction;
    item.bytes = blocks_.chunk_size(block, c);
    item.own_offset = blocks_.offset(block) + blocks_.chunk_offset(c);
    item.target = ChunkBuffer::kOutput;
    item.offset = item.own_offset;
    if (kind_ == CollectiveKind::kReduceScatter) {
      if (step + 1 < steps_) {
        const int64_t k = staged_.size();
        item.target = ChunkBuffer::kStaging;
        item.offset = StagingOffset(k);
        // Its last user was sent before this receive can come.
        if (k >= kStagingChunks) {
          item.after_sends.items = staged_send_.at(k - kStagingChunks) + 1;
        }
        staged_.push_back(items.size());
      } else {
        item.offset = blocks_.chunk_offset(c);
      }
    } else if (!is_reduction && reduce_steps_ > 0) {
      // The finished chunk replaces the partial one that was sent from here (or, in place, the own
      // input).
      item.after_sends.items = sent_[At(Wrap(rank_ - 1 - block), c)] + 1;
    }
    received_[At(step, c)] = items.size();
    items.push_back(item);
  }

  int64_t StagingOffset(int64_t k) const { return k % kStagingChunks * blocks_.full_chunk(); }

  const CollectiveKind kind_;
  const int p_;
  const int rank_;
  const int reduce_steps_;
  const int steps_;
  const ChunkBlocks blocks_;
  const bool places_;
  int64_t most_chunks_ = 0;
  std::vector<int64_t> sent_, received_;  // item of (step, chunk), by At
  std::vector<int64_t> staged_;           // the receives that go to staging
  std::vector<int64_t> staged_send_;      // and the sends from there
  int64_t next_staged_send_ = 0;
};

// Two members send each other all they have, and both reduce it: the bytes of a ring, where nothing
// waits for what the other made of the half before.
ChunkSchedule MakeExchange(const CollectiveSpec& spec) {
  const ChunkBlocks blocks(spec, spec.counts);
  ChunkSchedule schedule;
  schedule.slots = kRingSlots;
  // Each would wait for the other to have read what it is to write over.
  schedule.lend_from = std::numeric_limits<int64_t>::max();
  SendHop send{.to = 1 - spec.my_rank, .items = {}};
  ReceiveHop receive{.from = 1 - spec.my_rank, .items = {}};
  for (int64_t c = 0; c < blocks.num_chunks(0); ++c) {
    const int64_t offset = blocks.chunk_offset(c);
    const int64_t bytes = blocks.chunk_size(0, c);
    send.items.push_back({.buffer = ChunkBuffer::kInput, .offset = offset, .bytes = bytes});
    // In place, what is written here is what was sent.
    receive.items.push_back({.is_reduction = true,
                             .is_own_first = spec.my_rank == 0,
                             .offset = offset,
                             .own_offset = offset,
                             .bytes = bytes,
                             .after_sends = {.items = c + 1}});
  }
  if (!send.items.empty()) schedule.sends.push_back(std::move(send));
  if (!receive.items.empty()) schedule.receives.push_back(std::move(receive));
  return schedule;
}

// Every member to every other, nearest successor first, so that the members do not all write to one
// at a time.
ChunkSchedule MakePairs(const CollectiveSpec& spec) {
  const int p = spec.members.size();
  const ChunkBlocks input(spec, spec.counts), output(spec, spec.receives);
  ChunkSchedule schedule;
  schedule.slots = kPairSlots;
  for (int k = 1; k < p; ++k) {
    SendHop send{.to = (spec.my_rank + k) % p, .items = {}};
    const bool places = input.bytes(send.to) >= spec.place_from;
    if (places) send.placed_bytes = input.bytes(send.to);
    for (int64_t c = 0; c < input.num_chunks(send.to); ++c) {
      send.items.push_back({.buffer = ChunkBuffer::kInput,
                            .offset = input.offset(send.to) + input.chunk_offset(c),
                            .bytes = input.chunk_size(send.to, c),
                            .is_placed = places,
                            .place = input.chunk_offset(c)});
    }
    if (!send.items.empty()) schedule.sends.push_back(std::move(send));
    ReceiveHop receive{.from = (spec.my_rank + p - k) % p, .items = {}};
    const bool is_offered = output.bytes(receive.from) >= spec.place_from;
    if (is_offered) {
      receive.placed_offset = output.offset(receive.from);
      receive.placed_bytes = output.bytes(receive.from);
    }
    for (int64_t c = 0; c < output.num_chunks(receive.from); ++c) {
      receive.items.push_back({.offset = output.offset(receive.from) + output.chunk_offset(c),
                               .bytes = output.chunk_size(receive.from, c),
                               .is_placed = is_offered});
    }
    if (!receive.items.empty()) schedule.receives.push_back(std::move(receive));
  }
  schedule.copy_from = input.offset(spec.my_rank);
  schedule.copy_to = output.offset(spec.my_rank);
  schedule.copy_bytes = input.bytes(spec.my_rank);
  return schedule;
}

ChunkSchedule MakeRingSchedule(const CollectiveSpec& spec, const std::vector<int64_t>& blocks) {
  switch (spec.kind) {
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kAllGather:
    case CollectiveKind::kReduceScatter:
      return RingSchedule(spec, BlockCounts(spec, blocks)).Make();
    case CollectiveKind::kAllToAll:
      return MakePairs(spec);
    case CollectiveKind::kBroadcast:
      break;
  }
  LOG(FATAL) << "collective " << spec.id << " does not go round a ring";
}

template <typename Hop>
int64_t Largest(const Hop& hop) {
  int64_t largest = 0;
  for (const auto& item : hop.items) largest = std::max(largest, item.bytes);
  return largest;
}

}  // namespace

int64_t LargestItem(const SendHop& hop) { return Largest(hop); }
int64_t LargestItem(const ReceiveHop& hop) { return Largest(hop); }

ChunkSchedule MakeChunkSchedule(const CollectiveSpec& spec, const std::vector<int64_t>& blocks) {
  if (spec.algorithm == CollectiveAlgorithm::kExchange) return MakeExchange(spec);
  const auto make = [&] {
    if (spec.kind == CollectiveKind::kBroadcast) return MakeBroadcastSchedule(spec);
    switch (spec.algorithm) {
      case CollectiveAlgorithm::kDoubling:
        return MakeDoublingSchedule(spec, BlockCounts(spec, blocks));
      case CollectiveAlgorithm::kPairwise:
        return MakePairwiseSchedule(spec, BlockCounts(spec, blocks));
      case CollectiveAlgorithm::kHierarchical:
        return MakeHierarchicalSchedule(spec, BlockCounts(spec, blocks));
      default:
        return MakeRingSchedule(spec, blocks);
    }
  };
  ChunkSchedule schedule = make();
  schedule.lend_from = spec.lend_from;
  return schedule;
}

}  // namespace braid
