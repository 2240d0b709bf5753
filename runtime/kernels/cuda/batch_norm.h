// Launches of batch normalization.
#pragma once

#include <cstdint>

#include "graph/dtype.h"
#include "runtime/kernels/cuda/launch.h"

namespace braid::cuda {

// x [groups, images, channels, space]: the images of a group are a batch of their own. With the
// channels last, space is 1, and each pixel is an image.
struct BatchLayout {
  int64_t groups = 1, images = 0, channels = 0, space = 0;  // here
  double count = 1;  // elements of a channel in the batch, wherever they are
};

// A channel's mean and variance, times `divisor`, in each group; gamma and beta, which may be null.
// They have the type of x, as have the sums; or all of these are f32 where x is narrow.
struct BatchStatistics {
  bool are_wide = false;
  const void *mean = nullptr, *variance = nullptr, *gamma = nullptr, *beta = nullptr;
  double divisor = 1, epsilon = 0;
};

enum class BatchSum : int32_t { kValues, kSquares, kGradients };

// Per channel and group: the sum of x; of (x - mean)^2; or those of dy (x - mean) / sqrt(variance +
// epsilon) and of dy, of which there is nothing where a rectifier held x back.
struct BatchSumsLaunch {
  DType type = DType::kF32;
  BatchSum kind = BatchSum::kValues;
  BatchLayout layout;
  BatchStatistics statistics;
  const void *x = nullptr, *dy = nullptr;
  void* out[2] = {};
  bool rectifies = false;
  // The images of a group are summed in `parts`. Where space is short, so is each of its elements.
  bool is_short = false;
  int64_t parts = 1, part_images = 1;
  int32_t lanes = 1, rows = 1;  // threads of a block: neighbours in an image, and images
  void* sums = nullptr;         // [2, groups, parts, channels, space if is_short], f32 or f64
};

// y = (x - mean) / sqrt(variance + epsilon) * gamma + beta + more, rectified or not; or dx of that
// from dgamma and dbeta, which are per channel and group.
struct BatchNormLaunch {
  DType type = DType::kF32;
  BatchLayout layout;
  BatchStatistics statistics;
  const void* x = nullptr;
  const void *dy = nullptr, *dgamma = nullptr, *dbeta = nullptr;  // of the gradient
  const void* more = nullptr;                                     // may be null
  void* out = nullptr;
  bool rectifies = false;
  void* numbers = nullptr;  // kBatchNumbers for each channel and group, f32 or f64
};
inline constexpr int64_t kBatchNumbers = 5;

struct BatchNormTable {
  Error (*sums)(const Queue&, const BatchSumsLaunch&);
  Error (*norm)(const Queue&, const BatchNormLaunch&);
};
BatchNormTable MakeBatchNormTable();

}  // namespace braid::cuda
