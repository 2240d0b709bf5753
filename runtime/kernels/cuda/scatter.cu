// Kernels of what adds or writes elements at places that indices name. Sums go by the order of the
// entries, never by that of threads, so that a run repeats bit by bit.
#include "runtime/kernels/cuda/device_code.h"
#include "runtime/kernels/cuda/gather.h"
#include "runtime/kernels/cuda/scatter.h"

namespace braid::cuda {
namespace {

__device__ __forceinline__ uint32_t SlotOf(uint64_t entry) {
  return static_cast<uint32_t>(entry >> 32);
}
__device__ __forceinline__ int64_t PositionOf(uint64_t entry) {
  return static_cast<int64_t>(entry & 0xffffffffu);
}

// ---- sums ---------------------------------------------------------------------------------------

// The entries are cut into chunks. What a chunk has of a slot whose entries began before it goes
// to partial 2 * chunk; of one that began in it and goes on behind it, to partial 2 * chunk + 1;
// sums of slots that lie in one chunk are done.
template <class T>
__global__ void __launch_bounds__(kThreads) AddChunks(AddRowsLaunch launch) {
  const int64_t columns = launch.outer * launch.row;
  const int64_t chunks = (launch.count + kAddedAtOnce - 1) / kAddedAtOnce;
  const uint64_t* const entries = launch.entries;
  for (int64_t i = FirstIndex(); i < chunks * columns; i += IndexStep()) {
    const int64_t chunk = i / columns, column = i % columns;
    const int64_t outer = column / launch.row, k = column % launch.row;
    const T* const rows =
        static_cast<const T*>(launch.rows) + outer * launch.count * launch.row + k;
    T* const table = static_cast<T*>(launch.table) + outer * launch.slots * launch.row + k;
    auto* const partial = static_cast<Compute<T>*>(launch.partial) + 2 * chunk * columns + column;
    const int64_t begin = chunk * kAddedAtOnce;
    const int64_t rest = launch.count - begin;
    const int64_t end = begin + (rest < kAddedAtOnce ? rest : kAddedAtOnce);
    uint32_t slot = SlotOf(entries[begin]);
    bool began_before = begin > 0 && SlotOf(entries[begin - 1]) == slot;
    Compute<T> sum = 0;
    for (int64_t at = begin; at < end; ++at) {
      const uint64_t entry = entries[at];
      if (SlotOf(entry) != slot) {
        if (began_before) {
          *partial = sum;
        } else {
          Store(table + slot * launch.row, sum);
        }
        slot = SlotOf(entry);
        began_before = false;
        sum = 0;
      }
      if (slot == kElsewhere) break;  // and so are all that follow
      sum = fn::Add::F(sum, Load(rows + PositionOf(entry) * launch.row));
    }
    if (slot == kElsewhere) continue;
    if (began_before) {
      *partial = sum;
    } else if (end < launch.count && SlotOf(entries[end]) == slot) {
      partial[columns] = sum;
    } else {
      Store(table + slot * launch.row, sum);
    }
  }
}

// Joins what chunks have of slots that go on behind them.
template <class T>
__global__ void __launch_bounds__(kThreads) JoinChunks(AddRowsLaunch launch) {
  const int64_t columns = launch.outer * launch.row;
  const int64_t chunks = (launch.count + kAddedAtOnce - 1) / kAddedAtOnce;
  const uint64_t* const entries = launch.entries;
  for (int64_t i = FirstIndex(); i < chunks * columns; i += IndexStep()) {
    const int64_t column = i % columns;
    int64_t chunk = i / columns;
    const int64_t begin = chunk * kAddedAtOnce;
    int64_t end = begin + kAddedAtOnce;
    if (end >= launch.count) continue;
    const uint32_t slot = SlotOf(entries[end - 1]);
    if (slot == kElsewhere || SlotOf(entries[end]) != slot) continue;
    if (begin > 0 && SlotOf(entries[begin - 1]) == slot) continue;
    const auto* const partial = static_cast<const Compute<T>*>(launch.partial) + column;
    Compute<T> sum = partial[(2 * chunk + 1) * columns];
    while (end < launch.count && SlotOf(entries[end]) == slot) {
      sum = fn::Add::F(sum, partial[2 * ++chunk * columns]);
      end += kAddedAtOnce;
    }
    const int64_t outer = column / launch.row, k = column % launch.row;
    Store(static_cast<T*>(launch.table) + (outer * launch.slots + slot) * launch.row + k, sum);
  }
}

Error AddRows(const Queue& queue, const AddRowsLaunch& launch) {
  const int64_t columns = launch.outer * launch.row;
  const int64_t threads = (launch.count + kAddedAtOnce - 1) / kAddedAtOnce * columns;
  if (threads == 0) return kDone;
  return VisitType(launch.dtype, [&](auto type) {
    using T = decltype(type);
    const unsigned blocks = BlocksFor(queue, threads);
    const Error error = Launch(queue, blocks, kThreads, AddChunks<T>, launch);
    if (error != kDone) return error;
    return Launch(queue, blocks, kThreads, JoinChunks<T>, launch);
  });
}

// ---- joins --------------------------------------------------------------------------------------

// The last row stays.
template <class Word>
__global__ void __launch_bounds__(kThreads) ReplaceRows(JoinRowsLaunch launch) {
  const auto* const rows = static_cast<const Word*>(launch.rows);
  auto* const table = static_cast<Word*>(launch.table);
  for (int64_t i = FirstIndex(); i < launch.count * launch.row; i += IndexStep()) {
    const int64_t at = i / launch.row, k = i % launch.row;
    const uint64_t entry = launch.entries[at];
    const uint32_t slot = SlotOf(entry);
    if (slot == kElsewhere) continue;
    if (at + 1 < launch.count && SlotOf(launch.entries[at + 1]) == slot) continue;
    table[slot * launch.row + k] = rows[PositionOf(entry) * launch.row + k];
  }
}

template <class T>
__device__ __forceinline__ T Joined(Join join, T a, T b) {
  if (join == Join::kMul) return fn::Mul::F(a, b);
  if (a != a) return a;
  if (join == Join::kMax) return a >= b ? a : b;
  return a <= b ? a : b;
}

template <class T>
__global__ void __launch_bounds__(kThreads) JoinRows(JoinRowsLaunch launch) {
  const auto* const rows = static_cast<const T*>(launch.rows);
  auto* const table = static_cast<T*>(launch.table);
  for (int64_t i = FirstIndex(); i < launch.count * launch.row; i += IndexStep()) {
    int64_t at = i / launch.row;
    const int64_t k = i % launch.row;
    const uint32_t slot = SlotOf(launch.entries[at]);
    if (slot == kElsewhere || (at > 0 && SlotOf(launch.entries[at - 1]) == slot)) continue;
    Compute<T> value = Load(table + slot * launch.row + k);
    for (; at < launch.count && SlotOf(launch.entries[at]) == slot; ++at) {
      const int64_t position = PositionOf(launch.entries[at]);
      value = Joined(launch.join, value, Load(rows + position * launch.row + k));
    }
    Store(table + slot * launch.row + k, value);
  }
}

Error LaunchJoinRows(const Queue& queue, const JoinRowsLaunch& launch) {
  const int64_t elements = launch.count * launch.row;
  if (elements == 0) return kDone;
  const unsigned blocks = BlocksFor(queue, elements);
  if (launch.join == Join::kReplace) {
    return VisitBytes(launch.element_bytes, [&](auto word) {
      return Launch(queue, blocks, kThreads, ReplaceRows<decltype(word)>, launch);
    });
  }
  return VisitType(launch.dtype, [&](auto type) {
    return Launch(queue, blocks, kThreads, JoinRows<decltype(type)>, launch);
  });
}

}  // namespace

ScatterTable MakeScatterTable() { return {.add_rows = AddRows, .join_rows = LaunchJoinRows}; }

}  // namespace braid::cuda
