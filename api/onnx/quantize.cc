#include "api/onnx/quantize.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "api/onnx/tensor_proto.h"
#include "api/onnx/translators.h"
#include "graph/functional.h"
#include "runtime/base/status.h"

namespace braid::onnx {
namespace {

struct NumberRange {
  double low = 0;
  double high = 0;
};

// Of the types that whole numbers are quantized to.
std::optional<NumberRange> RangeOf(DType dtype) {
  switch (dtype) {
    case DType::kU8:
      return NumberRange{0, 255};
    case DType::kI8:
      return NumberRange{-128, 127};
    case DType::kU16:
      return NumberRange{0, 65535};
    case DType::kI16:
      return NumberRange{-32768, 32767};
    case DType::kU4:
      return NumberRange{0, 15};
    case DType::kI4:
      return NumberRange{-8, 7};
    case DType::kU2:
      return NumberRange{0, 3};
    case DType::kI2:
      return NumberRange{-2, 1};
    default:
      return std::nullopt;
  }
}

// The numbers are floats: they are rounded as floats are, and have no zero point but 0.
bool IsFloatCode(DType dtype) { return IsCoded(dtype) && !IsWholeNumber(dtype); }

Tensor Widened(Tensor numbers) {
  return Cast(numbers, IsFloatCode(numbers.dtype()) ? DType::kF32 : DType::kI32);
}

// How scales lie beside x: one for all, one for each index of `axis`, or one for each `block` of
// these.
struct Spread {
  int64_t axis = 0;
  int64_t block = 0;  // 0: not by blocks
};

absl::StatusOr<Spread> SpreadOf(const NodeView& n) {
  Spread spread = {.axis = n.Int("axis", 1), .block = n.Int("block_size", 0)};
  // It means nothing where there is one scale.
  if (n.shape(1).num_elements() == 1 && spread.block == 0) return Spread{};
  BRAID_ASSIGN_OR_RETURN(spread.axis, NormalAxis(spread.axis, n.rank()));
  if (spread.block < 0) return Wrong(absl::StrCat("block_size is ", spread.block));
  // One block that reaches beyond the end is all of the axis.
  const int64_t size = n.shape()[static_cast<int>(spread.axis)];
  spread.block = std::min(spread.block, std::max<int64_t>(size, 1));
  return spread;
}

// Each element `block` times along an axis, `size` in all.
Tensor Repeated(Tensor x, int64_t axis, int64_t block, int64_t size) {
  return SliceAxis(RepeatInterleave(x, block, axis), axis, {.end = size});
}

// A scale or a zero point, seen beside x; a scalar stays one.
absl::StatusOr<Tensor> Beside(const NodeView& n, int input, const Spread& spread) {
  const Shape shape = n.shape(input);
  const int axis = static_cast<int>(spread.axis);
  if (spread.block > 0) {
    bool fits = shape.rank() == n.rank();
    for (int i = 0; fits && i < n.rank(); ++i) {
      const int64_t size = n.shape()[i];
      fits = shape[i] == (i == axis ? (size + spread.block - 1) / spread.block : size);
    }
    if (fits) return Repeated(n.in(input), axis, spread.block, n.shape()[axis]);
    return Wrong(absl::StrCat("input ", input, " is ", n.type(input).ToString(), "; one for every ",
                              spread.block, " elements along axis ", axis, " of ",
                              n.type(0).ToString(), " is needed"));
  }
  if (shape.num_elements() == 1) return Reshape(n.in(input), Shape());
  if (shape.rank() != 1 || shape[0] != n.shape()[axis]) {
    return Wrong(absl::StrCat("input ", input, " is ", n.type(input).ToString(),
                              "; one element, or as many as axis ", axis, " of ",
                              n.type(0).ToString(), " has, are needed"));
  }
  Ints dims(n.rank(), 1);
  dims[axis] = shape[0];
  return Reshape(n.in(input), Shape(dims));
}

absl::StatusOr<Tensors> TranslateQuantize(const NodeView& n) {
  BRAID_ASSIGN_OR_RETURN(const Spread spread, SpreadOf(n));
  BRAID_ASSIGN_OR_RETURN(const Tensor scale, Beside(n, 1, spread));
  QuantizeOptions options = {.saturate = n.Flag("saturate", true)};
  if (const int64_t type = n.Int("output_dtype", 0); type != 0) {
    BRAID_ASSIGN_OR_RETURN(options.dtype, DTypeOf(type));
  }
  Tensor zero_point;
  if (n.HasInput(2)) {
    BRAID_ASSIGN_OR_RETURN(zero_point, Beside(n, 2, spread));
    options.dtype = n.dtype(2);
  }
  BRAID_RETURN_IF_ERROR(CheckQuantized(options.dtype));
  DType divided = scale.dtype();
  if (const int64_t precision = n.Int("precision", 0); precision != 0) {
    BRAID_ASSIGN_OR_RETURN(divided, DTypeOf(precision));
  }
  if (!IsFloating(divided)) divided = DType::kF32;
  const Tensor quotient = Div(Cast(n.in(0), divided), Cast(scale, divided));
  return Tensors{QuantizedQuotient(quotient, zero_point, options)};
}

absl::StatusOr<Tensors> TranslateDequantize(const NodeView& n) {
  BRAID_ASSIGN_OR_RETURN(const Spread spread, SpreadOf(n));
  Quantization of;
  BRAID_ASSIGN_OR_RETURN(of.scale, Beside(n, 1, spread));
  DType dtype = of.scale.dtype();
  if (const int64_t type = n.Int("output_dtype", 0); type != 0) {
    BRAID_ASSIGN_OR_RETURN(dtype, DTypeOf(type));
  }
  if (!IsFloating(of.scale.dtype())) of.scale = Cast(of.scale, dtype);
  if (n.HasInput(2)) {
    BRAID_ASSIGN_OR_RETURN(of.zero_point, Beside(n, 2, spread));
  }
  return Tensors{Cast(Dequantized(n.in(0), of), dtype)};
}

// The range of x, 0 with it, onto 0 .. 255.
absl::StatusOr<Tensors> TranslateDynamicQuantize(const NodeView& n) {
  const QuantizedReals made = QuantizedByRange(n.in(0));
  return Tensors{made.numbers, made.of.scale, made.of.zero_point};
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

// The scale of a factor: one, or one for each row of a (axis -2) or column of b (axis -1).
Tensor FactorScale(const NodeView& n, int input, int axis) {
  const Tensor scale = Cast(n.in(input), DType::kF32);
  if (n.shape(input).num_elements() == 1) return Reshape(scale, Shape());
  return n.rank(input) == 1 && axis == -2 ? ExpandDims(scale, -1) : scale;
}

absl::StatusOr<Tensors> TranslateQLinearMatMul(const NodeView& n) {
  BRAID_RETURN_IF_ERROR(CheckQuantized(n.dtype(7)));
  BRAID_ASSIGN_OR_RETURN(const Tensor a, CenteredFactor(n, 0, 2, -2));
  BRAID_ASSIGN_OR_RETURN(const Tensor b, CenteredFactor(n, 3, 5, -1));
  BRAID_ASSIGN_OR_RETURN(const Quantization y, ScalarQuantization(n, 6, 7));
  const Tensor scales = Mul(FactorScale(n, 1, -2), FactorScale(n, 4, -1));
  const Tensor quotient = QuotientOf(MatMul(a, b), Div(scales, Cast(y.scale, DType::kF32)));
  return Tensors{QuantizedQuotient(quotient, y.zero_point, {.dtype = n.dtype(7)})};
}

}  // namespace

Tensor Dequantized(Tensor numbers, const Quantization& of) {
  Tensor x = Widened(numbers);
  const bool has_zero = of.zero_point.valid() && !IsFloatCode(numbers.dtype());
  if (has_zero) x = Sub(x, Widened(of.zero_point));
  return Mul(Cast(x, of.scale.dtype()), of.scale);
}

Tensor QuantizedQuotient(Tensor quotient, Tensor zero_point, const QuantizeOptions& options) {
  const std::optional<NumberRange> range = RangeOf(options.dtype);
  if (!range) return Cast(quotient, options.dtype, {.saturate = options.saturate});
  // Sums of 16 bits would not fit into a narrow float.
  const DType wide = quotient.dtype() == DType::kF64 ? DType::kF64 : DType::kF32;
  Tensor moved = Cast(Round(quotient), wide);
  if (zero_point.valid()) moved = Add(moved, Cast(Widened(zero_point), wide));
  return Cast(Clip(moved, range->low, range->high), options.dtype);
}

Tensor QuotientOf(Tensor sum, Tensor scale) { return Mul(Cast(sum, DType::kF32), scale); }

QuantizedReals QuantizedByRange(Tensor x) {
  if (!x.valid()) return {};
  LogicalGraph& graph = *x.graph();
  const Tensor zero = Constant(graph, 0, {.dtype = x.dtype()});
  const Tensor high = Maximum(ReduceMax(x), zero), low = Minimum(ReduceMin(x), zero);
  // A division: a product with 1 / 255 is rounded otherwise.
  const Tensor scale = Div(Sub(high, low), Constant(graph, 255, {.dtype = x.dtype()}));
  const Tensor zero_point = Cast(Round(Clip(Div(Neg(low), scale), 0, 255)), DType::kU8);
  return {QuantizedQuotient(Div(x, scale), zero_point, {}), {scale, zero_point}};
}

absl::Status CheckQuantized(DType dtype) {
  const bool is_float = IsFloatCode(dtype) && dtype != DType::kF8E8M0;
  if (RangeOf(dtype) || is_float) return absl::OkStatus();
  return Lacking(absl::StrCat("quantization to ", std::string(braid::ToString(dtype))));
}

absl::StatusOr<Quantization> ScalarQuantization(const NodeView& n, int scale, int zero_point) {
  Quantization of;
  for (int input : {scale, zero_point}) {
    if (!n.HasInput(input)) continue;
    if (n.shape(input).num_elements() != 1) {
      return Wrong(absl::StrCat("input ", input, " is ", n.type(input).ToString(),
                                "; one element is needed"));
    }
    (input == scale ? of.scale : of.zero_point) = Reshape(n.in(input), Shape());
  }
  return of;
}

absl::StatusOr<Quantization> QuantizationAlong(const NodeView& n, int scale, int zero_point,
                                               int axis, int rank) {
  if (n.shape(scale).num_elements() == 1) return ScalarQuantization(n, scale, zero_point);
  Quantization of;
  Ints dims(rank, 1);
  dims[axis] = n.shape(scale).num_elements();
  of.scale = Reshape(n.in(scale), Shape(dims));
  if (!n.HasInput(zero_point)) return of;
  if (n.shape(zero_point).num_elements() == 1) dims.assign(rank, 1);
  of.zero_point = Reshape(n.in(zero_point), Shape(dims));
  return of;
}

void AddQuantize(Translators& all) {
  all.Add("QuantizeLinear", {2, 3}, TranslateQuantize);
  all.Add("DequantizeLinear", {2, 3}, TranslateDequantize);
  all.Add("DynamicQuantizeLinear", {}, TranslateDynamicQuantize);
  all.Add("MatMulInteger", {2, 4}, TranslateMatMulInteger);
  all.Add("QLinearMatMul", {8, 8}, TranslateQLinearMatMul);
}

}  // namespace braid::onnx
