// Elementwise operators, activations and matrices.
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "api/onnx/tensor_proto.h"
#include "api/onnx/translators.h"
#include "graph/functional.h"
#include "runtime/base/status.h"

namespace braid::onnx {
namespace {

// The result has the base's type.
absl::StatusOr<Tensors> TranslatePow(const NodeView& n) {
  if (IsFloating(n.dtype(1)) && !IsFloating(n.dtype(0))) {
    const Tensor power = Pow(Cast(n.in(0), DType::kF64), Cast(n.in(1), DType::kF64));
    return Tensors{Cast(power, n.dtype(0))};
  }
  return Tensors{Pow(n.in(0), Cast(n.in(1), n.dtype(0)))};
}

absl::StatusOr<Tensors> TranslateMod(const NodeView& n) {
  const bool is_fmod = n.Flag("fmod");
  return Tensors{is_fmod ? Fmod(n.in(0), n.in(1)) : Mod(n.in(0), n.in(1))};
}

absl::StatusOr<Tensors> TranslateBitShift(const NodeView& n) {
  const std::string direction = n.Text("direction", "");
  if (direction == "LEFT") return Tensors{ShiftLeft(n.in(0), n.in(1))};
  if (direction == "RIGHT") return Tensors{ShiftRight(n.in(0), n.in(1))};
  return Wrong(absl::StrCat("direction is '", direction, "'; LEFT or RIGHT is needed"));
}

absl::StatusOr<Tensors> TranslateIsInf(const NodeView& n) {
  return Tensors{IsInf(n.in(0), {.negative = n.Flag("detect_negative", true),
                                 .positive = n.Flag("detect_positive", true)})};
}

absl::StatusOr<Tensors> TranslateMean(const NodeView& n) {
  Tensor sum = n.in(0);
  for (int i = 1; i < n.num_inputs(); ++i) sum = Add(sum, n.in(i));
  return Tensors{Scale(sum, 1.0 / n.num_inputs())};
}

// Bounds were attributes before version 11. i64 bounds need not be doubles.
absl::StatusOr<Tensors> TranslateClip(const NodeView& n) {
  Tensor x = n.in(0);
  const auto is_number = [&](int i) { return !n.HasInput(i) || n.IsKnown(i); };
  if (n.opset() < 11 || (n.dtype() != DType::kI64 && is_number(1) && is_number(2))) {
    double low = n.opset() < 11 ? n.Float("min", -INFINITY) : -INFINITY;
    double high = n.opset() < 11 ? n.Float("max", INFINITY) : INFINITY;
    if (n.HasInput(1)) {
      BRAID_ASSIGN_OR_RETURN(low, n.KnownFloat(1));
    }
    if (n.HasInput(2)) {
      BRAID_ASSIGN_OR_RETURN(high, n.KnownFloat(2));
    }
    return Tensors{Clip(x, low, high)};
  }
  if (n.HasInput(1)) x = Maximum(x, n.in(1));
  if (n.HasInput(2)) x = Minimum(x, n.in(2));
  return Tensors{x};
}

absl::StatusOr<Tensors> TranslateCast(const NodeView& n) {
  BRAID_ASSIGN_OR_RETURN(const DType dtype, DTypeOf(n.Int("to", 0)));
  return Tensors{Cast(n.in(0), dtype)};
}

absl::StatusOr<Tensors> TranslateCastLike(const NodeView& n) {
  return Tensors{Cast(n.in(0), n.dtype(1))};
}

absl::StatusOr<Tensors> TranslateMatMul(const NodeView& n) {
  // As NumPy's: a vector is a row of the left matrix, a column of the right one.
  const bool is_row = n.rank(0) == 1, is_column = n.rank(1) == 1;
  Tensor y = MatMul(is_row ? ExpandDims(n.in(0), 0) : n.in(0),
                    is_column ? ExpandDims(n.in(1), 1) : n.in(1));
  if (is_column) y = Squeeze(y, y.shape().rank() - 1);
  if (is_row) y = Squeeze(y, y.shape().rank() - (is_column ? 1 : 2));
  return Tensors{y};
}

absl::StatusOr<Tensors> TranslateGemm(const NodeView& n) {
  const double alpha = n.Float("alpha", 1), beta = n.Float("beta", 1);
  Tensor y =
      MatMul(n.in(0), n.in(1), {.transpose_a = n.Flag("transA"), .transpose_b = n.Flag("transB")});
  if (alpha != 1) y = Scale(y, alpha);
  if (n.HasInput(2)) y = Add(y, beta != 1 ? Scale(n.in(2), beta) : n.in(2));
  return Tensors{y};
}

}  // namespace

void AddMath(Translators& all) {
  all.Add("Abs", {}, Unary(Abs));
  all.Add("Neg", {}, Unary(Neg));
  all.Add("Exp", {}, Unary(Exp));
  all.Add("Log", {}, Unary(Log));
  all.Add("Sqrt", {}, Unary(Sqrt));
  all.Add("Tanh", {}, Unary(Tanh));
  all.Add("Sigmoid", {}, Unary(Sigmoid));
  all.Add("Relu", {}, Unary(Relu));
  all.Add("Reciprocal", {}, Unary(Reciprocal));
  all.Add("Sign", {}, Unary(Sign));
  all.Add("Not", {}, Unary(LogicalNot));
  all.Add("Add", {2, 2}, Binary(Add));
  all.Add("Sub", {2, 2}, Binary(Sub));
  all.Add("Mul", {2, 2}, Binary(Mul));
  all.Add("Div", {2, 2}, Binary(Div));
  all.Add("Pow", {2, 2}, TranslatePow);
  all.Add("Equal", {2, 2}, Binary(Equal));
  all.Add("Less", {2, 2}, Binary(Less));
  all.Add("LessOrEqual", {2, 2}, Binary(LessEqual));
  all.Add("Greater", {2, 2}, Binary(Greater));
  all.Add("GreaterOrEqual", {2, 2}, Binary(GreaterEqual));
  all.Add("And", {2, 2}, Binary(LogicalAnd));
  all.Add("Or", {2, 2}, Binary(LogicalOr));
  all.Add("Xor", {2, 2}, Binary(LogicalXor));
  all.Add("Sin", {}, Unary(Sin));
  all.Add("Cos", {}, Unary(Cos));
  all.Add("Tan", {}, Unary(Tan));
  all.Add("Asin", {}, Unary(Asin));
  all.Add("Acos", {}, Unary(Acos));
  all.Add("Atan", {}, Unary(Atan));
  all.Add("Sinh", {}, Unary(Sinh));
  all.Add("Cosh", {}, Unary(Cosh));
  all.Add("Asinh", {}, Unary(Asinh));
  all.Add("Acosh", {}, Unary(Acosh));
  all.Add("Atanh", {}, Unary(Atanh));
  all.Add("Erf", {}, Unary(Erf));
  all.Add("Floor", {}, Unary(Floor));
  all.Add("Ceil", {}, Unary(Ceil));
  all.Add("Round", {}, Unary(Round));
  all.Add("IsNaN", {}, Unary(IsNan));
  all.Add("IsInf", {}, TranslateIsInf);
  all.Add("Mod", {2, 2}, TranslateMod);
  all.Add("BitShift", {2, 2}, TranslateBitShift);
  all.Add("BitwiseAnd", {2, 2}, Binary(BitwiseAnd));
  all.Add("BitwiseOr", {2, 2}, Binary(BitwiseOr));
  all.Add("BitwiseXor", {2, 2}, Binary(BitwiseXor));
  all.Add("BitwiseNot", {}, Unary(BitwiseNot));
  all.Add("Max", {1, kAnyNumber}, Folded(Maximum));
  all.Add("Min", {1, kAnyNumber}, Folded(Minimum));
  all.Add("Sum", {1, kAnyNumber}, Folded(Add));
  all.Add("Mean", {1, kAnyNumber}, TranslateMean);
  all.Add("Clip", {1, 3}, TranslateClip);
  all.Add("Cast", {}, TranslateCast);
  all.Add("CastLike", {2, 2}, TranslateCastLike);
  all.Add("MatMul", {2, 2}, TranslateMatMul);
  all.Add("Gemm", {2, 3}, TranslateGemm);
}

}  // namespace braid::onnx
