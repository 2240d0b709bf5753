// Kernels of sort and top_k. Blocks sort runs of up to 2048 entries in shared memory (K. E.
// Batcher: "Sorting networks and their applications", 1968). Longer rows are merged from runs;
// where few entries are to come out, the first ones of each run are sorted again instead.
#include <type_traits>

#include "runtime/kernels/cuda/device_code.h"
#include "runtime/kernels/cuda/sort.h"

namespace braid::cuda {
namespace {

constexpr int kRun = 2048;  // entries that a block sorts
constexpr int kLeast = 64;  // that it has in memory, of several rows if need be
constexpr int kMostThreads = 512;
constexpr int64_t kMostKept = kRun / 2;  // of a run, for its rest to be worth dropping

// Keys of floats: negative ones have all bits flipped, others the sign; zeros are equal, a NaN is
// above infinity.
template <class Bits, class Float>
__device__ __forceinline__ Bits FloatKey(Float value) {
  constexpr Bits kSign = Bits{1} << (8 * sizeof(Bits) - 1);
  if (value != value) return ~Bits{0};
  const Bits bits = __builtin_bit_cast(Bits, value == 0 ? Float{0} : value);
  return (bits & kSign) != 0 ? ~bits : bits | kSign;
}
__device__ __forceinline__ uint32_t KeyOf(float value) { return FloatKey<uint32_t>(value); }
__device__ __forceinline__ uint64_t KeyOf(double value) { return FloatKey<uint64_t>(value); }
__device__ __forceinline__ uint32_t KeyOf(int32_t value) {
  return static_cast<uint32_t>(value) ^ 0x80000000u;
}
__device__ __forceinline__ uint64_t KeyOf(int64_t value) {
  return static_cast<uint64_t>(value) ^ (uint64_t{1} << 63);
}
__device__ __forceinline__ uint32_t KeyOf(uint8_t value) { return value; }

__device__ __forceinline__ void Set(uint64_t* entry, uint32_t key, uint32_t position) {
  *entry = uint64_t{key} << 32 | position;
}
__device__ __forceinline__ void Set(WideEntry* entry, uint64_t key, uint32_t position) {
  *entry = {key, position};
}
__device__ __forceinline__ uint32_t PositionOf(uint64_t entry) {
  return static_cast<uint32_t>(entry);
}
__device__ __forceinline__ uint32_t PositionOf(const WideEntry& entry) { return entry.position; }
__device__ __forceinline__ bool IsBefore(uint64_t a, uint64_t b) { return a < b; }
__device__ __forceinline__ bool IsBefore(const WideEntry& a, const WideEntry& b) {
  return a.key != b.key ? a.key < b.key : a.position < b.position;
}
// Behind all others.
__device__ __forceinline__ void SetLast(uint64_t* entry) { *entry = ~uint64_t{0}; }
__device__ __forceinline__ void SetLast(WideEntry* entry) { *entry = {~uint64_t{0}, ~0u}; }

template <class Key>
struct EntryOf {
  using type = uint64_t;
};
template <>
struct EntryOf<uint64_t> {
  using type = WideEntry;
};

// f(entry) of the width.
template <class F>
Error VisitEntries(bool is_wide, F f) {
  return is_wide ? f(WideEntry()) : f(uint64_t());
}

template <class T>
__global__ void __launch_bounds__(kThreads) MakeEntries(MakeEntriesLaunch launch) {
  using Key = decltype(KeyOf(Compute<T>()));
  const SortRows& rows = launch.rows;
  const auto* const x = static_cast<const T*>(launch.x);
  auto* const entries = static_cast<typename EntryOf<Key>::type*>(launch.entries);
  // Whose order is reversed by flipping the bits; the positions' is not.
  const Key flip = rows.descending ? ~Key{0} : Key{0};
  for (int64_t i = FirstIndex(); i < rows.rows * rows.size; i += IndexStep()) {
    const int64_t row = rows.first_row + i / rows.size, at = i % rows.size;
    const int64_t place = (row / rows.inner * rows.size + at) * rows.inner + row % rows.inner;
    Set(entries + i, KeyOf(Load(x + place)) ^ flip, static_cast<uint32_t>(at));
  }
}

Error LaunchMakeEntries(const Queue& queue, const MakeEntriesLaunch& launch) {
  const int64_t entries = launch.rows.rows * launch.rows.size;
  if (entries == 0) return kDone;
  return VisitType(launch.rows.dtype, [&](auto type) {
    return Launch(queue, BlocksFor(queue, entries), kThreads, MakeEntries<decltype(type)>, launch);
  });
}

// Rows are cut into runs of `run` entries, a power of two (the last one may be shorter); a block
// takes `runs` of them. The first `keep` of each are written, one run behind the other.
struct RunSort {
  int64_t rows, size, keep, runs_per_row, kept_per_row;
  int32_t run, runs;
};

template <class Entry>
__device__ __forceinline__ void SortShared(Entry* entries, int count, int run) {
  for (int size = 2; size <= run; size *= 2) {
    for (int distance = size / 2; distance > 0; distance /= 2) {
      for (int t = static_cast<int>(threadIdx.x); t < count / 2;
           t += static_cast<int>(blockDim.x)) {
        const int low = 2 * t - (t & (distance - 1)), high = low + distance;
        const bool rises = (low & (run - 1) & size) == 0;
        const Entry a = entries[low], b = entries[high];
        if (IsBefore(b, a) == rises) {
          entries[low] = b;
          entries[high] = a;
        }
      }
      __syncthreads();
    }
  }
}

template <class Entry>
__global__ void __launch_bounds__(kMostThreads) SortRuns(const Entry* from, Entry* to, RunSort s) {
  __shared__ Entry entries[kRun];
  const int count = s.run * s.runs;
  const int first = static_cast<int>(threadIdx.x), step = static_cast<int>(blockDim.x);
  const int64_t blocks = (s.rows * s.runs_per_row + s.runs - 1) / s.runs;
  for (int64_t block = blockIdx.x; block < blocks; block += gridDim.x) {
    for (int i = first; i < count; i += step) {
      const int64_t number = block * s.runs + i / s.run;
      const int64_t row = number / s.runs_per_row;
      const int64_t at = number % s.runs_per_row * s.run + i % s.run;
      if (row < s.rows && at < s.size) {
        entries[i] = from[row * s.size + at];
      } else {
        SetLast(entries + i);
      }
    }
    __syncthreads();
    SortShared(entries, count, s.run);
    for (int i = first; i < count; i += step) {
      const int64_t number = block * s.runs + i / s.run;
      const int64_t row = number / s.runs_per_row, run = number % s.runs_per_row;
      const int64_t rest = s.size - run * s.run, at = i % s.run;
      if (row < s.rows && at < s.keep && at < rest) {
        to[row * s.kept_per_row + run * s.keep + at] = entries[i];
      }
    }
    __syncthreads();
  }
}

// Sorts runs of `from`'s rows of `size` into `to`; returns in `size` what is left of a row.
template <class Entry>
Error LaunchSortRuns(const Queue& queue, const Entry* from, Entry* to, const SortLaunch& launch,
                     int64_t& size) {
  RunSort s = {.rows = launch.rows, .size = size, .run = 2, .runs = 1};
  while (s.run < kRun && s.run < size) s.run *= 2;
  while (s.run * s.runs < kLeast) s.runs *= 2;
  s.keep = launch.keep < s.run ? launch.keep : s.run;
  s.runs_per_row = (size + s.run - 1) / s.run;
  const int64_t last = size - (s.runs_per_row - 1) * s.run;
  s.kept_per_row = (s.runs_per_row - 1) * s.keep + (last < s.keep ? last : s.keep);
  size = s.kept_per_row;
  const int64_t blocks = (s.rows * s.runs_per_row + s.runs - 1) / s.runs;
  constexpr int64_t kMostBlocks = 1 << 20;
  const int threads = s.run * s.runs / 2;
  return LaunchBlocks(queue, static_cast<unsigned>(blocks < kMostBlocks ? blocks : kMostBlocks),
                      threads < kMostThreads ? threads : kMostThreads, SortRuns<Entry>, from, to,
                      s);
}

// Pairs of sorted runs of `run` entries become one: an entry goes as far behind its place in its
// own run as there are smaller ones in the other.
template <class Entry>
__global__ void __launch_bounds__(kThreads)
    MergeRuns(const Entry* from, Entry* to, int64_t entries, int64_t size, int64_t run) {
  for (int64_t i = FirstIndex(); i < entries; i += IndexStep()) {
    const int64_t at = i % size, row = i - at;
    const int64_t mine = at / run, other = mine ^ 1;
    int64_t low = other * run < size ? other * run : size;
    int64_t high = low + run < size ? low + run : size;
    const int64_t other_begin = low;
    const Entry entry = from[i];
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (IsBefore(from[row + middle], entry)) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    to[row + (mine & ~int64_t{1}) * run + at - mine * run + low - other_begin] = entry;
  }
}

void Exchange(SortLaunch& launch) {
  void* const entries = launch.entries;
  launch.entries = launch.other;
  launch.other = entries;
}

template <class Entry>
Error SortEntries(const Queue& queue, SortLaunch& launch) {
  const bool keeps_few = launch.keep <= kMostKept;
  int64_t size = launch.size, before = 0;
  do {
    before = size;
    SortLaunch round = launch;
    if (size > kRun && !keeps_few) round.keep = kRun;
    const Error error = LaunchSortRuns(queue, static_cast<const Entry*>(launch.entries),
                                       static_cast<Entry*>(launch.other), round, size);
    if (error != kDone) return error;
    Exchange(launch);
  } while (keeps_few && before > kRun);
  for (int64_t run = kRun; run < size; run *= 2) {
    const int64_t entries = launch.rows * size;
    const Error error = Launch(queue, BlocksFor(queue, entries), kThreads, MergeRuns<Entry>,
                               static_cast<const Entry*>(launch.entries),
                               static_cast<Entry*>(launch.other), entries, size, run);
    if (error != kDone) return error;
    Exchange(launch);
  }
  launch.stride = size;
  return kDone;
}

Error LaunchSort(const Queue& queue, SortLaunch& launch) {
  launch.stride = launch.keep;
  if (launch.rows == 0 || launch.size == 0 || launch.keep == 0) return kDone;
  return VisitEntries(launch.is_wide,
                      [&](auto entry) { return SortEntries<decltype(entry)>(queue, launch); });
}

template <class Word, class Entry>
__global__ void __launch_bounds__(kThreads) TakeSorted(TakeSortedLaunch launch) {
  const SortRows& rows = launch.rows;
  const auto* const x = static_cast<const Word*>(launch.x);
  const auto* const entries = static_cast<const Entry*>(launch.entries);
  auto* const values = static_cast<Word*>(launch.values);
  const int64_t count = rows.rows * launch.keep;
  for (int64_t i = FirstIndex(); i < count; i += IndexStep()) {
    const int64_t row = i / launch.keep, in_row = i % launch.keep;
    const int64_t logical = row + rows.first_row;
    const int64_t outer = logical / rows.inner, inner = logical % rows.inner;
    const uint32_t at = PositionOf(entries[row * launch.stride + in_row]);
    const int64_t to = (outer * launch.keep + in_row) * rows.inner + inner;
    values[to] = x[(outer * rows.size + at) * rows.inner + inner];
    launch.indices[to] = static_cast<int32_t>(at);
  }
}

Error LaunchTakeSorted(const Queue& queue, const TakeSortedLaunch& launch) {
  const int64_t count = launch.rows.rows * launch.keep;
  if (count == 0) return kDone;
  return VisitBytes(launch.rows.element_bytes, [&](auto word) {
    using Word = decltype(word);
    using Entry = typename EntryOf<std::conditional_t<sizeof(Word) == 8, uint64_t, uint32_t>>::type;
    return Launch(queue, BlocksFor(queue, count), kThreads, TakeSorted<Word, Entry>, launch);
  });
}

}  // namespace

SortTable MakeSortTable() {
  return {.make_entries = LaunchMakeEntries, .sort = LaunchSort, .take_sorted = LaunchTakeSorted};
}

}  // namespace braid::cuda
