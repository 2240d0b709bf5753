// Launches of max_pool, avg_pool and their gradients.
#pragma once

#include "graph/dtype.h"
#include "runtime/kernels/cuda/launch.h"

namespace braid::cuda {

// Window o reads, tap by tap, the elements o * stride - pad_begin + t * dilation that exist; an
// adaptive axis' windows instead cover [floor(o * size / windows), ceil((o + 1) * size / windows)).
struct PoolAxis {
  int32_t size = 1, windows = 1;
  int32_t kernel = 1, stride = 1, dilation = 1;
  int32_t pad_begin = 0, pad_end = 0;
  bool is_adaptive = false;
};

// What sums are divided by: elements, elements and padding, or nothing.
enum class PoolDivisor : int32_t { kElements, kPadded, kOne };

// x [planes, space], y [planes, windows]; three axes, those that are missing stand in front. With
// the channels last, x is [images, space, channels] and y [images, windows, channels].
struct PoolLaunch {
  DType dtype = DType::kF32;  // floating
  PoolDivisor divisor = PoolDivisor::kElements;
  const void* x = nullptr;
  const void* dy = nullptr;    // of gradients
  void* result = nullptr;      // y or dx; max_pool_grad's dx
  int64_t* indices = nullptr;  // of max_pool: where in the plane its elements are; null: not wanted
  void* work = nullptr;        // of max_pool_grad: 4 bytes for each window
  int64_t planes = 0;
  int64_t channels = 1;  // that lie beside each other: 1 if planes do not
  PoolAxis axes[3];

  int64_t x_plane() const { return int64_t{axes[0].size} * axes[1].size * axes[2].size; }
  int64_t y_plane() const { return int64_t{axes[0].windows} * axes[1].windows * axes[2].windows; }
};

struct PoolingTable {
  Error (*max)(const Queue&, const PoolLaunch&);
  Error (*max_grad)(const Queue&, const PoolLaunch&);
  Error (*average)(const Queue&, const PoolLaunch&);
  Error (*average_grad)(const Queue&, const PoolLaunch&);
};
PoolingTable MakePoolingTable();

}  // namespace braid::cuda
