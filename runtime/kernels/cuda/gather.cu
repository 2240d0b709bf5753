// Kernels of gather, one_hot and what picks elements by indices.
#include "runtime/kernels/cuda/device_code.h"
#include "runtime/kernels/cuda/gather.h"

namespace braid::cuda {
namespace {

struct alignas(16) Word16 {
  uint64_t halves[2];
};

// The index at `position`, counted from the start; -1 if there is no such of `all`, which is noted.
__device__ __forceinline__ int64_t ChosenAt(const Queue& queue, const Picks& picks,
                                            int64_t position, int64_t all) {
  const int64_t value = picks.is_i64 ? static_cast<const int64_t*>(picks.index)[position]
                                     : static_cast<const int32_t*>(picks.index)[position];
  const int64_t at = value < 0 ? value + all : value;
  if (at >= 0 && at < all) return at;
  NoteIndex(queue, IndexName::kIndex, value, position, -all, all);
  return -1;
}

// -1: elsewhere, or a wrong index.
__device__ __forceinline__ int64_t SlotOf(const Queue& queue, const Picks& picks,
                                          int64_t position) {
  const bool is_nd = picks.axis < 0;
  int64_t slot = is_nd ? position / picks.per_batch * picks.batch_slots : 0;
  int64_t rest = position;
  bool is_here = true;
  for (int d = picks.rank - 1; d >= 0; --d) {
    const Picks::Axis& axis = picks.axes[d];
    int64_t at = 0;
    if (!is_nd) {
      at = rest % axis.count;
      rest /= axis.count;
    }
    if (is_nd || d == picks.axis) {
      at = ChosenAt(queue, picks, is_nd ? position * picks.rank + d : position, axis.all);
    }
    at -= axis.offset;
    is_here = is_here && at >= 0 && at < axis.size;
    slot += at * axis.stride;
  }
  return is_here ? slot : -1;
}

template <class Word>
__global__ void __launch_bounds__(kThreads) ReadPicks(Queue queue, ReadPicksLaunch launch) {
  const Picks& picks = launch.picks;
  const auto* const table = static_cast<const Word*>(launch.table);
  auto* const out = static_cast<Word*>(launch.out);
  const int64_t words = picks.outer * picks.count * picks.row;
  for (int64_t i = FirstIndex(); i < words; i += IndexStep()) {
    const int64_t k = i % picks.row, position = i / picks.row % picks.count;
    const int64_t outer = i / picks.row / picks.count;
    const int64_t slot = SlotOf(queue, picks, position);
    Word word = {};
    if (slot >= 0) word = table[(outer * picks.slots + slot) * picks.row + k];
    out[i] = word;
  }
}

Error Read(const Queue& queue, const ReadPicksLaunch& launch) {
  ReadPicksLaunch wide = launch;
  const int64_t elements = launch.picks.outer * launch.picks.count * launch.picks.row;
  if (elements == 0) return kDone;
  if (launch.picks.row * launch.element_bytes % 16 == 0 && IsAligned(launch.table) &&
      IsAligned(launch.out)) {
    const int64_t words = elements * launch.element_bytes / 16;
    wide.picks.row = launch.picks.row * launch.element_bytes / 16;
    return Launch(queue, BlocksFor(queue, words), kThreads, ReadPicks<Word16>, queue, wide);
  }
  return VisitBytes(launch.element_bytes, [&](auto word) {
    return Launch(queue, BlocksFor(queue, elements), kThreads, ReadPicks<decltype(word)>, queue,
                  wide);
  });
}

__global__ void __launch_bounds__(kThreads) PickEntries(Queue queue, PickEntriesLaunch launch) {
  for (int64_t i = FirstIndex(); i < launch.picks.count; i += IndexStep()) {
    const int64_t slot = SlotOf(queue, launch.picks, i);
    const uint64_t key = slot < 0 ? kElsewhere : static_cast<uint64_t>(slot);
    launch.entries[i] = key << 32 | static_cast<uint64_t>(i);
  }
}

Error Entries(const Queue& queue, const PickEntriesLaunch& launch) {
  if (launch.picks.count == 0) return kDone;
  return Launch(queue, BlocksFor(queue, launch.picks.count), kThreads, PickEntries, queue, launch);
}

template <class Word>
__global__ void __launch_bounds__(kThreads) WriteOneHot(Queue queue, OneHotLaunch launch) {
  const Picks picks = {.index = launch.index, .is_i64 = launch.is_i64};
  for (int64_t i = FirstIndex(); i < launch.elements; i += IndexStep()) {
    const int64_t inner = i % launch.inner, at = i / launch.inner % launch.size;
    const int64_t position = i / launch.inner / launch.size * launch.inner + inner;
    const int64_t chosen = ChosenAt(queue, picks, position, launch.all);
    const bool is_hot = chosen >= 0 && chosen - launch.offset == at;
    static_cast<Word*>(launch.to)[i] = is_hot ? static_cast<Word>(launch.bits) : Word{0};
  }
}

Error OneHot(const Queue& queue, const OneHotLaunch& launch) {
  if (launch.elements == 0) return kDone;
  return VisitBytes(launch.element_bytes, [&](auto word) {
    return Launch(queue, BlocksFor(queue, launch.elements), kThreads, WriteOneHot<decltype(word)>,
                  queue, launch);
  });
}

}  // namespace

GatherTable MakeGatherTable() { return {.read = Read, .entries = Entries, .one_hot = OneHot}; }

}  // namespace braid::cuda
