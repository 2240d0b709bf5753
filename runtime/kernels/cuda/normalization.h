// Launches of layer, RMS, group and batch normalization.
#pragma once

#include <cstdint>

#include "graph/dtype.h"
#include "runtime/kernels/cuda/batch_norm.h"
#include "runtime/kernels/cuda/launch.h"

namespace braid::cuda {

// Layer norm of rows; RMS norm without beta and mean, which is 0 then.
struct RowNormLaunch {
  DType type = DType::kF32;
  DType y_type = DType::kF32;  // the same, or narrow where that is f32
  const void *x = nullptr, *gamma = nullptr, *beta = nullptr;
  void *y = nullptr, *mean = nullptr, *rstd = nullptr;
  int64_t rows = 0, size = 0;
  double epsilon = 0;
};

// The gradients of gamma and beta are summed in parts of part_rows rows.
struct RowNormGradLaunch {
  DType type = DType::kF32;
  const void *x = nullptr, *gamma = nullptr, *mean = nullptr, *rstd = nullptr, *dy = nullptr;
  void *dx = nullptr, *dgamma = nullptr, *dbeta = nullptr;
  int64_t rows = 0, size = 0;
  int64_t parts = 1, part_rows = 1;
  int32_t lanes = 1, block_rows = 1;  // threads of a block: neighbours in a row, and rows
  void* sums = nullptr;               // [2, parts, size], f32 or f64
};

// Of x [images, groups * channels, space].
struct GroupNormLaunch {
  DType type = DType::kF32;
  const void *x = nullptr, *gamma = nullptr, *beta = nullptr;
  void *y = nullptr, *mean = nullptr, *rstd = nullptr;
  int64_t images = 0, groups = 0, channels = 0, space = 0;
  double epsilon = 0;
};
struct GroupNormGradLaunch {
  DType type = DType::kF32;
  const void *x = nullptr, *gamma = nullptr, *mean = nullptr, *rstd = nullptr, *dy = nullptr;
  void *dx = nullptr, *dgamma = nullptr, *dbeta = nullptr;
  int64_t images = 0, groups = 0, channels = 0, space = 0;
  void* sums = nullptr;  // [images, groups * channels, 2], f32 or f64
};

struct NormalizationTable {
  Error (*row_norm)(const Queue&, const RowNormLaunch&);
  Error (*row_norm_grad)(const Queue&, const RowNormGradLaunch&);
  Error (*group_norm)(const Queue&, const GroupNormLaunch&);
  Error (*group_norm_grad)(const Queue&, const GroupNormGradLaunch&);
  BatchNormTable batch_norm;
};
NormalizationTable MakeNormalizationTable();

}  // namespace braid::cuda
