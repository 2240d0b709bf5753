// Elementwise operators, activations and matrices.
#include <cmath>
#include <limits>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "api/onnx/idioms.h"
#include "api/onnx/quantize.h"
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

// x >> 1 without sign.
Tensor Halved(Tensor x) {
  const auto number = [&](double value) {
    return Constant(*x.graph(), value, {.dtype = DType::kI64});
  };
  // All bits but the highest: the smallest number's complement.
  const Tensor rest = BitwiseNot(number(std::numeric_limits<int64_t>::min()));
  return BitwiseAnd(ShiftRight(x, number(1)), rest);
}

// Numbers of 64 bits without sign in i64: whether a < b, and a / b.
Tensor IsBelow(Tensor a, Tensor b) {
  const Tensor zero = Constant(*a.graph(), 0, {.dtype = DType::kI64});
  const Tensor are_alike = LogicalNot(LogicalXor(Less(a, zero), Less(b, zero)));
  return Where(are_alike, Less(a, b), Less(b, zero));
}
Tensor UnsignedQuotient(Tensor a, Tensor b) {
  const auto number = [&](double value) {
    return Constant(*a.graph(), value, {.dtype = DType::kI64});
  };
  const Tensor is_large = Less(b, number(0));
  const Tensor divisor = Where(is_large, number(1), b);
  // Twice the half's quotient is at most one too small.
  const Tensor twice = ShiftLeft(Div(Halved(a), divisor), number(1));
  const Tensor rest = Sub(a, Mul(twice, divisor));
  const Tensor quotient = Where(IsBelow(rest, divisor), twice, Add(twice, number(1)));
  return Where(is_large, Where(IsBelow(a, b), number(0), number(1)), quotient);
}

absl::StatusOr<Tensors> TranslateDiv(const NodeView& n) {
  if (n.dtype() != DType::kU64) return OnWideNumbers(Binary(Div))(n);
  const Tensor a = Cast(n.in(0), DType::kI64), b = Cast(n.in(1), DType::kI64);
  return Tensors{Cast(UnsignedQuotient(a, b), DType::kU64)};
}

absl::StatusOr<Tensors> TranslateMod(const NodeView& n) {
  const bool is_fmod = n.Flag("fmod");
  if (n.dtype() == DType::kU64) {
    const Tensor a = Cast(n.in(0), DType::kI64), b = Cast(n.in(1), DType::kI64);
    return Tensors{Cast(Sub(a, Mul(UnsignedQuotient(a, b), b)), DType::kU64)};
  }
  const TranslateFunction mod = [is_fmod](const NodeView& wide) {
    return Tensors{is_fmod ? Fmod(wide.in(0), wide.in(1)) : Mod(wide.in(0), wide.in(1))};
  };
  return OnWideNumbers(mod)(n);
}

absl::StatusOr<Tensors> TranslateBitShift(const NodeView& n) {
  const std::string direction = n.Text("direction", "");
  if (direction == "LEFT") return OnWideNumbers(Binary(ShiftLeft))(n);
  if (direction != "RIGHT") {
    return Wrong(absl::StrCat("direction is '", direction, "'; LEFT or RIGHT is needed"));
  }
  if (n.dtype() != DType::kU64) return OnWideNumbers(Binary(ShiftRight))(n);
  // The first place moves a zero into the highest, so that the others do not move a sign.
  const Tensor x = Cast(n.in(0), DType::kI64), places = Cast(n.in(1), DType::kI64);
  const auto number = [&](double value) {
    return Constant(n.graph(), value, {.dtype = DType::kI64});
  };
  const Tensor none = Equal(places, number(0));
  const Tensor moved = ShiftRight(Halved(x), Maximum(Sub(places, number(1)), number(0)));
  return Tensors{Cast(Where(none, x, moved), DType::kU64)};
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

absl::StatusOr<Tensors> CastTo(const NodeView& n, DType dtype) {
  const bool saturate = n.Flag("saturate", true);
  const std::string rounding = n.Text("round_mode", "up");
  if (!IsCoded(dtype)) return Tensors{Cast(n.in(0), dtype)};
  return Tensors{Cast(n.in(0), dtype, {.saturate = saturate, .rounding = rounding})};
}

absl::StatusOr<Tensors> TranslateCast(const NodeView& n) {
  BRAID_ASSIGN_OR_RETURN(const DType dtype, DTypeOf(n.Int("to", 0)));
  return CastTo(n, dtype);
}

absl::StatusOr<Tensors> TranslateCastLike(const NodeView& n) { return CastTo(n, n.dtype(1)); }

absl::StatusOr<Tensors> TranslateBitCast(const NodeView& n) {
  BRAID_ASSIGN_OR_RETURN(const DType dtype, DTypeOf(n.Int("to", 0)));
  return Tensors{BitCast(n.in(0), dtype)};
}

absl::StatusOr<Tensors> TranslateMatMul(const NodeView& n) {
  // As NumPy's: a vector is a row of the left matrix, a column of the right one.
  const bool is_row = n.rank(0) == 1, is_column = n.rank(1) == 1;
  Tensor y = ProductOfReals(is_row ? ExpandDims(n.in(0), 0) : n.in(0),
                            is_column ? ExpandDims(n.in(1), 1) : n.in(1));
  if (is_column) y = Squeeze(y, y.shape().rank() - 1);
  if (is_row) y = Squeeze(y, y.shape().rank() - (is_column ? 1 : 2));
  return Tensors{y};
}

absl::StatusOr<Tensors> TranslateGemm(const NodeView& n) {
  const double alpha = n.Float("alpha", 1), beta = n.Float("beta", 1);
  n.Ignore("broadcast");  // before version 7: whether input 2 may; shapes say it, too
  const bool transpose_a = n.Flag("transA"), transpose_b = n.Flag("transB");
  Tensor y = transpose_a
                 ? MatMul(n.in(0), n.in(1), {.transpose_a = true, .transpose_b = transpose_b})
                 : ProductOfReals(n.in(0), n.in(1), transpose_b);
  if (alpha != 1) y = Scale(y, alpha);
  if (n.HasInput(2)) y = Add(y, beta != 1 ? Scale(n.in(2), beta) : n.in(2));
  return Tensors{y};
}

}  // namespace

void AddMath(Translators& all) {
  const auto idioms = std::make_shared<const Idioms>();
  const auto sum = [idioms](Tensor a, Tensor b, SourceLocation where) {
    return idioms->Sum(a, b, where);
  };
  const auto product = [idioms](Tensor a, Tensor b, SourceLocation where) {
    return idioms->Product(a, b, where);
  };
  all.Add("Abs", {}, OnWideNumbers(Unary(Abs)));
  all.Add("Neg", {}, OnWideNumbers(Unary(Neg)));
  all.Add("Exp", {}, Unary(Exp));
  all.Add("Log", {}, Unary(Log));
  all.Add("Sqrt", {}, Unary(Sqrt));
  all.Add("Tanh", {}, Unary(Tanh));
  all.Add("Sigmoid", {}, Unary(Sigmoid));
  all.Add("Relu", {}, OnWideNumbers(Unary(Relu)));
  all.Add("Reciprocal", {}, Unary(Reciprocal));
  all.Add("Sign", {}, OnWideNumbers(Unary(Sign)));
  all.Add("Not", {}, Unary(LogicalNot));
  all.Add("Add", {2, 2}, OnWideNumbers(Binary(sum)));
  all.Add("Sub", {2, 2}, OnWideNumbers(Binary(Sub)));
  all.Add("Mul", {2, 2}, OnWideNumbers(Binary(product)));
  all.Add("Div", {2, 2}, TranslateDiv);
  all.Add("Pow", {2, 2}, OnWideNumbers(TranslatePow));
  all.Add("Equal", {2, 2}, OnWideNumbers(Binary(Equal), U64::kNothing, {}));
  all.Add("Less", {2, 2}, OnWideNumbers(Binary(Less), U64::kOrder, {}));
  all.Add("LessOrEqual", {2, 2}, OnWideNumbers(Binary(LessEqual), U64::kOrder, {}));
  all.Add("Greater", {2, 2}, OnWideNumbers(Binary(Greater), U64::kOrder, {}));
  all.Add("GreaterOrEqual", {2, 2}, OnWideNumbers(Binary(GreaterEqual), U64::kOrder, {}));
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
  all.Add("BitwiseAnd", {2, 2}, OnWideNumbers(Binary(BitwiseAnd)));
  all.Add("BitwiseOr", {2, 2}, OnWideNumbers(Binary(BitwiseOr)));
  all.Add("BitwiseXor", {2, 2}, OnWideNumbers(Binary(BitwiseXor)));
  all.Add("BitwiseNot", {}, OnWideNumbers(Unary(BitwiseNot)));
  all.Add("Max", {1, kAnyNumber}, OnWideNumbers(Folded(Maximum), U64::kOrder));
  all.Add("Min", {1, kAnyNumber}, OnWideNumbers(Folded(Minimum), U64::kOrder));
  all.Add("Sum", {1, kAnyNumber}, OnWideNumbers(Folded(Add)));
  all.Add("Mean", {1, kAnyNumber}, TranslateMean);
  all.Add("Clip", {1, 3}, OnWideNumbers(TranslateClip, U64::kOrder));
  all.Add("Cast", {}, TranslateCast);
  all.Add("CastLike", {2, 2}, TranslateCastLike);
  all.Add("BitCast", {}, TranslateBitCast);
  all.Add("MatMul", {2, 2}, TranslateMatMul);
  all.Add("Gemm", {2, 3}, TranslateGemm);
}

}  // namespace braid::onnx
