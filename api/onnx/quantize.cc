// Linear quantization to u8, and matrices of quantized numbers.
#include <utility>

#include "absl/strings/str_cat.h"
#include "api/onnx/translators.h"
#include "graph/functional.h"
#include "runtime/base/status.h"

namespace braid::onnx {
namespace {

// A scale or a zero point per element of `axis`, seen beside x; a scalar stays one.
absl::StatusOr<Tensor> Beside(const NodeView& n, int input, int64_t axis) {
  const Shape shape = n.shape(input);
  if (shape.num_elements() == 1) return Reshape(n.in(input), Shape());
  if (shape.rank() != 1 || axis < 0 || axis >= n.rank() ||
      shape[0] != n.shape()[static_cast<int>(axis)]) {
    return Wrong(absl::StrCat("input ", input, " is ", n.type(input).ToString(),
                              "; one element, or as many as axis ", axis, " of ",
                              n.type(0).ToString(), " has, are needed"));
  }
  Ints dims(n.rank(), 1);
  dims[axis] = shape[0];
  return Reshape(n.in(input), Shape(dims));
}

absl::StatusOr<int64_t> AxisOf(const NodeView& n) {
  const int64_t axis = n.Int("axis", 1);
  if (n.Int("block_size", 0) != 0) return Lacking("attribute block_size");
  // It means nothing where there is one scale.
  if (n.shape(1).num_elements() == 1) return 0;
  return NormalAxis(axis, n.rank());
}

Tensor Rounded(Tensor quotient, Tensor zero_point) {
  const Tensor moved = Add(Round(quotient), Cast(zero_point, quotient.dtype()));
  return Cast(Clip(moved, 0, 255), DType::kU8);
}

absl::StatusOr<Tensors> TranslateQuantize(const NodeView& n) {
  BRAID_ASSIGN_OR_RETURN(const int64_t axis, AxisOf(n));
  BRAID_ASSIGN_OR_RETURN(const Tensor scale, Beside(n, 1, axis));
  Tensor zero_point = Constant(n.graph(), 0, {.dtype = DType::kU8});
  if (n.HasInput(2)) {
    BRAID_ASSIGN_OR_RETURN(zero_point, Beside(n, 2, axis));
    if (n.dtype(2) != DType::kU8) return Lacking("a zero point that is not uint8");
  }
  return Tensors{Rounded(Div(Cast(n.in(0), scale.dtype()), scale), zero_point)};
}

absl::StatusOr<Tensors> TranslateDequantize(const NodeView& n) {
  BRAID_ASSIGN_OR_RETURN(const int64_t axis, AxisOf(n));
  BRAID_ASSIGN_OR_RETURN(const Tensor scale, Beside(n, 1, axis));
  Tensor x = Cast(n.in(0), DType::kI32);
  if (n.HasInput(2)) {
    BRAID_ASSIGN_OR_RETURN(const Tensor zero_point, Beside(n, 2, axis));
    x = Sub(x, Cast(zero_point, DType::kI32));
  }
  return Tensors{Mul(Cast(x, scale.dtype()), scale)};
}

// The range of x, 0 with it, onto 0 .. 255.
absl::StatusOr<Tensors> TranslateDynamicQuantize(const NodeView& n) {
  const Tensor x = n.in(0);
  const Tensor zero = Constant(n.graph(), 0, {.dtype = n.dtype()});
  const Tensor high = Maximum(ReduceMax(x), zero), low = Minimum(ReduceMin(x), zero);
  // A division: a product with 1 / 255 is rounded otherwise.
  const Tensor scale = Div(Sub(high, low), Constant(n.graph(), 255, {.dtype = n.dtype()}));
  const Tensor zero_point = Cast(Round(Clip(Div(Neg(low), scale), 0, 255)), DType::kU8);
  return Tensors{Rounded(Div(x, scale), zero_point), scale, zero_point};
}

// Matrix `input` less its zero point (input `at`, perhaps absent), exact in f64. A zero point per
// row or column is along `axis` of the matrix.
absl::StatusOr<Tensor> CenteredFactor(const NodeView& n, int input, int at, int axis) {
  const Tensor x = Cast(n.in(input), DType::kF64);
  if (!n.HasInput(at)) return x;
  Tensor zero_point = Cast(n.in(at), DType::kF64);
  if (n.shape(at).num_elements() == 1) return Sub(x, Reshape(zero_point, Shape()));
  if (n.shape(at).rank() == 1 && axis == -2) zero_point = ExpandDims(zero_point, -1);
  return Sub(x, zero_point);
}

absl::StatusOr<Tensors> TranslateMatMulInteger(const NodeView& n) {
  BRAID_ASSIGN_OR_RETURN(const Tensor a, CenteredFactor(n, 0, 2, -2));
  BRAID_ASSIGN_OR_RETURN(const Tensor b, CenteredFactor(n, 1, 3, -1));
  return Tensors{Cast(MatMul(a, b), DType::kI32)};
}

absl::StatusOr<Tensors> TranslateQLinearMatMul(const NodeView& n) {
  for (int i : {1, 2, 4, 5, 6, 7}) {
    if (n.shape(i).num_elements() != 1) return Lacking("a scale or zero point per row or column");
  }
  if (n.dtype(7) != DType::kU8) return Lacking("a zero point that is not uint8");
  BRAID_ASSIGN_OR_RETURN(const Tensor a, CenteredFactor(n, 0, 2, -2));
  BRAID_ASSIGN_OR_RETURN(const Tensor b, CenteredFactor(n, 3, 5, -1));
  const auto scalar = [&](int i) { return Cast(Reshape(n.in(i), Shape()), DType::kF64); };
  const Tensor scale = Div(Mul(scalar(1), scalar(4)), scalar(6));
  return Tensors{Rounded(Mul(MatMul(a, b), scale), Reshape(n.in(7), Shape()))};
}

}  // namespace

void AddQuantize(Translators& all) {
  all.Add("QuantizeLinear", {2, 3}, TranslateQuantize);
  all.Add("DequantizeLinear", {2, 3}, TranslateDequantize);
  all.Add("DynamicQuantizeLinear", {}, TranslateDynamicQuantize);
  all.Add("MatMulInteger", {2, 4}, TranslateMatMulInteger);
  all.Add("QLinearMatMul", {8, 8}, TranslateQLinearMatMul);
}

}  // namespace braid::onnx
