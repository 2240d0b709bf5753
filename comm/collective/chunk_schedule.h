// What one member of a collective sends and receives, chunk by chunk: a value computed from the
// spec, without any state. ChunkMachine works it off.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/collective/collective.h"

namespace braid {

// Where bytes of a member lie. Staging is its own memory for what only passes through.
enum class ChunkBuffer : uint8_t { kInput, kOutput, kStaging };

// What must come first: so many items of one of the schedule's receives, or sends.
struct ItemsBefore {
  int hop = 0;
  int64_t items = 0;
};

struct SendItem {
  ChunkBuffer buffer = ChunkBuffer::kInput;
  int64_t offset = 0;
  int64_t bytes = 0;
  ItemsBefore after_receives = {};  // that must have been worked in
  // To another node: into what the receiver offers of its output, `place` bytes from its start.
  bool is_placed = false;
  int64_t place = 0;
};

// Copies what arrives to `target`; or puts arrived + own there, the other way round if
// `is_own_first`, or own + arrived + the input at `last_offset`.
struct ReceiveItem {
  static constexpr int64_t kNoPart = -1;
  bool is_reduction = false;
  bool is_own_first = false;
  ChunkBuffer target = ChunkBuffer::kOutput;
  int64_t offset = 0;
  ChunkBuffer own = ChunkBuffer::kInput;
  int64_t own_offset = 0;
  int64_t last_offset = kNoPart;  // if not, what is own lies in staging, and is used up
  int64_t bytes = 0;
  // That must have been worked in: they make what is own, or are of the step before.
  ItemsBefore after_receives = {};
  // That must have left their source: they still use the target.
  ItemsBefore after_sends = {};
  // From another node: the sender has put it where it belongs. It does so only where all that was
  // at the target before has been used, by whoever uses it: what it sends was made of that.
  bool is_placed = false;
};

// Items between two members, in order. The receiver's list mirrors the sender's.
struct SendHop {
  int to = 0;
  std::vector<SendItem> items;
  int64_t placed_bytes = 0;  // of what the receiver offers; 0: nothing
};
struct ReceiveHop {
  int from = 0;
  std::vector<ReceiveItem> items;
  // What is offered to the sender, of the output.
  int64_t placed_offset = 0;
  int64_t placed_bytes = 0;
};

// Output = first + second, of this member's own.
struct LocalSum {
  ChunkBuffer first = ChunkBuffer::kStaging;
  int64_t first_offset = 0;
  int64_t second_offset = 0;  // in staging
  int64_t offset = 0;
  int64_t bytes = 0;
};

struct ChunkSchedule {
  // One hop to and one from a member at most; those without items are left out.
  std::vector<SendHop> sends;
  std::vector<ReceiveHop> receives;
  // When all items have left, and all were worked in.
  std::vector<LocalSum> sums;
  // The part of the own input that is output: input offset, output offset, bytes; or that goes to
  // staging.
  ChunkBuffer copy_target = ChunkBuffer::kOutput;
  int64_t copy_from = 0;
  int64_t copy_to = 0;
  int64_t copy_bytes = 0;
  int64_t staging_bytes = 0;
  uint32_t slots = 0;  // how many items may be under way on a hop
  // So large items are lent to a receiver that can read them where they lie.
  int64_t lend_from = 0;
};

// The largest item of a hop: the size of its landing slots.
int64_t LargestItem(const SendHop& hop);
int64_t LargestItem(const ReceiveHop& hop);

// Elements of block `r`, of p that differ by one at most.
constexpr int64_t EvenBlock(int64_t whole, int64_t p, int64_t r) {
  return whole / p + (r < whole % p ? 1 : 0);
}

// For a valid spec. `blocks`: how many elements each member of an all_reduce sums, where each sums
// some; empty: as even as can be. But for an all_reduce by doubling, in which each member sends
// (p-1) T and stages p T, the bytes of all sends are the least possible: with T the whole,
// all_reduce 2(p-1)/p T, all_gather and reduce_scatter (p-1)/p T, all_to_all what belongs to
// others, broadcast (p-1) T of all members together.
ChunkSchedule MakeChunkSchedule(const CollectiveSpec& spec,
                                const std::vector<int64_t>& blocks = {});

}  // namespace braid
