// Operators that ONNX Runtime's optimizers put into files, of its domain com.microsoft: products,
// normalizations behind sums, embeddings.
#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "api/onnx/translators.h"
#include "graph/functional.h"
#include "runtime/base/status.h"

namespace braid::onnx {
namespace {

// An operand of a product as MatMul takes it. `is_batch_swapped`: its rows are axis 0 of the file's
// tensor, before the axes of the batch.
Tensor Operand(Tensor x, bool is_batch_swapped) {
  const int rank = x.shape().rank();
  if (!is_batch_swapped || rank < 3) return x;
  Ints perm(rank);
  std::iota(perm.begin(), perm.end(), 0);
  std::rotate(perm.begin(), perm.begin() + 1, perm.end() - 1);
  return Transpose(x, perm);
}

absl::StatusOr<Tensors> TranslateFusedMatMul(const NodeView& n) {
  const bool is_row = n.rank(0) == 1, is_column = n.rank(1) == 1;
  const Tensor a = Operand(n.in(0), n.Flag("transBatchA"));
  const Tensor b = Operand(n.in(1), n.Flag("transBatchB"));
  // A vector is not transposed.
  const bool transpose_a = n.Flag("transA"), transpose_b = n.Flag("transB");
  Tensor y =
      MatMul(is_row ? ExpandDims(a, 0) : a, is_column ? ExpandDims(b, 1) : b,
             {.transpose_a = transpose_a && !is_row, .transpose_b = transpose_b && !is_column});
  if (is_column) y = Squeeze(y, -1);
  if (is_row) y = Squeeze(y, is_column ? -1 : -2);
  const double alpha = n.Float("alpha", 1);
  return Tensors{alpha == 1 ? y : Scale(y, alpha)};
}

// Of the last axis: y, its mean and the reciprocal of its deviation. Without a mean by the root of
// the mean of squares, and the mean is none.
struct NormOptions {
  Tensor gamma, beta = {};  // beta: or none
  bool has_mean = true;
  double epsilon = 0;
};
Tensors NormalizeRows(const NodeView& n, Tensor x, const NormOptions& options) {
  const Attrs attrs = {{"epsilon", options.epsilon}};
  if (!options.has_mean) {
    const Tensors all = ApplyAll("rms_norm", {x, options.gamma}, attrs);
    if (all.size() != 2) return {};
    return {all[0], Tensor(), ExpandDims(all[1], -1)};
  }
  const Tensor beta =
      options.beta.is_none()
          ? Constant(n.graph(), 0, {.dtype = x.dtype(), .shape = options.gamma.shape()})
          : options.beta;
  const Tensors all = ApplyAll("layer_norm", {x, options.gamma, beta}, attrs);
  if (all.size() != 3) return {};
  return {all[0], ExpandDims(all[1], -1), ExpandDims(all[2], -1)};
}

// input, skip, gamma, and beta if there is a mean, bias: the sum of the first, second and last one
// is normalized, and handed out too.
TranslateFunction SkipNorm(bool has_mean) {
  return [has_mean](const NodeView& n) -> absl::StatusOr<Tensors> {
    NormOptions options = {
        .gamma = n.in(2), .has_mean = has_mean, .epsilon = n.Float("epsilon", 1e-12)};
    if (has_mean) options.beta = n.in(3);
    const int bias = has_mean ? 4 : 3;
    Tensor sum = Add(n.in(0), n.in(1));
    if (n.HasInput(bias)) sum = Add(sum, n.in(bias));
    Tensors all = NormalizeRows(n, sum, options);
    if (all.empty()) return n.graph().status();
    all.push_back(sum);
    return all;
  };
}

// ids, segments, tables of words, positions and segments, gamma, beta, mask, positions.
absl::StatusOr<Tensors> TranslateEmbedLayerNorm(const NodeView& n) {
  constexpr int kIds = 0, kSegments = 1, kSegmentTable = 4, kMask = 7, kPlaces = 8;
  const NormOptions options = {
      .gamma = n.in(5), .beta = n.in(6), .epsilon = n.Float("epsilon", 1e-12)};
  n.Ignore("mask_index_type");  // whether the second output is wanted shows in the outputs
  for (int needed : {2, 3, 5, 6}) {
    if (!n.HasInput(needed)) return Wrong(absl::StrCat("input ", needed, " is missing"));
  }
  if (n.rank(kIds) != 2) return Wrong("ids of two axes are needed");
  const int64_t time = n.shape(kIds)[1];
  Tensor sum = Embedding(n.in(2), n.in(kIds));
  if (n.HasInput(kPlaces)) {
    sum = Add(sum, Embedding(n.in(3), n.in(kPlaces)));
  } else {
    sum = Add(sum, SliceAxis(n.in(3), 0, {.end = time}));
  }
  if (n.HasInput(kSegments) != n.HasInput(kSegmentTable)) {
    return Wrong("segments and their table belong together");
  }
  if (n.HasInput(kSegments)) sum = Add(sum, Embedding(n.in(kSegmentTable), n.in(kSegments)));
  const Tensors all = NormalizeRows(n, sum, options);
  if (all.empty()) return n.graph().status();
  // How many tokens of each row are no padding; zeros without a mask.
  Tensor lengths;
  if (n.HasInput(kMask)) {
    const Tensor one = Constant(n.graph(), 1, {.dtype = n.dtype(kMask)});
    lengths = ReduceSum(Cast(Equal(n.in(kMask), one), DType::kI32), {.axes = {1}});
  } else if (n.HasOutput(1)) {
    lengths = Constant(n.graph(), 0, {.dtype = DType::kI32, .shape = {n.shape(kIds)[0]}});
  }
  return Tensors{all[0], lengths, sum};
}

}  // namespace

void AddMicrosoft(Translators& all) {
  all.Add("com.microsoft.FusedMatMul", {2, 2}, TranslateFusedMatMul);
  all.Add("com.microsoft.SkipLayerNormalization", {3, 5}, SkipNorm(/*has_mean=*/true));
  all.Add("com.microsoft.SkipSimplifiedLayerNormalization", {3, 4}, SkipNorm(/*has_mean=*/false));
  all.Add("com.microsoft.EmbedLayerNormalization", {1, 9}, TranslateEmbedLayerNorm);
}

}  // namespace braid::onnx
