// Gathering, scattering, one-hot, sorting, Einstein's summation.
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "api/onnx/quantize.h"
#include "api/onnx/translators.h"
#include "graph/functional.h"
#include "runtime/base/status.h"

namespace braid::onnx {
namespace {

absl::StatusOr<Tensors> TranslateGather(const NodeView& n) {
  BRAID_ASSIGN_OR_RETURN(const int64_t axis, n.Axis("axis", 0));
  const Tensor data = n.in(0), indices = n.in(1);
  // Of a table of bytes only what is gathered becomes reals.
  if (const auto bytes = BytesOf(data); bytes && bytes->are_alike()) {
    return Tensors{Dequantized(Gather(bytes->numbers, indices, {.axis = axis}), bytes->of)};
  }
  return Tensors{Gather(data, indices, {.axis = axis})};
}

absl::StatusOr<Tensors> TranslateGatherElements(const NodeView& n) {
  BRAID_ASSIGN_OR_RETURN(const int64_t axis, n.Axis("axis", 0));
  return Tensors{GatherElements(n.in(0), n.in(1), axis)};
}

absl::StatusOr<Tensors> TranslateGatherNd(const NodeView& n) {
  return Tensors{GatherNd(n.in(0), n.in(1), n.Int("batch_dims", 0))};
}

absl::StatusOr<ScatterReduction> ScatterReductionOf(const NodeView& n) {
  const std::string name = n.Text("reduction", "none");
  if (name == "none") return ScatterReduction::kReplace;
  if (name == "add") return ScatterReduction::kAdd;
  if (name == "mul") return ScatterReduction::kMul;
  if (name == "max") return ScatterReduction::kMax;
  if (name == "min") return ScatterReduction::kMin;
  return Wrong("its reduction is '" + name + "'");
}

absl::StatusOr<Tensors> TranslateScatterElements(const NodeView& n) {
  BRAID_ASSIGN_OR_RETURN(const int64_t axis, n.Axis("axis", 0));
  BRAID_ASSIGN_OR_RETURN(const ScatterReduction reduction, ScatterReductionOf(n));
  return Tensors{
      ScatterElements(n.in(0), n.in(1), n.in(2), {.axis = axis, .reduction = reduction})};
}

absl::StatusOr<Tensors> TranslateScatterNd(const NodeView& n) {
  BRAID_ASSIGN_OR_RETURN(const ScatterReduction reduction, ScatterReductionOf(n));
  return Tensors{ScatterNd(n.in(0), n.in(1), n.in(2), {.reduction = reduction})};
}

// Their order matters to the largest and the smallest, and to sums it must not.
TranslateFunction OnWideScattered(TranslateFunction f) {
  return [f = std::move(f)](const NodeView& n) {
    const std::string reduction = n.Text("reduction", "none");
    const bool is_extreme = reduction == "max" || reduction == "min";
    return OnWideNumbers(f, is_extreme ? U64::kOrder : U64::kNothing)(n);
  };
}

absl::StatusOr<Tensors> TranslateWhere(const NodeView& n) {
  return Tensors{Where(n.in(0), n.in(1), n.in(2))};
}

// Not our one-hot: an index that is outside is nowhere, and no error.
absl::StatusOr<Tensors> TranslateOneHot(const NodeView& n) {
  BRAID_ASSIGN_OR_RETURN(const int64_t depth, n.KnownInt(1));
  BRAID_ASSIGN_OR_RETURN(const std::vector<double> values, n.KnownFloats(2));
  if (values.size() != 2) return Wrong("values must be two: off and on");
  if (depth < 0) return Wrong(absl::StrCat("the depth is ", depth));
  BRAID_ASSIGN_OR_RETURN(const int64_t axis, n.Axis("axis", -1, n.rank() + 1));
  const auto number = [&](DType dtype, double value) {
    return Constant(n.graph(), value, {.dtype = dtype});
  };
  const Tensor indices = ExpandDims(Cast(n.in(0), DType::kI64), axis);
  const Tensor all = number(DType::kI64, static_cast<double>(depth));
  const Tensor is_negative = Less(indices, number(DType::kI64, 0));
  const Tensor at = Where(is_negative, Add(indices, all), indices);
  Ints dims(n.rank() + 1, 1);
  dims[axis] = depth;
  const Tensor is_on = Equal(at, Iota(n.graph(), {DType::kI64, Shape(dims)}, axis));
  const Tensor off = number(n.dtype(2), values[0]), on = number(n.dtype(2), values[1]);
  return Tensors{Where(is_on, on, off)};
}

absl::StatusOr<Tensors> TranslateTopK(const NodeView& n) {
  BRAID_ASSIGN_OR_RETURN(const int64_t axis, n.Axis("axis", -1));
  int64_t k = n.Int("k", 0);
  if (n.HasInput(1)) {
    BRAID_ASSIGN_OR_RETURN(k, n.KnownInt(1));
  }
  n.Ignore("sorted");  // ours are
  const Ordered top = TopK(n.in(0), k, {.axis = axis, .largest = n.Flag("largest", true)});
  return Tensors{top.values, Cast(top.indices, DType::kI64)};
}

// The first lengths[b] slices of batch b in the reverse order, the others as they are.
absl::StatusOr<Tensors> TranslateReverseSequence(const NodeView& n) {
  BRAID_ASSIGN_OR_RETURN(const int64_t batch_axis, n.Axis("batch_axis", 1));
  BRAID_ASSIGN_OR_RETURN(const int64_t time_axis, n.Axis("time_axis", 0));
  if (batch_axis + time_axis != 1) return Wrong("batch_axis and time_axis must be 0 and 1");
  Ints perm(n.rank());
  std::iota(perm.begin(), perm.end(), 0);
  std::swap(perm[0], perm[batch_axis]);
  const Tensor x = Transpose(n.in(0), perm);
  const Shape shape = x.shape();
  if (n.shape(1) != Shape({shape[0]})) {
    return Wrong(absl::StrCat("the lengths are ", n.type(1).ToString(), "; one for each of ",
                              shape[0], " is needed"));
  }
  const Tensor time = Iota(n.graph(), {DType::kI64, {1, shape[1]}}, 1);
  const Tensor lengths = ExpandDims(Cast(n.in(1), DType::kI64), 1);
  const Tensor last = Sub(lengths, Constant(n.graph(), 1, {.dtype = DType::kI64}));
  const Tensor is_inside = Less(time, lengths);
  const Tensor from = Where(is_inside, Sub(last, time), time);
  return Tensors{Transpose(GatherNd(x, ExpandDims(from, 2), 1), perm)};
}

absl::StatusOr<Tensors> TranslateEinsum(const NodeView& n) {
  return Tensors{Einsum(n.Text("equation", ""), n.inputs())};
}

}  // namespace

void AddIndex(Translators& all) {
  all.Add("Gather", {2, 2}, TranslateGather);
  all.Add("GatherElements", {2, 2}, TranslateGatherElements);
  all.Add("GatherND", {2, 2}, TranslateGatherNd);
  all.Add("Scatter", {3, 3}, OnWideScattered(TranslateScatterElements));
  all.Add("ScatterElements", {3, 3}, OnWideScattered(TranslateScatterElements));
  all.Add("ScatterND", {3, 3}, OnWideScattered(TranslateScatterNd));
  all.Add("Where", {3, 3}, TranslateWhere);
  all.Add("OneHot", {3, 3}, TranslateOneHot);
  all.Add("TopK", {1, 2}, OnWideNumbers(TranslateTopK, U64::kOrder));
  all.Add("ReverseSequence", {2, 2}, TranslateReverseSequence);
  all.Add("Einsum", {1, kAnyNumber}, TranslateEinsum);
}

}  // namespace braid::onnx
