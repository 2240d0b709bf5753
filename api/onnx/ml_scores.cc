#include "api/onnx/ml_scores.h"

#include <numbers>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "api/onnx/onnx.pb.h"
#include "api/onnx/tensor_proto.h"
#include "graph/functional.h"
#include "runtime/base/status.h"

namespace braid::onnx {
namespace {

// sqrt(2) erfinv(2 p - 1) by Winitzki's approximation of the inverse of erf, which runtimes use.
// Terms cancel around p = 1/2: in f64.
Tensor Probit(Tensor p) {
  constexpr double kA = 0.147;
  const Tensor x = AddScalar(Scale(Cast(p, DType::kF64), 2), -1);
  const Tensor logarithm = Log(Mul(AddScalar(Neg(x), 1), AddScalar(x, 1)));
  const Tensor half = AddScalar(Scale(logarithm, 0.5), 2 / (std::numbers::pi * kA));
  const Tensor root = Sqrt(Sub(Square(half), Scale(logarithm, 1 / kA)));
  const Tensor inverse = Mul(Sign(x), Sqrt(Sub(root, half)));
  return Cast(Scale(inverse, std::numbers::sqrt2), p.dtype());
}

// A softmax for which a score of about 0 has next to no weight: exp(x - max), but x exp(-max) near
// 0.
Tensor SoftmaxZero(Tensor x) {
  constexpr double kNearZero = 1e-7;
  const Tensor max = ReduceMax(x, {.axes = {-1}, .keep_dims = true});
  const Tensor is_zero = LessEqual(Abs(x), NumberLike(x, kNearZero));
  const Tensor weights = Where(is_zero, Mul(x, Exp(Neg(max))), Exp(Sub(x, max)));
  const Tensor sum = ReduceSum(weights, {.axes = {-1}, .keep_dims = true});
  const Tensor is_nothing = Equal(sum, NumberLike(x, 0));
  const Tensor divisor = Where(is_nothing, NumberLike(x, 1), sum);
  return Where(is_nothing, NumberLike(x, 0.5), Div(weights, divisor));
}

}  // namespace

Tensor NumberLike(Tensor x, double value) {
  return Constant(*x.graph(), value, {.dtype = x.dtype()});
}

absl::StatusOr<PostTransform> PostTransformOf(const NodeView& n) {
  const std::string name = n.Text("post_transform", "NONE");
  if (name == "NONE") return PostTransform::kNone;
  if (name == "SOFTMAX") return PostTransform::kSoftmax;
  if (name == "LOGISTIC") return PostTransform::kLogistic;
  if (name == "SOFTMAX_ZERO") return PostTransform::kSoftmaxZero;
  if (name == "PROBIT") return PostTransform::kProbit;
  return Wrong(absl::StrCat("post_transform is '", name, "'"));
}

Tensor Transformed(Tensor scores, PostTransform transform) {
  switch (transform) {
    case PostTransform::kNone:
      return scores;
    case PostTransform::kSoftmax:
      return Softmax(scores);
    case PostTransform::kLogistic:
      return Sigmoid(scores);
    case PostTransform::kSoftmaxZero:
      return SoftmaxZero(scores);
    case PostTransform::kProbit:
      return Probit(scores);
  }
  return scores;
}

Tensor TransformedPair(Tensor negative, Tensor positive, PostTransform transform) {
  const bool is_symmetric =
      transform != PostTransform::kNone && transform != PostTransform::kProbit;
  const Tensor first = is_symmetric ? Neg(positive) : negative;
  return Transformed(Concat({first, positive}, 1), transform);
}

absl::StatusOr<std::vector<double>> FloatsOf(const NodeView& n, const std::string& name) {
  const std::string tensor_name = name + "_as_tensor";
  if (const AttributeProto* tensor = n.Find(tensor_name.c_str()); tensor != nullptr) {
    BRAID_ASSIGN_OR_RETURN(const Array array, ToArray(tensor->t(), n.surroundings().file()));
    const Array wide = array.As(DType::kF64);
    return std::vector<double>(wide.data<double>().begin(), wide.data<double>().end());
  }
  return n.Floats(name.c_str()).value_or(std::vector<double>());
}

absl::StatusOr<Ints> ClassLabels(const NodeView& n, const char* integers) {
  const std::optional<std::vector<std::string>> strings = n.Texts("classlabels_strings");
  if (strings && !strings->empty()) {
    n.Ignore(integers);
    Ints places(strings->size());
    std::iota(places.begin(), places.end(), 0);
    return places;
  }
  Ints labels = n.List(integers).value_or(Ints());
  if (labels.empty()) return Wrong(absl::StrCat("it has no ", integers));
  return labels;
}

Tensor LabelsOf(Tensor classes, const Ints& labels) {
  const TensorType type = {DType::kI64, {static_cast<int64_t>(labels.size())}};
  return Gather(Literal(*classes.graph(), type, labels), classes);
}

absl::StatusOr<Tensor> Rows(const NodeView& n) {
  const int rank = n.rank();
  if (rank != 1 && rank != 2) {
    return Wrong(absl::StrCat("the input is ", n.type(0).ToString(), "; rows of features, [n, f], ",
                              "are needed"));
  }
  const Tensor x = Cast(n.in(0), n.dtype() == DType::kF64 ? DType::kF64 : DType::kF32);
  BRAID_RETURN_IF_ERROR(n.graph().status());
  return rank == 1 ? ExpandDims(x, 0) : x;
}

Array TableOf(const std::vector<double>& values, Shape shape, DType dtype) {
  return Array::FromVector(std::move(shape), values).As(dtype);
}

}  // namespace braid::onnx
