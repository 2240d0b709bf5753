#include "graph/functions/losses.h"

#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/functional.h"
#include "graph/functions/operand_checks.h"

namespace braid {
namespace {

Tensor Reduced(Tensor losses, LossReduction reduction, SourceLocation where) {
  switch (reduction) {
    case LossReduction::kNone:
      return losses;
    case LossReduction::kMean:
      return Mean(losses, where);
    case LossReduction::kSum:
      return Sum(losses, where);
  }
  return losses;
}

// What each row counts, or an invalid Tensor if all count 1.
struct RowWeights {
  Tensor labels;  // class numbers
  Tensor of_classes;
  std::optional<int64_t> ignored;
  DType dtype;

  Tensor Make(SourceLocation where) const {
    if (!ignored && !of_classes.valid()) return Tensor();
    if (!ignored) return Gather(of_classes, labels, {}, where);
    const Tensor is_ignored = Equal(labels, IgnoredLabel(where), where);
    const Tensor counts = Cast(LogicalNot(is_ignored, where), dtype, where);
    if (!of_classes.valid()) return counts;
    // Any class will do for a row that counts nothing.
    const Tensor zero = Constant(*labels.graph(), 0, {.dtype = labels.dtype()}, where);
    const Tensor some = Where(is_ignored, zero, labels, where);
    return Mul(counts, Gather(of_classes, some, {}, where), where);
  }

 private:
  Tensor IgnoredLabel(SourceLocation where) const {
    return Constant(*labels.graph(), static_cast<double>(*ignored), {.dtype = labels.dtype()},
                    where);
  }
};

// Losses that are weighted already.
Tensor ReducedBy(Tensor losses, Tensor weights, LossReduction reduction, SourceLocation where) {
  if (reduction != LossReduction::kMean || !weights.valid()) {
    return Reduced(losses, reduction, where);
  }
  return Div(Sum(losses, where), Sum(weights, where), where);
}

Tensor CrossEntropyRows(Tensor logits, Tensor labels, Attrs attrs, SourceLocation where) {
  if (logits.shape().rank() == 0) {
    return Fail(
        logits,
        absl::StrCat("softmax_cross_entropy: logits are ", logits.type().ToString(),
                     ", labels are ", labels.type().ToString(), "; logits need an axis of classes"),
        where);
  }
  // The gradient of the whole goes to logits at the last op: none flows through max and sum.
  Tensor max = ReduceMax(logits, {.axes = {-1}}, where);
  Tensor sum = Apply("sum_exp", {logits, max}, {}, where);
  const std::string_view op =
      IsFloating(labels.dtype()) ? "softmax_cross_entropy" : "sparse_softmax_cross_entropy";
  return Apply(op, {logits, labels, max, sum}, std::move(attrs), where);
}

// An ignored label that its dtype cannot hold is no label of the batch.
std::optional<int64_t> Representable(std::optional<int64_t> ignored, Tensor labels) {
  if (ignored && labels.dtype() == DType::kI32 &&
      (*ignored < std::numeric_limits<int32_t>::min() ||
       *ignored > std::numeric_limits<int32_t>::max())) {
    return std::nullopt;
  }
  return ignored;
}

// Losses of rows whose labels are probabilities.
Tensor DenseCrossEntropy(Tensor logits, Tensor labels, const CrossEntropyOptions& options,
                         SourceLocation where) {
  if (options.weights.valid() || options.ignore_index) {
    return Fail(logits,
                absl::StrCat("cross_entropy: labels are ", labels.type().ToString(),
                             "; weights and ignore_index need class numbers, i32 or i64"),
                where);
  }
  const double smoothing = options.label_smoothing;
  if (smoothing != 0 && labels.shape().rank() > 0) {
    const auto classes = static_cast<double>(labels.shape()[labels.shape().rank() - 1]);
    labels = AddScalar(Scale(labels, 1 - smoothing, where), smoothing / classes, where);
  }
  return Reduced(CrossEntropyRows(logits, labels, {}, where), options.reduction, where);
}

}  // namespace

Tensor SoftmaxCrossEntropy(Tensor logits, Tensor labels, SourceLocation where) {
  if (!AllValid({logits, labels})) return Invalid({logits, labels}, where);
  return CrossEntropyRows(logits, labels, {}, where);
}

Tensor CrossEntropy(Tensor logits, Tensor labels, CrossEntropyOptions options,
                    SourceLocation where) {
  if (!AllValid({logits, labels}) || IsUnusable(options.weights)) {
    return Invalid({logits, labels, options.weights}, where);
  }
  if (IsFloating(labels.dtype())) return DenseCrossEntropy(logits, labels, options, where);
  const std::optional<int64_t> ignored = Representable(options.ignore_index, labels);
  const Tensor weights = options.weights;
  const double smoothing = options.label_smoothing;
  const bool is_smooth_by_weight = weights.valid() && smoothing != 0;
  Attrs attrs;
  if (ignored) attrs.Set("ignore_index", *ignored);
  if (smoothing != 0 && !is_smooth_by_weight) attrs.Set("label_smoothing", smoothing);
  Tensor losses = CrossEntropyRows(logits, labels, std::move(attrs), where);
  if (!losses.valid()) return losses;
  // Of no use to losses that are neither weighted nor divided.
  const bool needs_counts = weights.valid() || options.reduction == LossReduction::kMean;
  const RowWeights row_weights = {labels, weights, ignored, logits.dtype()};
  const Tensor counts = needs_counts ? row_weights.Make(where) : Tensor();
  if (weights.valid()) losses = Mul(losses, counts, where);
  if (is_smooth_by_weight) {
    // The sum over the classes of weight * (log sum exp - logit).
    const int64_t classes = logits.shape()[logits.shape().rank() - 1];
    const Tensor column = ExpandDims(weights, -1, where);
    const Tensor weighted = Squeeze(MatMul(logits, column, {}, where), -1, where);
    const Tensor log_sum = LogSumExp(logits, {.axes = {-1}}, where);
    Tensor spread = Sub(Mul(log_sum, Sum(weights, where), where), weighted, where);
    if (ignored) {
      spread =
          Mul(spread, RowWeights{labels, Tensor(), ignored, logits.dtype()}.Make(where), where);
    }
    losses = Add(Scale(losses, 1 - smoothing, where),
                 Scale(spread, smoothing / static_cast<double>(classes), where), where);
  }
  return ReducedBy(losses, counts, options.reduction, where);
}

Tensor NllLoss(Tensor log_probs, Tensor labels, NllOptions options, SourceLocation where) {
  if (!AllValid({log_probs, labels}) || IsUnusable(options.weights)) {
    return Invalid({log_probs, labels, options.weights}, where);
  }
  const std::optional<int64_t> ignored = Representable(options.ignore_index, labels);
  Attrs attrs;
  if (ignored) attrs.Set("ignore_index", *ignored);
  Tensor losses = Apply("nll", {log_probs, labels}, std::move(attrs), where);
  if (!losses.valid()) return losses;
  const bool needs_counts = options.weights.valid() || options.reduction == LossReduction::kMean;
  const RowWeights row_weights = {labels, options.weights, ignored, log_probs.dtype()};
  const Tensor counts = needs_counts ? row_weights.Make(where) : Tensor();
  if (options.weights.valid()) losses = Mul(losses, counts, where);
  return ReducedBy(losses, counts, options.reduction, where);
}

Tensor BinaryCrossEntropy(Tensor x, Tensor target, LossOptions options, SourceLocation where) {
  return Reduced(Apply("bce", {x, target}, {}, where), options.reduction, where);
}

Tensor BinaryCrossEntropyWithLogits(Tensor x, Tensor target, BceWithLogitsOptions options,
                                    SourceLocation where) {
  Tensor losses;
  if (options.positive_weight.is_none()) {
    losses = Apply("bce_with_logits", {x, target}, {}, where);
  } else {
    const Tensor yes =
        Mul(Mul(target, options.positive_weight, where), Softplus(Neg(x, where), 1, where), where);
    const Tensor no = Mul(AddScalar(Neg(target, where), 1, where), Softplus(x, 1, where), where);
    losses = Add(yes, no, where);
  }
  return Reduced(losses, options.reduction, where);
}

Tensor MseLoss(Tensor x, Tensor target, LossOptions options, SourceLocation where) {
  return Reduced(Square(Sub(x, target, where), where), options.reduction, where);
}

Tensor L1Loss(Tensor x, Tensor target, LossOptions options, SourceLocation where) {
  return Reduced(Abs(Sub(x, target, where), where), options.reduction, where);
}

Tensor HuberLoss(Tensor x, Tensor target, HuberOptions options, SourceLocation where) {
  return Reduced(Apply("huber", {Sub(x, target, where)}, {{"delta", options.delta}}, where),
                 options.reduction, where);
}

Tensor SmoothL1Loss(Tensor x, Tensor target, SmoothL1Options options, SourceLocation where) {
  if (options.beta == 0) return L1Loss(x, target, {.reduction = options.reduction}, where);
  const Tensor huber =
      HuberLoss(x, target, {.delta = options.beta, .reduction = options.reduction}, where);
  return Scale(huber, 1 / options.beta, where);
}

Tensor KlDivergence(Tensor x, Tensor target, KlDivergenceOptions options, SourceLocation where) {
  if (!AllValid({x, target})) return Invalid({x, target}, where);
  if (options.log_target) {
    return Reduced(Mul(Exp(target, where), Sub(target, x, where), where), options.reduction, where);
  }
  // 0 times a finite number is 0.
  const double tiny = target.dtype() == DType::kF16 ? 6e-8 : 1e-37;
  const Tensor log_target = Log(Clip(target, tiny, INFINITY, where), where);
  return Reduced(Mul(target, Sub(log_target, x, where), where), options.reduction, where);
}

Tensor HingeLoss(Tensor x, Tensor target, LossOptions options, SourceLocation where) {
  const Tensor margin = AddScalar(Neg(Mul(x, target, where), where), 1, where);
  return Reduced(Relu(margin, where), options.reduction, where);
}

Tensor CosineSimilarity(Tensor a, Tensor b, CosineSimilarityOptions options, SourceLocation where) {
  const ReduceOptions along = {.axes = {options.axis}};
  const Tensor dot = ReduceSum(Mul(a, b, where), along, where);
  const Tensor norms = Mul(ReduceL2(a, along, where), ReduceL2(b, along, where), where);
  return Div(dot, Clip(norms, options.epsilon, INFINITY, where), where);
}

}  // namespace braid
