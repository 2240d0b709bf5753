#include "api/onnx/quantize.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "api/onnx/idioms.h"
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

// The operators that Dequantized appends, of scales and zero points that are tensors, and of those
// that are numbers.
constexpr char kCast[] = "cast", kCentered[] = "sub", kScaled[] = "mul";
constexpr char kMoved[] = "add_scalar", kMultiplied[] = "scale";

bool IsByte(DType dtype) { return dtype == DType::kU8 || dtype == DType::kI8; }

// Of one element that is known without running anything.
std::optional<double> NumberOf(Tensor x) {
  if (!x.valid()) return std::nullopt;
  const Op& op = x.graph()->producer(x.id());
  if (op.type != kNumber || x.shape().num_elements() != 1) return std::nullopt;
  return op.attrs.Double("value");
}
Tensor TimesScale(Tensor x, Tensor scale) {
  const std::optional<double> number = NumberOf(scale);
  return number ? Scale(x, *number) : Mul(x, scale);
}

Tensor Shaped(Tensor x, const Shape& shape) { return x.shape() == shape ? x : Reshape(x, shape); }

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
  if (shape.num_elements() == 1) return Shaped(n.in(input), Shape());
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

absl::StatusOr<Tensors> TranslateMatMulInteger(const NodeView& n) {
  BRAID_ASSIGN_OR_RETURN(const Tensor y,
                         IntegerMatMul(n, {.a = 0, .zero_of_a = 2, .b = 1, .zero_of_b = 3}));
  return Tensors{y.dtype() == DType::kI32 ? y : Cast(y, DType::kI32)};
}

// The scale of a factor: one, or one for each row of a (axis -2) or column of b (axis -1).
Tensor FactorScale(const NodeView& n, int input, int axis) {
  const Tensor scale = Cast(n.in(input), DType::kF32);
  if (n.shape(input).num_elements() == 1) return Reshape(scale, Shape());
  return n.rank(input) == 1 && axis == -2 ? ExpandDims(scale, -1) : scale;
}

absl::StatusOr<Tensors> TranslateQLinearMatMul(const NodeView& n) {
  BRAID_RETURN_IF_ERROR(CheckQuantized(n.dtype(7)));
  BRAID_ASSIGN_OR_RETURN(const Tensor sum,
                         IntegerMatMul(n, {.a = 0, .zero_of_a = 2, .b = 3, .zero_of_b = 5}));
  BRAID_ASSIGN_OR_RETURN(const Quantization y, ScalarQuantization(n, 6, 7));
  const Tensor scales = Mul(FactorScale(n, 1, -2), FactorScale(n, 4, -1));
  const Tensor quotient = QuotientOf(sum, Div(scales, Cast(y.scale, DType::kF32)));
  return Tensors{QuantizedQuotient(quotient, y.zero_point, {.dtype = n.dtype(7)})};
}

}  // namespace

Tensor Dequantized(Tensor numbers, const Quantization& of) {
  const DType dtype = of.scale.dtype();
  // The difference of two bytes is exact in every type.
  const bool is_byte = SizeOf(numbers.dtype()) == 1 && !IsFloatCode(numbers.dtype());
  Tensor x = is_byte ? Cast(numbers, dtype) : Widened(numbers);
  const bool has_zero = of.zero_point.valid() && !IsFloatCode(numbers.dtype());
  const std::optional<double> zero = has_zero ? NumberOf(of.zero_point) : 0;
  if (zero && is_byte) {
    if (*zero != 0) x = AddScalar(x, -*zero);
  } else if (has_zero) {
    x = Sub(x, is_byte ? Cast(of.zero_point, dtype) : Widened(of.zero_point));
  }
  return TimesScale(Cast(x, dtype), of.scale);
}

std::optional<DequantizedBytes> BytesOf(Tensor reals) {
  if (!reals.valid() || reals.dtype() != DType::kF32) return std::nullopt;
  LogicalGraph* const graph = reals.graph();
  const auto bytes_of = [&](TensorId id) {
    const Op& cast = graph->producer(id);
    if (cast.type != kCast) return Tensor();
    const Tensor numbers(graph, cast.inputs[0]);
    return IsByte(numbers.dtype()) ? numbers : Tensor();
  };
  // By value: what follows appends constants.
  const Op scaled = graph->producer(reals.id());
  if (scaled.type != kScaled && scaled.type != kMultiplied) return std::nullopt;
  DequantizedBytes bytes;
  const Op centered = graph->producer(scaled.inputs[0]);
  const bool has_zero = centered.type == kCentered || centered.type == kMoved;
  bytes.numbers = bytes_of(has_zero ? centered.inputs[0] : scaled.inputs[0]);
  if (!bytes.numbers.valid()) return std::nullopt;
  const auto number = [&](double value, DType dtype) {
    return Constant(*graph, value, {.dtype = dtype});
  };
  const DType dtype = bytes.numbers.dtype();
  if (centered.type == kCentered) {
    bytes.of.zero_point = bytes_of(centered.inputs[1]);
    if (!bytes.of.zero_point.valid() || bytes.of.zero_point.dtype() != dtype) return std::nullopt;
  } else if (has_zero) {
    const double zero = -centered.attrs.Double("value");
    const NumberRange range = *RangeOf(dtype);
    if (zero != std::round(zero) || zero < range.low || zero > range.high) return std::nullopt;
    bytes.of.zero_point = number(zero, dtype);
  }
  bytes.of.scale = scaled.type == kScaled ? Tensor(graph, scaled.inputs[1])
                                          : number(scaled.attrs.Double("factor"), DType::kF32);
  for (Tensor* of_all : {&bytes.of.scale, &bytes.of.zero_point}) {
    if (of_all->valid() && of_all->shape().num_elements() == 1) *of_all = Shaped(*of_all, Shape());
  }
  if (bytes.numbers.shape() != reals.shape()) return std::nullopt;
  return bytes;
}

bool DequantizedBytes::are_alike() const {
  const auto is_one = [](Tensor x) { return !x.valid() || x.shape().num_elements() == 1; };
  return is_one(of.scale) && is_one(of.zero_point);
}

std::optional<ByteFactors> FactorsOf(Tensor a, Tensor b, int axis) {
  std::optional<DequantizedBytes> of_a = BytesOf(a), of_b = BytesOf(b);
  if (!of_a || !of_b || !of_a->are_alike()) return std::nullopt;
  const int64_t outputs = b.shape()[axis];
  // A sum that does not fit into 32 bits wraps around; the reals' does not.
  constexpr int64_t kMostOfProduct = 255 * 255;
  constexpr int64_t kMostTerms = std::numeric_limits<int32_t>::max() / kMostOfProduct;
  if (outputs == 0 || b.shape().num_elements() / outputs > kMostTerms) return std::nullopt;
  ByteFactors factors = {.a = {of_a->numbers}, .b = {of_b->numbers}};
  const auto is_along = [&](const Shape& shape) {
    if (shape.num_elements() == 1) return true;
    return shape.rank() == b.shape().rank() && shape[axis] == outputs &&
           shape.num_elements() == outputs;
  };
  const auto flat = [](Tensor numbers) {
    const int64_t count = numbers.shape().num_elements();
    return Shaped(numbers, count == 1 ? Shape() : Shape({count}));
  };
  if (!is_along(of_b->of.scale.shape())) return std::nullopt;
  if (const Tensor zero = of_a->of.zero_point; zero.valid()) factors.a.zero_point = flat(zero);
  if (const Tensor zero = of_b->of.zero_point; zero.valid()) {
    if (!is_along(zero.shape())) return std::nullopt;
    factors.b.zero_point = flat(zero);
  }
  const Tensor one = flat(of_a->of.scale), other = flat(of_b->of.scale);
  const std::optional<double> first = NumberOf(one), second = NumberOf(other);
  if (first && second) {
    factors.one_scale = static_cast<float>(*first * *second);  // as f32 rounds it
  } else {
    factors.scale = Mul(one, other);
  }
  return factors;
}

Tensor RealsOf(Tensor sum, const ByteFactors& factors, int axes_behind) {
  const Tensor reals = Cast(sum, DType::kF32);
  if (factors.one_scale) return Scale(reals, *factors.one_scale);
  Ints dims(1 + axes_behind, 1);
  dims[0] = factors.scale.shape().num_elements();
  return Mul(reals, Reshape(factors.scale, Shape(std::move(dims))));
}

Tensor ProductOfReals(Tensor a, Tensor b, bool transpose_b) {
  const bool are_tensors = a.valid() && b.valid();
  if (are_tensors && a.shape().rank() > 1 && b.shape().rank() == 2) {
    if (const auto factors = FactorsOf(a, b, transpose_b ? 0 : 1)) {
      return RealsOf(MatMulInteger(factors->a, factors->b, transpose_b), *factors);
    }
  }
  return MatMul(a, b, {.transpose_b = transpose_b});
}

absl::StatusOr<ByteOperand> ByteOperandOf(const NodeView& n, int numbers, int zero_point) {
  if (!IsByte(n.dtype(numbers))) {
    return Wrong(absl::StrCat("input ", numbers, " is ", n.type(numbers).ToString(),
                              "; u8 or i8 is needed"));
  }
  ByteOperand operand = {.numbers = n.in(numbers)};
  if (!n.HasInput(zero_point)) return operand;
  const int64_t count = n.shape(zero_point).num_elements();
  operand.zero_point = Shaped(n.in(zero_point), count == 1 ? Shape() : Shape({count}));
  return operand;
}

absl::StatusOr<Tensor> IntegerMatMul(const NodeView& n, const IntegerFactors& inputs,
                                     bool transpose_b) {
  const auto is_one = [&](int i) { return !n.HasInput(i) || n.shape(i).num_elements() == 1; };
  const bool are_bytes = IsByte(n.dtype(inputs.a)) && IsByte(n.dtype(inputs.b));
  const bool is_flat =
      are_bytes && n.rank(inputs.a) >= 2 && n.rank(inputs.b) == 2 && is_one(inputs.zero_of_a);
  if (is_flat && (is_one(inputs.zero_of_b) || n.rank(inputs.zero_of_b) == 1)) {
    BRAID_ASSIGN_OR_RETURN(const ByteOperand a, ByteOperandOf(n, inputs.a, inputs.zero_of_a));
    BRAID_ASSIGN_OR_RETURN(const ByteOperand b, ByteOperandOf(n, inputs.b, inputs.zero_of_b));
    return MatMulInteger(a, b, transpose_b);
  }
  // Batches of matrices, zero points of rows and narrow floats in f64, which is exact.
  const auto centered = [&](int input, int at, bool is_of_rows) {
    const Tensor x = Cast(n.in(input), DType::kF64);
    if (!n.HasInput(at)) return x;
    Tensor zero_point = Cast(n.in(at), DType::kF64);
    if (n.shape(at).num_elements() == 1) return Sub(x, Reshape(zero_point, Shape()));
    if (n.rank(at) == 1 && is_of_rows) zero_point = ExpandDims(zero_point, -1);
    return Sub(x, zero_point);
  };
  return MatMul(centered(inputs.a, inputs.zero_of_a, true),
                centered(inputs.b, inputs.zero_of_b, transpose_b), {.transpose_b = transpose_b});
}

Tensor QuantizedQuotient(Tensor quotient, Tensor zero_point, const QuantizeOptions& options) {
  const std::optional<NumberRange> range = RangeOf(options.dtype);
  if (!range) return Cast(quotient, options.dtype, {.saturate = options.saturate});
  // Sums of 16 bits would not fit into a narrow float.
  const DType wide = quotient.dtype() == DType::kF64 ? DType::kF64 : DType::kF32;
  Tensor moved = Cast(Round(quotient), wide);
  if (const auto zero = zero_point.valid() ? NumberOf(zero_point) : 0; zero) {
    if (*zero != 0) moved = AddScalar(moved, *zero);
  } else {
    moved = Add(moved, Cast(Widened(zero_point), wide));
  }
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
    (input == scale ? of.scale : of.zero_point) = Shaped(n.in(input), Shape());
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
