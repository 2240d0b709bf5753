// Launches of what adds or writes elements at places that indices name. `entries` are those of
// gather.h in order: all updates of a slot follow each other, in the order of their positions.
#pragma once

#include "graph/dtype.h"
#include "runtime/kernels/cuda/launch.h"

namespace braid::cuda {

// Rows at positions are added into slots of a table of zeros; both are seen as in Picks.
struct AddRowsLaunch {
  const uint64_t* entries;
  const void* rows;
  void* table;
  void* partial;  // AddRowsBytes of work memory
  DType dtype;
  int64_t count, outer, row, slots;
};
// Entries that a thread adds up, of one element of each row.
inline constexpr int64_t kAddedAtOnce = 32;
constexpr int64_t AddRowsBytes(int64_t count, int64_t columns, int64_t element_bytes) {
  const int64_t bytes = element_bytes < 4 ? 4 : element_bytes;
  return 2 * ((count + kAddedAtOnce - 1) / kAddedAtOnce) * columns * bytes;
}

// The table's slots are joined with the rows one after another.
enum class Join : int32_t { kReplace, kMul, kMax, kMin };
struct JoinRowsLaunch {
  const uint64_t* entries;
  const void* rows;
  void* table;
  DType dtype;
  int64_t element_bytes, count, row;
  Join join;
};

struct ScatterTable {
  Error (*add_rows)(const Queue&, const AddRowsLaunch&);
  Error (*join_rows)(const Queue&, const JoinRowsLaunch&);
};
ScatterTable MakeScatterTable();

}  // namespace braid::cuda
