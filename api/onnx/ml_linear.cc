// Linear models of the domain ai.onnx.ml.
#include "absl/strings/str_cat.h"
#include "api/onnx/ml_scores.h"
#include "api/onnx/translators.h"
#include "graph/functional.h"
#include "runtime/base/status.h"

namespace braid::onnx {
namespace {

// x coefficients^T + intercepts: [n, rows] for rows of coefficients [rows, features]. Without
// `rows` (0) as many as there are.
absl::StatusOr<Tensor> LinearScores(const NodeView& n, Tensor x, int64_t rows) {
  const std::vector<double> coefficients = n.Floats("coefficients").value_or(std::vector<double>());
  const std::vector<double> intercepts = n.Floats("intercepts").value_or(std::vector<double>());
  const auto count = static_cast<int64_t>(coefficients.size());
  const auto num_intercepts = static_cast<int64_t>(intercepts.size());
  const int64_t features = x.shape()[1];
  if (rows == 0 && features > 0) rows = count / features;
  if (rows == 0 || features == 0 || count % features != 0 || count / features != rows ||
      (num_intercepts != rows && num_intercepts != 0)) {
    return Wrong(absl::StrCat("it has ", count, " coefficients and ", num_intercepts,
                              " intercepts for ", features, " features", rows > 0 ? " and " : "",
                              rows > 0 ? absl::StrCat(rows, " scores") : ""));
  }
  BRAID_ASSIGN_OR_RETURN(
      const Tensor weights,
      n.Table("coefficients", TableOf(coefficients, {rows, features}, x.dtype())));
  const Tensor scores = MatMul(x, weights, {.transpose_b = true});
  if (intercepts.empty()) return scores;
  BRAID_ASSIGN_OR_RETURN(const Tensor bias,
                         n.Table("intercepts", TableOf(intercepts, {rows}, x.dtype())));
  return Add(scores, bias);
}

// Labels i64 [n] and scores f32 [n, classes].
absl::StatusOr<Tensors> TranslateLinearClassifier(const NodeView& n) {
  n.Ignore("multi_class");
  BRAID_ASSIGN_OR_RETURN(const PostTransform transform, PostTransformOf(n));
  BRAID_ASSIGN_OR_RETURN(const Ints labels, ClassLabels(n, "classlabels_ints"));
  BRAID_ASSIGN_OR_RETURN(const Tensor x, Rows(n));
  BRAID_ASSIGN_OR_RETURN(const Tensor scores, LinearScores(n, x, 0));
  const auto classes = static_cast<int64_t>(labels.size());
  const int64_t rows = scores.shape()[1];
  if (rows == 1 && classes == 2) {
    const Tensor is_second = Cast(Greater(Squeeze(scores, 1), NumberLike(scores, 0)), DType::kI32);
    const Tensor pair = TransformedPair(AddScalar(Neg(scores), 1), scores, transform);
    return Tensors{LabelsOf(is_second, labels), Cast(pair, DType::kF32)};
  }
  if (rows != classes) {
    return Wrong(absl::StrCat("it has ", rows, " scores and ", classes, " labels"));
  }
  if (classes == 1) return Lacking("a classifier with one class");
  return Tensors{LabelsOf(ArgMax(scores), labels),
                 Cast(Transformed(scores, transform), DType::kF32)};
}

absl::StatusOr<Tensors> TranslateLinearRegressor(const NodeView& n) {
  BRAID_ASSIGN_OR_RETURN(const PostTransform transform, PostTransformOf(n));
  BRAID_ASSIGN_OR_RETURN(const Tensor x, Rows(n));
  const int64_t targets = n.Int("targets", 1);
  if (targets <= 0) return Wrong(absl::StrCat("it has ", targets, " targets"));
  BRAID_ASSIGN_OR_RETURN(const Tensor scores, LinearScores(n, x, targets));
  return Tensors{Cast(Transformed(scores, transform), DType::kF32)};
}

}  // namespace

void AddMlLinear(Translators& all) {
  all.Add("ai.onnx.ml.LinearClassifier", {}, TranslateLinearClassifier);
  all.Add("ai.onnx.ml.LinearRegressor", {}, TranslateLinearRegressor);
}

}  // namespace braid::onnx
