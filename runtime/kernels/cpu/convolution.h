// One convolution of fixed shape, or one of its two gradients: chooses who computes it, takes
// memory, and then only runs.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "compiler/plan/channel_blocks.h"
#include "graph/dtype.h"
#include "graph/ops/window.h"
#include "runtime/kernels/functions/window_axes.h"
#include "runtime/kernels/kernel_memory.h"
#include "runtime/kernels/work_memory.h"

namespace braid::cpu {

// Which of the three sides is computed from the other two.
enum class ConvolutionSide { kOutput, kInput, kWeights };

// x [batch, groups * in, space...], w [groups * out, in, kernel...],
// y [batch, groups * out, windows...]; dense, 1 to 3 axes of space.
struct ConvolutionShape {
  ConvolutionSide side = ConvolutionSide::kOutput;
  // f32, f64, bf16 where HasBFloat16Gemm, or u8 with weights of i8 (integer_products.h)
  DType dtype = DType::kF32;
  bool wide_result = false;  // f32 (and the bias) of bf16 operands, i32 of bytes
  int64_t batch = 0, groups = 1, in = 0, out = 0;  // channels of one group
  std::vector<int64_t> space, windows;
  std::vector<WindowAxis> axes;
  bool has_bias = false;                            // kOutput only
  bool x_is_blocked = false, y_is_blocked = false;  // in blocks of channels
  int64_t channel_block = compiler::kWideBlock;     // of those that are; also kWholeBlock
  bool by_winograd = false;                         // Winograd's algorithm, where it pays
  int threads = 1;
  std::shared_ptr<WorkMemory> work = nullptr;  // null: the convolution's own

  int64_t x_elements() const;  // of one image
  int64_t y_elements() const;
  int64_t w_elements() const;
};

// Every problem as one of three axes of space, the missing ones in front with size 1.
struct SpatialAxes {
  int64_t size[kSpatialAxes] = {1, 1, 1}, windows[kSpatialAxes] = {1, 1, 1};
  WindowAxis axis[kSpatialAxes];

  explicit SpatialAxes(const ConvolutionShape& shape);

  int64_t num_pixels() const { return size[0] * size[1] * size[2]; }
  int64_t num_windows() const { return windows[0] * windows[1] * windows[2]; }
  int64_t num_taps() const { return axis[0].kernel * axis[1].kernel * axis[2].kernel; }
};

class Convolution {
 public:
  virtual ~Convolution() = default;
  // Of its own, and of the shape's WorkMemory; nothing is taken before Allocate.
  virtual KernelMemory memory() const = 0;
  // Once, before it runs.
  virtual void Allocate() = 0;
  struct Operands {
    // x and w; y and w; x and y: of the output, the input and the weights.
    const void* first = nullptr;
    const void* second = nullptr;
    const void* bias = nullptr;  // null without one
    void* result = nullptr;
    bool has_same_second = false;  // it holds what it held in the Run before
  };
  virtual void Run(const Operands& operands) = 0;
};

// No operand may be empty. Null if there is none for the type or for blocks.
std::unique_ptr<Convolution> ChooseConvolution(const ConvolutionShape& shape);

// bf16 in blocks of channels, with a result in f32, on the tiles of AMX; null for others.
std::unique_ptr<Convolution> ChooseTileConvolution(const ConvolutionShape& shape);
// The weights' gradient in f32 and blocks of channels; null for others. Best where an image has few
// windows, as oneDNN adds to all the weights image by image.
std::unique_ptr<Convolution> ChooseLaneWeightGradient(const ConvolutionShape& shape);
// By oneDNN; null if it has none but its reference code for this shape. The others take no blocks.
std::unique_ptr<Convolution> ChooseDnnlConvolution(const ConvolutionShape& shape);
// f32 in blocks of channels with windows of 3 x 3, by Winograd's algorithm on tiles of 4 x 4
// windows (Lavin and Gray, 2015), which multiplies a quarter as often; null for others, and unless
// HasWinograd(): oneDNN 2 has it for AVX-512, oneDNN 3 has dropped it. Its rounding errors are
// larger: some 1e-6 of the result's norm, where the sums themselves have some 1e-7.
std::unique_ptr<Convolution> ChooseWinogradConvolution(const ConvolutionShape& shape);
bool HasWinograd();
// f32 and f64: windows gathered into the columns of a matrix, tile by tile, and a matrix product.
std::unique_ptr<Convolution> ChooseGemmConvolution(const ConvolutionShape& shape);

}  // namespace braid::cpu
