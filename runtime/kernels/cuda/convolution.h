// Launches of convolutions, as matrix products of operands that are gathered from the images.
#pragma once

#include "graph/dtype.h"
#include "runtime/kernels/cuda/launch.h"
#include "runtime/kernels/cuda/product_shape.h"
#include "runtime/kernels/functions/window_axes.h"

namespace braid::cuda {

// Which of the three sides is computed from the other two.
enum class ConvolutionSide : int32_t { kOutput, kInput, kWeights };

// Space has three axes; those that are missing stand in front with size 1.
struct ConvolutionAxis {
  int32_t size = 1, windows = 1;
  int32_t kernel = 1, stride = 1, dilation = 1;
  int32_t pad_begin = 0, pad_end = 0;
};

// x [batch, groups * in, space...], w [groups * out, in, kernel...],
// y [batch, groups * out, windows...]; dense.
struct ConvolutionLaunch {
  ConvolutionSide side = ConvolutionSide::kOutput;
  DType dtype = DType::kF32;  // of what is multiplied: floating
  bool wide_result = false;   // the result, and the bias, are f32 though the operands are narrow
  // x and w, y and w, or x and y; the side.
  const void* first = nullptr;
  const void* second = nullptr;
  const void* bias = nullptr;  // of the output's channels; null without one
  void* result = nullptr;
  void* work = nullptr;  // WorkBytes()
  int64_t batch = 0;
  int32_t groups = 1, in = 0, out = 0;  // channels of one group
  ConvolutionAxis axes[kSpatialAxes];

  int64_t pixels() const { return int64_t{axes[0].size} * axes[1].size * axes[2].size; }
  int64_t windows() const { return int64_t{axes[0].windows} * axes[1].windows * axes[2].windows; }
  int64_t taps() const { return int64_t{axes[0].kernel} * axes[1].kernel * axes[2].kernel; }

  // A product for each group. Output: [out, batch * windows] of depth in * taps. Input:
  // [in, batch * pixels] of depth out * taps. Weights: [out, in * taps] of depth batch * windows.
  ProductShape Shape() const {
    ProductShape shape = {.products = groups};
    if (side == ConvolutionSide::kOutput) {
      shape.rows = out;
      shape.columns = batch * windows();
      shape.depth = in * taps();
    } else if (side == ConvolutionSide::kInput) {
      shape.rows = in;
      shape.columns = batch * pixels();
      shape.depth = out * taps();
    } else {
      shape.rows = out;
      shape.columns = in * taps();
      shape.depth = batch * windows();
    }
    return IsThin(shape) ? shape : WithSplits(shape);
  }
  int64_t WorkBytes() const { return SplitBytes(Shape(), dtype == DType::kF64 ? 8 : 4); }
};

struct ConvolutionTable {
  Error (*convolve)(const Queue&, const ConvolutionLaunch&);
};
ConvolutionTable MakeConvolutionTable();

}  // namespace braid::cuda
