// Launches of sort and top_k, and of the sorting that other families need. What is sorted are
// entries: a key with the position that it came from, so that no two are equal and every order is
// the stable one.
#pragma once

#include "graph/dtype.h"
#include "runtime/kernels/cuda/launch.h"

namespace braid::cuda {

// With keys of 32 bits: key << 32 | position. With keys of 64 bits: WideEntry.
struct WideEntry {
  uint64_t key;
  uint32_t position;
};
// How large an entry of elements of so many bytes is.
constexpr int64_t EntryBytes(int64_t element_bytes) { return element_bytes == 8 ? 16 : 8; }
static_assert(sizeof(WideEntry) == 16);

// Of elements of rows along an axis: rows = outer * inner from `first_row` on, entries of one after
// another.
struct SortRows {
  DType dtype = DType::kF32;
  int64_t element_bytes = 4;
  int64_t size = 0, inner = 1;  // of the axis, and behind it
  int64_t first_row = 0, rows = 0;
  bool descending = false;
};

struct MakeEntriesLaunch {
  SortRows rows;
  const void* x;
  void* entries;
};

// The first `keep` of each row's `size` entries come out in order.
struct SortLaunch {
  void* entries;
  void* other;  // as much memory again
  int64_t rows, size, keep;
  bool is_wide;
  int64_t stride = 0;  // of the rows that come out: at least `keep`
};

// Values and their positions along the axis, of the `keep` first entries of each row.
struct TakeSortedLaunch {
  SortRows rows;
  const void *x, *entries;
  int64_t keep, stride;  // as SortLaunch
  void* values;
  int32_t* indices;
};

struct SortTable {
  Error (*make_entries)(const Queue&, const MakeEntriesLaunch&);
  // Sets `stride`; exchanges `entries` and `other` if the result is in the other.
  Error (*sort)(const Queue&, SortLaunch&);
  Error (*take_sorted)(const Queue&, const TakeSortedLaunch&);
};
SortTable MakeSortTable();

}  // namespace braid::cuda
