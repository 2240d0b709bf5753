// Signals: windows and Fourier transforms.
#include <algorithm>
#include <numbers>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "api/onnx/tensor_proto.h"
#include "api/onnx/translators.h"
#include "graph/functional.h"
#include "runtime/base/status.h"

namespace braid::onnx {
namespace {

constexpr int64_t kMaxSize = 1 << 24;

// The sum of terms[k] cos(2 pi k i / size) over k, for i in [0, size).
TranslateFunction CosineWindow(std::vector<double> terms) {
  return [terms](const NodeView& n) -> absl::StatusOr<Tensors> {
    BRAID_ASSIGN_OR_RETURN(const int64_t size, n.KnownInt(0));
    BRAID_ASSIGN_OR_RETURN(const DType dtype, DTypeOf(n.Int("output_datatype", 1)));
    if (size < 0 || size > kMaxSize) return Wrong(absl::StrCat("the size is ", size));
    const int64_t period = std::max<int64_t>(1, n.Flag("periodic", true) ? size : size - 1);
    const Tensor i = Iota(n.graph(), {DType::kF64, {size}});
    Tensor sum = Constant(n.graph(), terms[0], {.dtype = DType::kF64, .shape = {size}});
    for (size_t k = 1; k < terms.size(); ++k) {
      const double step =
          2 * std::numbers::pi * static_cast<double>(k) / static_cast<double>(period);
      sum = Add(sum, Scale(Cos(Scale(i, step)), terms[k]));
    }
    return Tensors{Cast(sum, dtype)};
  };
}

// cos and sin of 2 pi i k / size for i in [0, size) and k in [0, bins): [size, bins].
struct Waves {
  Tensor cosine, sine;
};
Waves WavesOf(LogicalGraph& graph, int64_t size, int64_t bins, DType dtype) {
  const TensorType type{DType::kI64, {size, bins}};
  const Tensor product = Mul(Iota(graph, type, 0), Iota(graph, type, 1));
  // Whole turns are taken off while they are integers.
  const Tensor turn = Constant(graph, static_cast<double>(size), {.dtype = DType::kI64});
  const Tensor angle = Scale(Cast(Mod(product, turn), DType::kF64),
                             2 * std::numbers::pi / static_cast<double>(size));
  return {Cast(Cos(angle), dtype), Cast(Sin(angle), dtype)};
}

// `axis` of x cut off or filled up with zeros to `size`.
Tensor Resized(Tensor x, int64_t axis, int64_t size) {
  const Shape shape = x.shape();
  const int64_t now = shape[static_cast<int>(axis)];
  Ints zeros(shape.rank(), 0), sizes = shape.dims(), after = zeros;
  sizes[axis] = std::min(now, size);
  after[axis] = std::max<int64_t>(0, size - now);
  return Pad(Slice(x, zeros, sizes), zeros, after);
}

// An attribute before opset 20, then an input.
absl::StatusOr<int64_t> DftAxisOf(const NodeView& n) {
  if (n.opset() < 20) return n.Axis("axis", 1);
  int64_t axis = -2;
  if (n.HasInput(2)) {
    BRAID_ASSIGN_OR_RETURN(axis, n.KnownInt(2));
  }
  return NormalAxis(axis, n.rank());
}

// Of x [..., n..., parts], parts real or real and imaginary, as products with matrices of waves:
// exact, and quick enough for the sizes that models have.
absl::StatusOr<Tensors> TranslateDft(const NodeView& n) {
  const int rank = n.rank();
  BRAID_ASSIGN_OR_RETURN(const int64_t axis, DftAxisOf(n));
  const int64_t parts = rank > 0 ? n.shape()[rank - 1] : 0;
  if (rank < 2 || axis == rank - 1 || parts < 1 || parts > 2) {
    return Wrong(absl::StrCat("the signal is ", n.type(0).ToString(), " and the axis ", axis,
                              "; a last axis of 1 or 2 behind it is needed"));
  }
  const bool is_inverse = n.Flag("inverse"), is_onesided = n.Flag("onesided");
  int64_t size = n.shape()[static_cast<int>(axis)];
  if (n.HasInput(1)) {
    BRAID_ASSIGN_OR_RETURN(size, n.KnownInt(1));
  }
  constexpr int64_t kLongest = 1 << 14;
  if (size < 1 || size > kLongest) return Lacking(absl::StrCat("a transform of size ", size));
  if (is_inverse && is_onesided) return Lacking("an inverse transform of one side");
  // The axis goes to the end; real and imaginary parts apart.
  Ints perm(rank);
  std::iota(perm.begin(), perm.end(), 0);
  std::swap(perm[axis], perm[rank - 2]);
  const Tensor x = Transpose(Resized(n.in(0), axis, size), perm);
  const auto part = [&](int64_t which) {
    Ints begin(rank, 0), sizes = x.shape().dims();
    begin[rank - 1] = which;
    sizes[rank - 1] = 1;
    return Squeeze(Slice(x, begin, sizes), rank - 1);
  };
  const Waves waves = WavesOf(n.graph(), size, is_onesided ? size / 2 + 1 : size, n.dtype());
  const Tensor sine = is_inverse ? waves.sine : Neg(waves.sine);
  Tensor real = MatMul(part(0), waves.cosine), imaginary = MatMul(part(0), sine);
  if (parts == 2) {
    real = Sub(real, MatMul(part(1), sine));
    imaginary = Add(imaginary, MatMul(part(1), waves.cosine));
  }
  Tensor y = Concat({ExpandDims(real, rank - 1), ExpandDims(imaginary, rank - 1)}, rank - 1);
  if (is_inverse) y = Scale(y, 1.0 / static_cast<double>(size));
  return Tensors{Transpose(y, perm)};
}

}  // namespace

void AddSignal(Translators& all) {
  all.Add("HannWindow", {}, CosineWindow({0.5, -0.5}));
  // As the standard rounds them: 25 / 46 and 21 / 46.
  all.Add("HammingWindow", {}, CosineWindow({25.0 / 46, -21.0 / 46}));
  all.Add("BlackmanWindow", {}, CosineWindow({0.42, -0.5, 0.08}));
  all.Add("DFT", {1, 3}, TranslateDft);
}

}  // namespace braid::onnx
