// Activations.
#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "api/onnx/translators.h"
#include "graph/functional.h"
#include "runtime/base/status.h"

namespace braid::onnx {
namespace {

absl::StatusOr<Tensors> TranslateElu(const NodeView& n) {
  return Tensors{Elu(n.in(0), n.Float("alpha", 1))};
}

absl::StatusOr<Tensors> TranslateCelu(const NodeView& n) {
  const double alpha = n.Float("alpha", 1);
  if (alpha == 0) return Wrong("alpha is 0");
  return Tensors{Celu(n.in(0), alpha)};
}

absl::StatusOr<Tensors> TranslateSelu(const NodeView& n) {
  const SeluOptions standard;
  return Tensors{Selu(n.in(0), {.alpha = n.Float("alpha", standard.alpha),
                                .gamma = n.Float("gamma", standard.gamma)})};
}

absl::StatusOr<Tensors> TranslateLeakyRelu(const NodeView& n) {
  return Tensors{LeakyRelu(n.in(0), n.Float("alpha", 0.01))};
}

// Before version 7 a list of slopes was one for each channel, axis 1, and nothing broadcast.
absl::StatusOr<Tensors> TranslatePrelu(const NodeView& n) {
  Tensor slope = n.in(1);
  if (n.opset() < 7 && n.rank(1) == 1 && n.shape(1)[0] != 1) {
    Ints dims(std::max(n.rank() - 1, 1), 1);
    dims[0] = n.shape(1)[0];
    slope = Reshape(slope, Shape(dims));
  }
  return Tensors{Prelu(n.in(0), slope)};
}

absl::StatusOr<Tensors> TranslateHardSigmoid(const NodeView& n) {
  return Tensors{
      HardSigmoid(n.in(0), {.alpha = n.Float("alpha", 0.2), .beta = n.Float("beta", 0.5)})};
}

absl::StatusOr<Tensors> TranslateThresholdedRelu(const NodeView& n) {
  return Tensors{ThresholdedRelu(n.in(0), n.Float("alpha", 1))};
}

absl::StatusOr<Tensors> TranslateShrink(const NodeView& n) {
  return Tensors{Shrink(n.in(0), {.lambda = n.Float("lambd", 0.5), .bias = n.Float("bias", 0)})};
}

absl::StatusOr<Tensors> TranslateSoftplus(const NodeView& n) { return Tensors{Softplus(n.in(0))}; }

absl::StatusOr<Tensors> TranslateGelu(const NodeView& n) {
  const std::string form = n.Text("approximate", "none");
  if (form != "none" && form != "tanh") return Wrong("approximate is '" + form + "'");
  return Tensors{Gelu(n.in(0), {.approximate = form == "tanh"})};
}

Tensor Swish(Tensor x, double alpha) {
  return alpha == 1 ? Silu(x) : Mul(x, Sigmoid(Scale(x, alpha)));
}

absl::StatusOr<Tensors> TranslateSwish(const NodeView& n) {
  return Tensors{Swish(n.in(0), n.Float("alpha", 1))};
}

absl::StatusOr<Tensors> TranslateSwiGlu(const NodeView& n) {
  if (n.shape(0) != n.shape(1)) {
    return Wrong(absl::StrCat("a is ", n.shape(0).ToString(), ", b is ", n.shape(1).ToString(),
                              "; equal shapes are needed"));
  }
  return Tensors{Mul(Swish(n.in(0), n.Float("alpha", 1)), n.in(1))};
}

absl::StatusOr<Tensors> TranslateQuickGelu(const NodeView& n) {
  return Tensors{Swish(n.in(0), n.Float("alpha", 1.702))};
}

// The approximation, of the sum of x and a bias if there is one.
absl::StatusOr<Tensors> TranslateFastGelu(const NodeView& n) {
  const Tensor x = n.HasInput(1) ? Add(n.in(0), n.in(1)) : n.in(0);
  return Tensors{Gelu(x, {.approximate = true})};
}

absl::StatusOr<Tensors> TranslateBiasGelu(const NodeView& n) {
  return Tensors{Gelu(Add(n.in(0), n.in(1)))};
}

// 1 at the first of the largest along an axis; before version 13 along all axes from it on.
absl::StatusOr<Tensors> TranslateHardmax(const NodeView& n) {
  const bool is_old = n.opset() < 13;
  BRAID_ASSIGN_OR_RETURN(const int64_t axis, n.Axis("axis", is_old ? 1 : -1));
  const Shape shape = n.shape();
  const DType dtype = n.dtype();
  Tensor x = n.in(0);
  if (is_old) {
    int64_t rows = 1, columns = 1;
    for (int i = 0; i < shape.rank(); ++i) (i < axis ? rows : columns) *= shape[i];
    x = Reshape(x, {rows, columns});
    return Tensors{Reshape(OneHot(ArgMax(x), columns, dtype), shape)};
  }
  const Tensor hot = OneHot(ArgMax(x, axis), shape[static_cast<int>(axis)], dtype);
  // The classes come last: back to where they were.
  Ints perm;
  for (int i = 0; i < shape.rank(); ++i) {
    perm.push_back(i < axis ? i : i == axis ? shape.rank() - 1 : i - 1);
  }
  return Tensors{Transpose(hot, perm)};
}

}  // namespace

void AddActivations(Translators& all) {
  all.Add("Elu", {}, TranslateElu);
  all.Add("Celu", {}, TranslateCelu);
  all.Add("Selu", {}, TranslateSelu);
  all.Add("LeakyRelu", {}, TranslateLeakyRelu);
  all.Add("PRelu", {2, 2}, TranslatePrelu);
  all.Add("HardSigmoid", {}, TranslateHardSigmoid);
  all.Add("HardSwish", {}, Unary(HardSwish));
  all.Add("Softplus", {}, TranslateSoftplus);
  all.Add("Softsign", {}, Unary(Softsign));
  all.Add("ThresholdedRelu", {}, TranslateThresholdedRelu);
  all.Add("Shrink", {}, TranslateShrink);
  all.Add("Mish", {}, Unary(Mish));
  all.Add("Hardmax", {}, TranslateHardmax);
  all.Add("Gelu", {}, TranslateGelu);
  all.Add("Swish", {}, TranslateSwish);
  all.Add("SwiGLU", {2, 2}, TranslateSwiGlu);
  // Of ONNX Runtime.
  all.Add("com.microsoft.Gelu", {}, [](const NodeView& n) { return Tensors{Gelu(n.in(0))}; });
  all.Add("com.microsoft.QuickGelu", {}, TranslateQuickGelu);
  all.Add("com.microsoft.FastGelu", {1, 2}, TranslateFastGelu);
  all.Add("com.microsoft.BiasGelu", {2, 2}, TranslateBiasGelu);
}

}  // namespace braid::onnx
