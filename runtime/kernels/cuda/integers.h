// Launches of products of bytes: convolutions and matrices.
#pragma once

#include <cstdint>

#include "runtime/kernels/cuda/convolution.h"
#include "runtime/kernels/cuda/launch.h"

namespace braid::cuda {

// x [batch, groups * in, space...], w [groups * out, in, kernel...] and
// y [batch, groups * out, windows...]; x and y dense, w with strides. Of matrices [batch, in] and
// [in, out] or its transpose a pixel each.
struct ByteProductLaunch {
  const void *x = nullptr, *w = nullptr;
  const void *zero_of_x = nullptr, *zeros_of_w = nullptr;  // null: 0
  int32_t* y = nullptr;
  bool x_is_signed = false, w_is_signed = false;
  bool has_zero_per_output = false;  // else one
  int64_t batch = 0;
  int64_t groups = 1, in = 0, out = 0;  // channels of one group
  int64_t w_output = 0, w_input = 0;    // from one output's weights to the next, and of one input's
  ConvolutionAxis axes[kSpatialAxes];
};

struct IntegerTable {
  Error (*multiply)(const Queue&, const ByteProductLaunch&);
};
IntegerTable MakeIntegerTable();

}  // namespace braid::cuda
