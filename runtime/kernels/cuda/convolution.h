// Launches of convolutions: cuDNN's where the device has it, else matrix products of operands that
// are gathered from the images.
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
// y [batch, groups * out, windows...]; dense. With the channels last, x is [batch, space...,
// groups * in] and y [batch, windows..., groups * out], and w is as before.
struct ConvolutionLaunch {
  ConvolutionSide side = ConvolutionSide::kOutput;
  DType dtype = DType::kF32;  // of what is multiplied: floating
  bool wide_result = false;   // the result, and the bias, are f32 though the operands are narrow
  bool channels_last = false;
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

  int64_t x_elements() const { return batch * groups * in * pixels(); }
  int64_t w_elements() const { return int64_t{groups} * out * in * taps(); }
  int64_t y_elements() const { return batch * groups * out * windows(); }
  int64_t first_elements() const {
    return side == ConvolutionSide::kInput ? y_elements() : x_elements();
  }
  int64_t second_elements() const {
    return side == ConvolutionSide::kWeights ? y_elements() : w_elements();
  }

  // In the work memory, of narrow operands that are widened for cuDNN, which writes the type that
  // it reads.
  int64_t WidenedBytes(int64_t elements) const {
    return wide_result ? RoundedUp(elements * 4, kWorkAlignment) : 0;
  }
  // Of the weights as cuDNN has them then, [groups * out, kernel..., in], if they are not so
  // already.
  int64_t TapsBytes() const {
    if (!channels_last || taps() == 1 || in == 1 || dtype == DType::kF64) return 0;
    return RoundedUp(w_elements() * (dtype == DType::kF32 || wide_result ? 4 : 2), kWorkAlignment);
  }
  // What cuDNN may use, planned whether or not a card will have it. Its kernels for the matrix
  // units read images whose channels are innermost, eight at a time: it copies the operands there,
  // and the result back.
  int64_t LibraryBytes() const {
    if (dtype == DType::kF64) return 0;
    const int64_t all_in = RoundedUp(int64_t{groups} * in, kChannels);
    const int64_t all_out = RoundedUp(int64_t{groups} * out, kChannels);
    const int64_t copied = batch * (all_in * pixels() + all_out * windows()) +
                           all_out * RoundedUp(in, kChannels) * taps();
    const int64_t bytes = copied * (dtype == DType::kF32 || wide_result ? 4 : 2);
    return (bytes > WinogradBytes() ? bytes : WinogradBytes()) + kLibraryBytes;
  }
  int64_t WorkBytes() const {
    const int64_t own = SplitBytes(Shape(), dtype == DType::kF64 ? 8 : 4);
    const int64_t library = WidenedBytes(first_elements()) + WidenedBytes(second_elements()) +
                            TapsBytes() + LibraryBytes();
    return own > library ? own : library;
  }

 private:
  // Winograd's algorithm for 3 x 3 taps makes 6 x 6 numbers of each tap square, and of each tile of
  // 4 x 4 windows in x and in y.
  int64_t WinogradBytes() const {
    if (dtype != DType::kF32 || axes[0].size != 1 || taps() != 9) return 0;
    int64_t tiles = batch;
    for (int i = 1; i < kSpatialAxes; ++i) {
      if (axes[i].kernel != 3 || axes[i].stride != 1 || axes[i].dilation != 1) return 0;
      tiles *= (axes[i].windows + 3) / 4;
    }
    return 36 * groups * (tiles * (in + out) + int64_t{in} * out) * 4;
  }

  // For indices, and for the partial sums of a gradient of weights whose depth is split: seven
  // times those of 512 x 512 channels and 3 x 3 taps.
  static constexpr int64_t kLibraryBytes = int64_t{64} << 20;
  static constexpr int64_t kChannels = 8;
  static constexpr int64_t kWorkAlignment = 256;
  static int64_t RoundedUp(int64_t number, int64_t to) { return (number + to - 1) / to * to; }
};

struct ConvolutionTable {
  Error (*convolve)(const Queue&, const ConvolutionLaunch&);
};
ConvolutionTable MakeConvolutionTable();

}  // namespace braid::cuda
