// Launches of reductions and scans.
#pragma once

#include <cstdint>

#include "graph/dtype.h"
#include "runtime/kernels/cuda/launch.h"
#include "runtime/kernels/cuda/scan.h"

namespace braid::cuda {

enum class Reduction : int32_t { kSum, kSumSquare, kSumAbs, kMax, kMin, kProd };

// How blocks walk over [outer, size, inner] where neighbouring threads have neighbouring columns
// (of [outer, inner]): `lanes` columns, and `rows` threads for each of them, powers of two.
struct ColumnBlocks {
  int32_t lanes = 1, rows = 1;
};

// [outer, reduced, inner] -> [outer, parts, inner]: part p joins the elements p * part_size, ... of
// the reduced axis.
struct ReduceLaunch {
  DType in_type = DType::kF32;
  DType out_type = DType::kF32;  // the same, or f32 where this is narrow, or the other way round
  Reduction kind = Reduction::kSum;
  const void* in = nullptr;
  void* out = nullptr;
  int64_t outer = 1, reduced = 1, inner = 1;
  int64_t parts = 1, part_size = 1;
  bool by_rows = false;  // inner is 1: threads share a row; otherwise as `columns` says
  ColumnBlocks columns;
  double factor = 1;  // of what comes out, of floating types
  bool is_bool = false;
};

// The index of the extreme along the axis of [outer, size, inner]; of equals the first or the last.
struct ArgExtremeLaunch {
  DType type = DType::kF32;
  const void* x = nullptr;
  int32_t* out = nullptr;
  int64_t outer = 1, size = 1, inner = 1;
  ColumnBlocks columns;
  bool is_min = false, is_last = false;
};

struct ReduceTable {
  Error (*reduce)(const Queue&, const ReduceLaunch&);
  Error (*arg_extreme)(const Queue&, const ArgExtremeLaunch&);
  ScanTable scan;
};
ReduceTable MakeReduceTable();

}  // namespace braid::cuda
