// Products of bytes in whole numbers: u8 or i8 less their zero points, the result i32, whose sums
// wrap around. oneDNN multiplies u8 by i8 where the CPU has instructions for it that add in 32
// bits; other operands are moved there, which moves their zero points. What zero points add to a
// product is added here, as oneDNN's own ones round in some of its code.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/kernels/cpu/convolution.h"
#include "runtime/kernels/kernel.h"

namespace braid::cpu {

// The operands a and b of a kernel, as u8 and i8, and their zero points as of these.
class ByteOperands {
 public:
  explicit ByteOperands(const KernelSpec& spec);

  int64_t own_bytes() const;
  void Allocate();
  // Moves what has to be; b only if it may have changed. True if b has.
  bool Read(const KernelRun& run);

  const uint8_t* a() const { return a_; }
  const int8_t* b() const { return b_; }
  int32_t zero_of_a() const { return zero_of_a_; }
  // One, or one for each output; empty if all are 0.
  std::span<const int32_t> zeros_of_b() const { return has_zeros_of_b_ ? zeros_of_b_ : kNone; }
  // Whether they may be others than 0.
  bool may_have_zeros_of_b() const { return may_have_zeros_of_b_; }

 private:
  static constexpr std::span<const int32_t> kNone = {};

  const bool a_is_signed_, b_is_signed_;
  const int64_t a_elements_, b_elements_, num_zeros_;
  const size_t num_inputs_;
  const bool may_have_zeros_of_b_;
  std::vector<uint8_t> moved_a_;
  std::vector<int8_t> moved_b_;
  std::vector<int32_t> zeros_of_b_;
  const uint8_t* a_ = nullptr;
  const int8_t* b_ = nullptr;
  int32_t zero_of_a_ = 0;
  bool has_zeros_of_b_ = false, has_b_ = false;
};

// Where HasByteProducts: whether oneDNN's implementation is exact for sums of so many products.
bool IsExactForBytes(const std::string& implementation, int64_t terms);

// `shape` is of u8 and i8 with a wide result, side kOutput. Null if there is none that is exact.
std::unique_ptr<Convolution> ChooseByteConvolution(const ConvolutionShape& shape);

// What zero points add to a convolution: products with the sums of the weights, and of the pixels,
// that a window has on the image.
class WindowSums {
 public:
  WindowSums(const ConvolutionShape& shape, bool has_zeros_of_b);

  int64_t own_bytes() const;
  void Allocate();
  void Read(const int8_t* w);
  // Of all images, from what the convolution has made.
  void Subtract(const ByteOperands& operands, int32_t* y);

 private:
  // Of the windows along an axis, which taps are on the image. Those of one class have the same.
  struct Axis {
    std::vector<std::vector<int64_t>> taps;  // by class
    std::vector<int64_t> class_of;           // by window
    const std::vector<int64_t>& taps_of(int64_t window) const { return taps[class_of[window]]; }
  };

  template <class F>
  void ForEachClass(F f) const;
  template <class F>
  void ForEachWindow(F f) const;
  // The weights' sums by a's zero point; most often it is as before.
  void Scale(int32_t zero_of_a);
  // Of one image, whose pixels and windows these are.
  void AddUpPixels(const uint8_t* x, int32_t zero_of_a);

  const ConvolutionShape shape_;
  const SpatialAxes axes_;
  const int64_t windows_, pixels_, outputs_;
  const bool has_zeros_of_b_;
  Axis on_axis_[kSpatialAxes];
  int64_t classes_ = 1;           // of windows: one for each combination of the axes'
  std::vector<int32_t> of_tap_;   // of an output's weights
  std::vector<int32_t> weights_;  // by class and output
  std::vector<uint32_t> scaled_;  // these by a's zero point
  int32_t scaled_by_ = 0;
  bool is_scaled_ = false;
  std::vector<int32_t> of_pixel_;   // by group and pixel, if b has zero points
  std::vector<int32_t> of_window_;  // by window and group, likewise
};

// The kernels that `factory` makes of the operator in f32 and f64, with the zero points taken off
// before: in f32 where sums are exact whatever a is, else in f64. `axis` of b is that of the
// outputs.
KernelFactory ByFloatingKernels(KernelFactory factory, std::function<int(const KernelSpec&)> axis);

absl::StatusOr<PlannedKernel> PlanIntegerMatmul(const KernelSpec& spec);

}  // namespace braid::cpu
