// Launches of running sums and products.
#pragma once

#include <cstdint>

#include "graph/dtype.h"
#include "runtime/kernels/cuda/launch.h"

namespace braid::cuda {

// The series along the axis of [outer, size, inner], in the direction of the scan. Where there are
// few of them they are cut in `chunks` of chunk_size elements: what comes before a chunk is first
// found out from the totals of the others.
struct ScanLaunch {
  DType type = DType::kF32;
  const void* x = nullptr;
  void* out = nullptr;
  void* totals = nullptr;  // of [outer, chunks, inner], in f64 or i64
  int64_t outer = 1, size = 1, inner = 1;
  int64_t chunks = 1, chunk_size = 1;
  bool is_product = false, is_exclusive = false, is_reverse = false;
};

struct ScanGradLaunch {
  DType type = DType::kF32;
  const void *x = nullptr, *dy = nullptr;
  void* dx = nullptr;
  void* tails = nullptr;  // like dx, or wider: kept between the two ways along a series
  int64_t outer = 1, size = 1, inner = 1;
  bool is_exclusive = false, is_reverse = false;
};

struct ScanTable {
  Error (*scan)(const Queue&, const ScanLaunch&);
  Error (*product_grad)(const Queue&, const ScanGradLaunch&);
};
ScanTable MakeScanTable();

}  // namespace braid::cuda
