// A part of functional.h: losses.
#pragma once

#include <cstdint>
#include <optional>

#include "graph/logical_graph.h"

namespace braid {

// ---- Losses: floating; classes are on the last axis, which may be split over devices
// -------------

// What becomes of the losses of the rows, or of the elements.
enum class LossReduction {
  kNone,  // they stay
  kMean,  // their mean; where they are weighted, their sum over the sum of the weights
  kSum,
};

// -log softmax(logits)[label] for logits [..., c]: [...]. Labels are class numbers, i32 or i64
// [...], or probabilities [..., c] that sum to 1.
Tensor SoftmaxCrossEntropy(Tensor logits, Tensor labels, SourceLocation where = Here());

struct CrossEntropyOptions {
  // [c], of the logits' dtype: what a row of each label counts. None: 1.
  Tensor weights = {};
  // Rows with this label, which need be no class, count nothing.
  std::optional<int64_t> ignore_index = std::nullopt;
  // This much of a row's probability is spread evenly over all classes: Szegedy et al., arXiv
  // 1512.00567. From 0 to 1.
  double label_smoothing = 0;
  LossReduction reduction = LossReduction::kMean;
};
// SoftmaxCrossEntropy, reduced. With weights each class's share of the smoothing counts its weight;
// the mean is over the labels' weights. Weights and ignore_index are for class numbers. A mean over
// no row is NaN. With micro_batches (Job::Minimize) the mean is still that of the whole batch: the
// labels of all micro-batches are read before the first one's gradient.
Tensor CrossEntropy(Tensor logits, Tensor labels, CrossEntropyOptions options = {},
                    SourceLocation where = Here());
struct NllOptions {
  Tensor weights = {};  // as in CrossEntropyOptions
  std::optional<int64_t> ignore_index = std::nullopt;
  LossReduction reduction = LossReduction::kMean;
};
// -log_probs[label] for log_probs [..., c], labels i32 or i64 [...].
Tensor NllLoss(Tensor log_probs, Tensor labels, NllOptions options = {},
               SourceLocation where = Here());

// x and target broadcast in all below.
struct LossOptions {
  LossReduction reduction = LossReduction::kMean;
};
// -target log x - (1 - target) log(1 - x), both in [0, 1]; logarithms end at -100.
Tensor BinaryCrossEntropy(Tensor x, Tensor target, LossOptions options = {},
                          SourceLocation where = Here());
struct BceWithLogitsOptions {
  Tensor positive_weight = {};  // broadcasts; factor of the target's term. None: 1.
  LossReduction reduction = LossReduction::kMean;
};
// The same of sigmoid(x), without overflow or cancellation.
Tensor BinaryCrossEntropyWithLogits(Tensor x, Tensor target, BceWithLogitsOptions options = {},
                                    SourceLocation where = Here());
Tensor MseLoss(Tensor x, Tensor target, LossOptions options = {}, SourceLocation where = Here());
Tensor L1Loss(Tensor x, Tensor target, LossOptions options = {}, SourceLocation where = Here());
struct HuberOptions {
  double delta = 1;  // above 0
  LossReduction reduction = LossReduction::kMean;
};
// d^2 / 2 for d = x - target up to delta, delta (|d| - delta / 2) beyond: Huber, Annals of
// Mathematical Statistics 35, 1964.
Tensor HuberLoss(Tensor x, Tensor target, HuberOptions options = {}, SourceLocation where = Here());
struct SmoothL1Options {
  double beta = 1;  // 0: L1Loss
  LossReduction reduction = LossReduction::kMean;
};
// HuberLoss of delta = beta, divided by beta: Girshick, arXiv 1504.08083.
Tensor SmoothL1Loss(Tensor x, Tensor target, SmoothL1Options options = {},
                    SourceLocation where = Here());
struct KlDivergenceOptions {
  bool log_target = false;  // the target is a logarithm, too
  LossReduction reduction = LossReduction::kMean;
};
// target (log target - x), x being a logarithm; 0 where the target is 0. The divergence of rows is
// the sum over their classes: reduce with kSum and divide by the number of rows.
Tensor KlDivergence(Tensor x, Tensor target, KlDivergenceOptions options = {},
                    SourceLocation where = Here());
// max(0, 1 - x target) for targets of -1 and 1.
Tensor HingeLoss(Tensor x, Tensor target, LossOptions options = {}, SourceLocation where = Here());
struct CosineSimilarityOptions {
  int64_t axis = -1;
  double epsilon = 1e-8;  // least value of the product of the norms
};
// a b / (|a| |b|) along `axis`, which disappears; a and b have one shape.
Tensor CosineSimilarity(Tensor a, Tensor b, CosineSimilarityOptions options = {},
                        SourceLocation where = Here());

}  // namespace braid
