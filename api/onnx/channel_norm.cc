// Normalization by channels.
#include "absl/strings/str_cat.h"
#include "api/onnx/translators.h"
#include "graph/functional.h"
#include "runtime/base/status.h"

namespace braid::onnx {
namespace {

// x, gamma, beta, mean, variance. In training mode the outputs are also mean and variance, moved
// towards those of the batch.
absl::StatusOr<Tensors> TranslateBatchNorm(const NodeView& n) {
  const BatchNormOptions options = {.epsilon = n.Float("epsilon", 1e-5)};
  const double momentum = n.Float("momentum", 0.9);
  if (n.Int("spatial", 1) != 1) return Lacking("statistics for each element (spatial 0)");
  const bool is_test = n.opset() < 7 && n.Flag("is_test");
  const bool is_training =
      n.opset() < 14 ? n.num_outputs() > 1 && !is_test : n.Flag("training_mode");
  if (!is_training) {
    return Tensors{BatchNorm(n.in(0), n.in(1), n.in(2), n.in(3), n.in(4), options)};
  }
  if (n.opset() < 14) return Lacking("training before opset 14");
  const BatchNormResult result = BatchNormTraining(n.in(0), n.in(1), n.in(2), options);
  const auto moved = [&](int from, Tensor to) {
    return Add(Scale(n.in(from), momentum), Scale(to, 1 - momentum));
  };
  return Tensors{result.y, moved(3, result.mean), moved(4, result.variance)};
}

absl::StatusOr<Tensors> TranslateInstanceNorm(const NodeView& n) {
  return Tensors{InstanceNorm(n.in(0), n.in(1), n.in(2), {.epsilon = n.Float("epsilon", 1e-5)})};
}

// Before version 21 scale and bias were of the groups.
absl::StatusOr<Tensors> TranslateGroupNorm(const NodeView& n) {
  const GroupNormOptions options = {.groups = n.Int("num_groups", 0),
                                    .epsilon = n.Float("epsilon", 1e-5)};
  n.Ignore("stash_type");  // statistics are f32 at least
  const int64_t channels = n.rank() > 1 ? n.shape()[1] : 0;
  if (options.groups < 1 || channels % options.groups != 0) {
    return Wrong(absl::StrCat(options.groups, " groups of ", channels, " channels"));
  }
  const auto of_channels = [&](int i) {
    return n.opset() < 21 ? RepeatInterleave(n.in(i), channels / options.groups, 0) : n.in(i);
  };
  return Tensors{GroupNorm(n.in(0), of_channels(1), of_channels(2), options)};
}

absl::StatusOr<Tensors> TranslateLrn(const NodeView& n) {
  return Tensors{LocalResponseNorm(n.in(0), {.size = n.Int("size", 0),
                                             .alpha = n.Float("alpha", 1e-4),
                                             .beta = n.Float("beta", 0.75),
                                             .bias = n.Float("bias", 1)})};
}

absl::StatusOr<Tensors> TranslateMeanVariance(const NodeView& n) {
  BRAID_ASSIGN_OR_RETURN(const Ints axes,
                         NormalAxes(n.List("axes").value_or(Ints{0, 2, 3}), n.rank()));
  const ReduceOptions reduce = {.axes = axes, .keep_dims = true};
  const Tensor centered = Sub(n.in(0), ReduceMean(n.in(0), reduce));
  const Tensor deviation = Sqrt(ReduceMean(Square(centered), reduce));
  return Tensors{Div(centered, AddScalar(deviation, 1e-9))};
}

}  // namespace

void AddChannelNorm(Translators& all) {
  all.Add("BatchNormalization", {5, 5}, TranslateBatchNorm);
  all.Add("InstanceNormalization", {3, 3}, TranslateInstanceNorm);
  all.Add("GroupNormalization", {3, 3}, TranslateGroupNorm);
  all.Add("LRN", {}, TranslateLrn);
  all.Add("MeanVarianceNormalization", {}, TranslateMeanVariance);
}

}  // namespace braid::onnx
