// Quantized operators of the domain com.microsoft, as ONNX Runtime's quantizers write them: what
// they compute is the operator on the real numbers that the whole ones stand for.
// https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
#include <utility>

#include "absl/strings/str_cat.h"
#include "api/onnx/quantize.h"
#include "api/onnx/translators.h"
#include "graph/functional.h"
#include "runtime/base/status.h"

namespace braid::onnx {
namespace {

// The version of the standard's operator that is meant.
constexpr int64_t kRealOpset = 13;

// Input x of a node as real numbers; its scale and zero point stand behind it.
absl::StatusOr<Tensor> RealsAt(const NodeView& n, int x) {
  BRAID_ASSIGN_OR_RETURN(const Quantization of, ScalarQuantization(n, x + 1, x + 2));
  return Dequantized(n.in(x), of);
}

// Real numbers as whole ones of the scale and zero point that inputs `scale` and `scale` + 1 are;
// without the second they are of the type `dtype`.
absl::StatusOr<Tensor> NumbersOf(const NodeView& n, Tensor reals, int scale, DType dtype) {
  BRAID_ASSIGN_OR_RETURN(const Quantization of, ScalarQuantization(n, scale, scale + 1));
  if (n.HasInput(scale + 1)) dtype = n.dtype(scale + 1);
  BRAID_RETURN_IF_ERROR(CheckQuantized(dtype));
  return QuantizedQuotient(Div(reals, of.scale), of.zero_point, {.dtype = dtype});
}

// The inputs are `operands` times a tensor, its scale, its zero point, then the output's.
TranslateFunction OnReals(TranslateFunction f, int operands) {
  return [f = std::move(f), operands](const NodeView& n) -> absl::StatusOr<Tensors> {
    if (n.Flag("channels_last")) return Lacking("channels that come last");
    std::vector<Value> reals;
    for (int i = 0; i < operands; ++i) {
      BRAID_ASSIGN_OR_RETURN(const Tensor real, RealsAt(n, 3 * i));
      BRAID_ASSIGN_OR_RETURN(reals.emplace_back(), n.Made(real));
    }
    BRAID_ASSIGN_OR_RETURN(const Tensors made, f(n.With(std::move(reals), kRealOpset)));
    BRAID_ASSIGN_OR_RETURN(const Tensor numbers, NumbersOf(n, made[0], 3 * operands, n.dtype()));
    return Tensors{numbers};
  };
}

// The softmax's own version is an attribute.
absl::StatusOr<Tensors> TranslateSoftmax(const NodeView& n, const TranslateFunction& softmax) {
  BRAID_ASSIGN_OR_RETURN(const Tensor real, RealsAt(n, 0));
  BRAID_ASSIGN_OR_RETURN(const Value value, n.Made(real));
  const int64_t opset = n.Int("opset", kRealOpset);
  BRAID_ASSIGN_OR_RETURN(const Tensors made, softmax(n.With({value}, opset)));
  BRAID_ASSIGN_OR_RETURN(const Tensor numbers, NumbersOf(n, made[0], 3, n.dtype()));
  return Tensors{numbers};
}

// The output's scale and zero point, then the operands'.
absl::StatusOr<Tensors> TranslateConcat(const NodeView& n) {
  if ((n.num_inputs() - 2) % 3 != 0) {
    return Wrong(
        absl::StrCat("it has ", n.num_inputs(), " inputs; 2 and a multiple of 3 are needed"));
  }
  BRAID_ASSIGN_OR_RETURN(const int64_t axis, n.Axis("axis", 0, n.rank(2)));
  Tensors parts;
  for (int i = 2; i < n.num_inputs(); i += 3) {
    BRAID_ASSIGN_OR_RETURN(const Tensor real, RealsAt(n, i));
    parts.push_back(real);
  }
  BRAID_ASSIGN_OR_RETURN(const Tensor numbers, NumbersOf(n, Concat(parts, axis), 0, n.dtype(2)));
  return Tensors{numbers};
}

// a, b with a scale for each of its columns perhaps, a bias in units of both scales; without an
// output scale the result is real.
absl::StatusOr<Tensors> TranslateGemm(const NodeView& n) {
  const double alpha = n.Float("alpha", 1);
  const bool transpose_b = n.Flag("transB");
  BRAID_ASSIGN_OR_RETURN(const Quantization of_a, ScalarQuantization(n, 1, 2));
  BRAID_ASSIGN_OR_RETURN(const Quantization of_b,
                         QuantizationAlong(n, 4, 5, transpose_b ? 0 : 1, n.rank(3)));
  BRAID_ASSIGN_OR_RETURN(ByteOperand a, ByteOperandOf(n, 0, 2));
  BRAID_ASSIGN_OR_RETURN(const ByteOperand b, ByteOperandOf(n, 3, 5));
  if (n.Flag("transA")) a.numbers = Transpose(a.numbers, {1, 0});
  Tensor y = MatMulInteger(a, b, transpose_b);
  if (n.HasInput(6)) y = Add(y, n.in(6));
  // A scale of each column lies along b's columns, and so along y's.
  Tensor scale = of_b.scale;
  if (scale.shape().rank() > 0) scale = Reshape(scale, {scale.shape().num_elements()});
  scale = Mul(of_a.scale, scale);
  if (alpha != 1) scale = Scale(scale, alpha);
  if (!n.HasInput(7)) return Tensors{QuotientOf(y, scale)};
  BRAID_ASSIGN_OR_RETURN(const Quantization of_y, ScalarQuantization(n, 7, 8));
  const DType dtype = n.HasInput(8) ? n.dtype(8) : n.dtype();
  BRAID_RETURN_IF_ERROR(CheckQuantized(dtype));
  return Tensors{
      QuantizedQuotient(QuotientOf(y, Div(scale, of_y.scale)), of_y.zero_point, {.dtype = dtype})};
}

// A whole matrix or the last axis of b: a scale of each column.
absl::StatusOr<Tensor> RealFactor(const NodeView& n, int x, int scale, int zero_point) {
  BRAID_ASSIGN_OR_RETURN(const Quantization of,
                         QuantizationAlong(n, scale, zero_point, n.rank(x) - 1, n.rank(x)));
  return Dequantized(n.in(x), of);
}

// a, b, their scales, their zero points, a bias: real.
absl::StatusOr<Tensors> TranslateMatMulIntegerToFloat(const NodeView& n) {
  BRAID_ASSIGN_OR_RETURN(const Tensor a, RealFactor(n, 0, 2, 4));
  BRAID_ASSIGN_OR_RETURN(const Tensor b, RealFactor(n, 1, 3, 5));
  const Tensor y = ProductOfReals(a, b);
  return Tensors{n.HasInput(6) ? Add(y, n.in(6)) : y};
}

// a is quantized by its own range; b, its scale, its zero point, a bias.
TranslateFunction DynamicMatMul(TranslateFunction quantize) {
  return [quantize = std::move(quantize)](const NodeView& n) -> absl::StatusOr<Tensors> {
    BRAID_ASSIGN_OR_RETURN(const Tensors a, quantize(n.With({n.value(0)}, kRealOpset)));
    BRAID_ASSIGN_OR_RETURN(const Tensor b, RealFactor(n, 1, 2, 3));
    const Tensor y = ProductOfReals(Dequantized(a[0], {.scale = a[1], .zero_point = a[2]}), b);
    return Tensors{n.HasInput(4) ? Add(y, n.in(4)) : y};
  };
}

// Bytes whose parts of `bits` bits are numbers, the lowest first, along the last axis.
Tensor Unpacked(Tensor bytes, int64_t bits) {
  if (bits == 8) return Cast(bytes, DType::kI32);
  const int64_t parts = 8 / bits;
  const Tensor wide = ExpandDims(Cast(bytes, DType::kI32), -1);
  std::vector<int64_t> places;
  for (int64_t i = 0; i < parts; ++i) places.push_back(i * bits);
  const Tensor moved = ShiftRight(wide, Literal(*bytes.graph(), {DType::kI32, {parts}}, places));
  const Tensor mask =
      Constant(*bytes.graph(), static_cast<double>((1 << bits) - 1), {.dtype = DType::kI32});
  const Shape shape = bytes.shape();
  Ints dims(shape.begin(), shape.end());
  dims.back() *= parts;
  return Reshape(BitwiseAnd(moved, mask), Shape(dims));
}

// a times the transpose of b, whose rows are quantized by blocks: b is [rows, blocks, bytes].
absl::StatusOr<Tensors> TranslateMatMulNBits(const NodeView& n) {
  const int64_t columns = n.Int("K", 0), rows = n.Int("N", 0), bits = n.Int("bits", 4);
  const int64_t block = n.Int("block_size", 0);
  n.Ignore("accuracy_level");  // real numbers are multiplied
  constexpr int64_t kMost = int64_t{1} << 28;
  const bool is_sized = block > 0 && columns > 0 && rows > 0 && block <= kMost &&
                        columns <= kMost && rows <= kMost && block * bits % 8 == 0;
  if ((bits != 2 && bits != 4 && bits != 8) || !is_sized) {
    return Lacking(absl::StrCat("numbers of ", bits, " bits in blocks of ", block));
  }
  if (n.HasInput(4)) return Lacking("an order of the blocks (g_idx)");
  const int64_t blocks = (columns + block - 1) / block;
  if (n.shape(1).num_elements() != rows * blocks * (block * bits / 8)) {
    return Wrong(absl::StrCat("b is ", n.type(1).ToString(), "; ", rows, " x ", blocks,
                              " blocks of ", block, " numbers are needed"));
  }
  Tensor b = Unpacked(Reshape(n.in(1), {rows, blocks, block * bits / 8}), bits);
  Tensor zero = Constant(n.graph(), static_cast<double>(1 << (bits - 1)), {.dtype = DType::kI32});
  const Tensor scale = Reshape(n.in(2), {rows, blocks, 1});
  if (n.HasInput(3)) {
    const int64_t bytes = (blocks * bits + 7) / 8;
    if (n.dtype(3) != DType::kU8 || n.shape(3).num_elements() != rows * bytes) {
      return Lacking("zero points that are not packed");
    }
    zero = SliceAxis(Unpacked(Reshape(n.in(3), {rows, bytes}), bits), 1, {.end = blocks});
    zero = Reshape(zero, {rows, blocks, 1});
  }
  b = Reshape(Mul(Cast(Sub(b, zero), scale.dtype()), scale), {rows, blocks * block});
  b = SliceAxis(b, 1, {.end = columns});
  const Tensor y = MatMul(n.in(0), b, {.transpose_b = true});
  return Tensors{n.HasInput(5) ? Add(y, n.in(5)) : y};
}

}  // namespace

void AddMicrosoftQuantize(Translators& all) {
  const auto real = [&all](const char* op) { return all.Find(op)->translate; };
  for (const char* op : {"Add", "Mul"}) {
    all.Add(absl::StrCat("com.microsoft.QLinear", op), {7, 8}, OnReals(real(op), 2));
  }
  for (const char* op :
       {"Sigmoid", "LeakyRelu", "AveragePool", "GlobalAveragePool", "ReduceMean"}) {
    all.Add(absl::StrCat("com.microsoft.QLinear", op), {4, 5}, OnReals(real(op), 1));
  }
  all.Add("com.microsoft.QLinearSoftmax", {4, 5},
          [softmax = real("Softmax")](const NodeView& n) { return TranslateSoftmax(n, softmax); });
  all.Add("com.microsoft.QLinearConcat", {5, kAnyNumber}, TranslateConcat);
  all.Add("com.microsoft.QGemm", {6, 9}, TranslateGemm);
  all.Add("com.microsoft.MatMulIntegerToFloat", {4, 7}, TranslateMatMulIntegerToFloat);
  all.Add("com.microsoft.DynamicQuantizeMatMul", {3, 5},
          DynamicMatMul(real("DynamicQuantizeLinear")));
  all.Add("com.microsoft.MatMulNBits", {3, 6}, TranslateMatMulNBits);
  for (const char* op : {"QuantizeLinear", "DequantizeLinear"}) {
    all.Add(absl::StrCat("com.microsoft.", op), {2, 3}, real(op));
  }
}

}  // namespace braid::onnx
