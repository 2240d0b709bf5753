#include "comm/collective/hierarchical_schedule.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "comm/collective/chunk_blocks.h"
#include "runtime/base/members_by_host.h"

namespace braid {
namespace {

// Member (h, l) is the l-th of host h. What belongs to the members (0, l), (1, l), ... is part l of
// the vector. There are three stages:
//   gathering addends: (h, l) gets part l of all members of its host, and adds it to its own in the
//     order l, l+1, ..., l-1: the host's sums;
//   the ring of part l, between (0, l), (1, l), ...: as RingSchedule, of the hosts' sums. In the
//     end (h, l) has all of part l, of a reduce_scatter its block;
//   handing out: (h, l) gives part l to the members of its host.
// A reduce_scatter ends with the ring, an all_gather begins with it.
//
// Chunks go in groups of kRingSlots of every block. While the ring has one group, addends of the
// next are gathered and the one before is handed out: the order of all items is by turns, in turn t
// the addends of group t, the ring's items of group t-1, and what is handed out of group t-2. All
// that an item waits for comes before it in this order (so does, with slots, what frees its slot),
// and so it cannot deadlock.
class HierarchicalSchedule {
 public:
  HierarchicalSchedule(const CollectiveSpec& spec, const std::vector<int64_t>& counts)
      : kind_(spec.kind),
        hosts_(MembersByHost(HostsOf(spec))),
        num_hosts_(static_cast<int>(hosts_.size())),
        num_locals_(static_cast<int>(hosts_.front().size())),
        blocks_(spec, counts),
        places_(kind_ != CollectiveKind::kReduceScatter && blocks_.whole() >= spec.place_from),
        reduce_steps_(kind_ == CollectiveKind::kAllGather ? 0 : num_hosts_ - 1),
        steps_(reduce_steps_ + (kind_ == CollectiveKind::kReduceScatter ? 0 : num_hosts_ - 1)),
        ring_(num_locals_ - 1),
        most_(blocks_.max_chunks()) {
    for (int h = 0; h < num_hosts_; ++h) {
      const auto found = std::ranges::find(hosts_[h], spec.my_rank);
      if (found == hosts_[h].end()) continue;
      host_ = h;
      local_ = static_cast<int>(found - hosts_[h].begin());
    }
    for (const int64_t count : counts) {
      staged_chunk_ = std::max(staged_chunk_, count * spec.element_size);
    }
    staged_chunk_ = std::min(staged_chunk_, blocks_.full_chunk());
    addend_sent_.assign(num_locals_ * num_hosts_ * most_, 0);
    addend_received_ = addend_sent_;
    ring_sent_.assign(steps_ * most_, 0);
    ring_received_ = ring_sent_;
  }

  ChunkSchedule Make() {
    MakeHops();
    const int64_t groups = (most_ + kRingSlots - 1) / kRingSlots;
    for (int64_t turn = 0; turn < groups + 2; ++turn) {
      if (turn < groups && Reduces()) AddAddends(turn);
      if (turn >= 1 && turn - 1 < groups) AddRing(turn - 1);
      if (turn >= 2 && kind_ != CollectiveKind::kReduceScatter) AddHandingOut(turn - 2);
    }
    if (kind_ == CollectiveKind::kReduceScatter) {
      schedule_.staging_bytes = kStagedGroups * StagedPerGroup() * staged_chunk_;
    }
    if (kind_ == CollectiveKind::kAllGather) {
      schedule_.copy_to = blocks_.offset(Rank(host_, local_));
      schedule_.copy_bytes = blocks_.bytes(Rank(host_, local_));
    }
    LeaveOutEmptyHops();
    return std::move(schedule_);
  }

 private:
  // Of a reduce_scatter, whose sums of other blocks are nowhere else. What uses a group's place
  // next comes two turns later: the ring is done with it.
  static constexpr int64_t kStagedGroups = 2;

  static int Modulo(int a, int n) { return ((a % n) + n) % n; }

  bool Reduces() const { return reduce_steps_ > 0; }
  int Host(int h) const { return Modulo(h, num_hosts_); }
  // Which is a block's number, too.
  int Rank(int h, int l) const { return hosts_[Host(h)][Modulo(l, num_locals_)]; }
  // The i-th after this member on its host, from 1.
  int Neighbour(int i) const { return Modulo(local_ + i, num_locals_); }
  int64_t StagedPerGroup() const { return (num_hosts_ - 1) * int64_t{kRingSlots}; }

  int64_t& AddendSent(int i, int h, int64_t c) {
    return addend_sent_[(i * num_hosts_ + h) * most_ + c];
  }
  int64_t& AddendReceived(int i, int h, int64_t c) {
    return addend_received_[(i * num_hosts_ + h) * most_ + c];
  }
  int64_t& RingSent(int step, int64_t c) { return ring_sent_[step * most_ + c]; }
  int64_t& RingReceived(int step, int64_t c) { return ring_received_[step * most_ + c]; }
  // The hops to the neighbours, in their order, then that of the ring.
  std::vector<SendItem>& Sends(int hop) { return schedule_.sends[hop].items; }
  std::vector<ReceiveItem>& Receives(int hop) { return schedule_.receives[hop].items; }

  void MakeHops() {
    schedule_.slots = kRingSlots;
    for (int i = 1; i < num_locals_; ++i) {
      const int rank = Rank(host_, Neighbour(i));
      schedule_.sends.push_back({.to = rank, .items = {}});
      schedule_.receives.push_back({.from = rank, .items = {}});
    }
    schedule_.sends.push_back({.to = Rank(host_ + 1, local_), .items = {}});
    schedule_.receives.push_back({.from = Rank(host_ - 1, local_), .items = {}});
    if (!places_) return;
    for (SendHop& hop : schedule_.sends) hop.placed_bytes = blocks_.whole();
    for (ReceiveHop& hop : schedule_.receives) hop.placed_bytes = blocks_.whole();
  }

  // Calls item(c) for the chunks of a block in a group.
  template <typename F>
  void ForChunks(int block, int64_t group, F item) const {
    const int64_t begin = group * kRingSlots;
    const int64_t end = std::min<int64_t>(blocks_.num_chunks(block), begin + kRingSlots);
    for (int64_t c = begin; c < end; ++c) item(c);
  }

  // Where the sum of chunk c of block (h, l) is made.
  std::pair<ChunkBuffer, int64_t> SumOf(int h, int64_t c) const {
    if (kind_ == CollectiveKind::kAllReduce) {
      return {ChunkBuffer::kOutput, blocks_.offset(Rank(h, local_)) + blocks_.chunk_offset(c)};
    }
    if (h == host_) return {ChunkBuffer::kOutput, blocks_.chunk_offset(c)};
    const int64_t other = Modulo(h - host_ - 1, num_hosts_);  // 0 to num_hosts_ - 2
    const int64_t group = c / kRingSlots % kStagedGroups;
    const int64_t place = group * StagedPerGroup() + other * kRingSlots + c % kRingSlots;
    return {ChunkBuffer::kStaging, place * staged_chunk_};
  }

  // In the order in which the ring uses the blocks.
  void AddAddends(int64_t group) {
    for (int s = 0; s < num_hosts_; ++s) {
      const int h = Host(host_ - 1 - s);
      for (int i = 1; i < num_locals_; ++i) {
        const int block = Rank(h, Neighbour(i));
        ForChunks(block, group, [&](int64_t c) {
          AddendSent(i, h, c) = Sends(i - 1).size();
          Sends(i - 1).push_back({.buffer = ChunkBuffer::kInput,
                                  .offset = blocks_.offset(block) + blocks_.chunk_offset(c),
                                  .bytes = blocks_.chunk_size(block, c)});
        });
      }
      const int own = Rank(h, local_);
      ForChunks(own, group, [&](int64_t c) {
        for (int i = 1; i < num_locals_; ++i) AddAddend(i, h, own, c);
      });
    }
  }

  void AddAddend(int i, int h, int block, int64_t c) {
    const auto [target, offset] = SumOf(h, c);
    ReceiveItem item{
        .is_reduction = true, .is_own_first = true, .target = target, .offset = offset};
    item.bytes = blocks_.chunk_size(block, c);
    if (i == 1) {
      item.own_offset = blocks_.offset(block) + blocks_.chunk_offset(c);
    } else {
      item.own = target;
      item.own_offset = offset;
      item.after_receives = {.hop = i - 2, .items = AddendReceived(i - 1, h, c) + 1};
    }
    const int64_t before = c - kStagedGroups * kRingSlots;
    if (target == ChunkBuffer::kStaging && before >= 0 && i == 1) {
      item.after_sends = {.hop = ring_, .items = RingSent(Host(host_ - 1 - h), before) + 1};
    }
    AddendReceived(i, h, c) = Receives(i - 1).size();
    Receives(i - 1).push_back(item);
  }

  // The host whose block host `h` sends in `step`.
  int BlockOf(int h, int step) const {
    return step < reduce_steps_ ? Host(h - 1 - step) : Host(h - (step - reduce_steps_));
  }

  void AddRing(int64_t group) {
    for (int step = 0; step < steps_; ++step) {
      const int sent = BlockOf(host_, step), received = BlockOf(host_ - 1, step);
      ForChunks(Rank(sent, local_), group, [&](int64_t c) { AddRingSend(step, sent, c); });
      ForChunks(Rank(received, local_), group,
                [&](int64_t c) { AddRingReceive(step, received, c); });
    }
  }

  // All addends of this chunk are in its sum.
  ItemsBefore AfterAddends(int h, int64_t c) {
    return {.hop = ring_ - 1, .items = AddendReceived(num_locals_ - 1, h, c) + 1};
  }

  void AddRingSend(int step, int h, int64_t c) {
    const int block = Rank(h, local_);
    const int64_t place = blocks_.offset(block) + blocks_.chunk_offset(c);
    SendItem item{.buffer = ChunkBuffer::kOutput, .offset = place};
    item.bytes = blocks_.chunk_size(block, c);
    if (step < reduce_steps_) std::tie(item.buffer, item.offset) = SumOf(h, c);
    if (step > 0) {
      item.after_receives = {.hop = ring_, .items = RingReceived(step - 1, c) + 1};
    } else if (Reduces()) {
      item.after_receives = AfterAddends(h, c);
    } else {
      item.buffer = ChunkBuffer::kInput;
      item.offset = blocks_.chunk_offset(c);
    }
    item.is_placed = places_ && step >= reduce_steps_;
    item.place = place;
    RingSent(step, c) = Sends(ring_).size();
    Sends(ring_).push_back(item);
  }

  void AddRingReceive(int step, int h, int64_t c) {
    const int block = Rank(h, local_);
    ReceiveItem item;
    item.bytes = blocks_.chunk_size(block, c);
    if (step < reduce_steps_) {
      const auto [target, offset] = SumOf(h, c);
      item.is_reduction = true;
      item.target = item.own = target;
      item.offset = item.own_offset = offset;
      item.after_receives = AfterAddends(h, c);
    } else {
      item.offset = blocks_.offset(block) + blocks_.chunk_offset(c);
      item.is_placed = places_;
      // The finished chunk replaces the partial one that was sent from here.
      if (Reduces()) {
        item.after_sends = {.hop = ring_, .items = RingSent(Host(host_ - 1 - h), c) + 1};
      }
    }
    RingReceived(step, c) = Receives(ring_).size();
    Receives(ring_).push_back(item);
  }

  // In the order in which the ring finishes the blocks.
  void AddHandingOut(int64_t group) {
    for (int t = 0; t < num_hosts_; ++t) {
      const int h = Host(host_ - t);
      const int own = Rank(h, local_);
      ForChunks(own, group, [&](int64_t c) {
        SendItem item{.buffer = ChunkBuffer::kOutput};
        item.bytes = blocks_.chunk_size(own, c);
        item.place = item.offset = blocks_.offset(own) + blocks_.chunk_offset(c);
        item.is_placed = places_;
        if (const int step = reduce_steps_ + t - 1; step >= 0) {
          item.after_receives = {.hop = ring_, .items = RingReceived(step, c) + 1};
        } else {
          item.buffer = ChunkBuffer::kInput;
          item.offset = blocks_.chunk_offset(c);
        }
        for (int i = 1; i < num_locals_; ++i) Sends(i - 1).push_back(item);
      });
      for (int i = 1; i < num_locals_; ++i) {
        const int block = Rank(h, Neighbour(i));
        ForChunks(block, group, [&](int64_t c) {
          ReceiveItem item{.offset = blocks_.offset(block) + blocks_.chunk_offset(c)};
          item.bytes = blocks_.chunk_size(block, c);
          item.is_placed = places_;
          // In place, it replaces the addend that was sent from here.
          if (Reduces()) {
            item.after_sends = {.hop = i - 1, .items = AddendSent(i, h, c) + 1};
          }
          Receives(i - 1).push_back(item);
        });
      }
    }
  }

  void LeaveOutEmptyHops() {
    // New numbers; nothing waits for items of a hop that has none.
    const auto leave_out = [](auto& hops) {
      std::vector<int> numbers;
      int next = 0;
      for (const auto& hop : hops) numbers.push_back(hop.items.empty() ? 0 : next++);
      std::erase_if(hops, [](const auto& hop) { return hop.items.empty(); });
      return numbers;
    };
    const std::vector<int> sends = leave_out(schedule_.sends);
    const std::vector<int> receives = leave_out(schedule_.receives);
    for (SendHop& hop : schedule_.sends) {
      for (SendItem& item : hop.items) item.after_receives.hop = receives[item.after_receives.hop];
    }
    for (ReceiveHop& hop : schedule_.receives) {
      for (ReceiveItem& item : hop.items) {
        item.after_receives.hop = receives[item.after_receives.hop];
        item.after_sends.hop = sends[item.after_sends.hop];
      }
    }
  }

  const CollectiveKind kind_;
  const std::vector<std::vector<int>> hosts_;  // the ranks of each
  const int num_hosts_;
  const int num_locals_;
  const ChunkBlocks blocks_;
  const bool places_;
  const int reduce_steps_;
  const int steps_;
  const int ring_;      // which hop is the ring's
  const int64_t most_;  // chunks of a block
  int host_ = 0;
  int local_ = 0;
  int64_t staged_chunk_ = 1;
  ChunkSchedule schedule_;
  // Which item of its hop it is: by neighbour, host and chunk; by step and chunk.
  std::vector<int64_t> addend_sent_, addend_received_;
  std::vector<int64_t> ring_sent_, ring_received_;
};

}  // namespace

ChunkSchedule MakeHierarchicalSchedule(const CollectiveSpec& spec,
                                       const std::vector<int64_t>& counts) {
  return HierarchicalSchedule(spec, counts).Make();
}

}  // namespace braid
