// Launches of gather, one_hot and what picks elements by indices.
#pragma once

#include "runtime/kernels/cuda/launch.h"

namespace braid::cuda {

// Which slots of a table the positions of an operand of indices stand for. A slot is `row`
// neighbouring elements; the table and what goes with the positions are `outer` times that: element
// k of slot s is at (o * slots + s) * row + k, that of position p at (o * count + p) * row + k.
struct Picks {
  const void* index = nullptr;
  bool is_i64 = false;
  int64_t count = 0;  // of positions
  int64_t outer = 1, row = 1, slots = 0;

  // An axis of the table, of which `size` from `offset` on are here.
  struct Axis {
    int64_t all = 0, offset = 0, size = 0;
    int64_t stride = 0;  // in slots
    int64_t count = 0;   // of the indices along it, where these have the table's axes
  };
  int32_t rank = 0;  // of the axes that are listed
  Axis axes[kMaxRank];
  // -1: each position has `rank` indices, one for every axis; behind each `per_batch` positions the
  // table goes on by `batch_slots`. Otherwise a position has one index, on this axis; on the others
  // its own place counts.
  int32_t axis = -1;
  int64_t per_batch = 1, batch_slots = 0;
};

// Rows of the table, zeros for those that are elsewhere.
struct ReadPicksLaunch {
  Picks picks;
  const void* table;
  void* out;
  int64_t element_bytes;
};

// slot << 32 | position, for each position; kElsewhere << 32 | position if the slot is not here.
inline constexpr uint32_t kElsewhere = ~uint32_t{0};
struct PickEntriesLaunch {
  Picks picks;
  uint64_t* entries;
};

// Elements seen as [outer, size, inner]: the lowest bytes of `bits` where the index says so,
// else 0. `size` from `offset` on of `all` are here.
struct OneHotLaunch {
  void* to;
  const void* index;
  bool is_i64;
  int64_t element_bytes, elements, size, inner, offset, all;
  uint64_t bits;
};

struct GatherTable {
  Error (*read)(const Queue&, const ReadPicksLaunch&);
  Error (*entries)(const Queue&, const PickEntriesLaunch&);
  Error (*one_hot)(const Queue&, const OneHotLaunch&);
};
GatherTable MakeGatherTable();

}  // namespace braid::cuda
