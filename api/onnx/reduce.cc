// Reductions over axes, the place of the largest or smallest element, cumulative sums and products.
#include <optional>
#include <utility>

#include "api/onnx/translators.h"
#include "graph/functional.h"
#include "runtime/base/status.h"

namespace braid::onnx {
namespace {

using ReduceFunction = Tensor (*)(Tensor, ReduceOptions, SourceLocation);

// `alone` is what the reduction makes of a single element.
TranslateFunction Reduction(ReduceFunction reduce, Tensor (*alone)(Tensor) = nullptr) {
  return [=](const NodeView& n) -> absl::StatusOr<Tensors> {
    BRAID_ASSIGN_OR_RETURN(const std::optional<Ints> axes, n.ListOrInput("axes", 1));
    const bool keep_dims = n.Flag("keepdims", true);
    if (n.Flag("noop_with_empty_axes") && axes.value_or(Ints()).empty()) {
      return Tensors{alone != nullptr ? alone(n.in(0)) : Identity(n.in(0))};
    }
    return Tensors{
        reduce(n.in(0), {.axes = axes.value_or(Ints()), .keep_dims = keep_dims}, Here())};
  };
}

Tensor ReduceLogSum(Tensor x, ReduceOptions options, SourceLocation where) {
  return Log(ReduceSum(x, std::move(options), where), where);
}

TranslateFunction ArgExtreme(Tensor (*f)(Tensor, int64_t, ArgOptions, SourceLocation)) {
  return [f](const NodeView& n) -> absl::StatusOr<Tensors> {
    BRAID_ASSIGN_OR_RETURN(const int64_t axis, n.Axis("axis", 0));
    const bool keep_dims = n.Flag("keepdims", true);
    const Tensor index =
        Cast(f(n.in(0), axis, {.last = n.Flag("select_last_index")}, Here()), DType::kI64);
    return Tensors{keep_dims ? ExpandDims(index, axis) : index};
  };
}

TranslateFunction Scanned(Tensor (*f)(Tensor, int64_t, ScanOptions, SourceLocation)) {
  return [f](const NodeView& n) -> absl::StatusOr<Tensors> {
    BRAID_ASSIGN_OR_RETURN(const int64_t axis, n.KnownInt(1));
    const ScanOptions options = {.exclusive = n.Flag("exclusive"), .reverse = n.Flag("reverse")};
    return Tensors{f(n.in(0), axis, options, Here())};
  };
}

}  // namespace

void AddReduce(Translators& all) {
  all.Add("ReduceSum", {1, 2}, OnWideNumbers(Reduction(ReduceSum)));
  all.Add("ReduceMean", {1, 2}, Reduction(ReduceMean));
  all.Add("ReduceMax", {1, 2}, OnWideNumbers(Reduction(ReduceMax), U64::kOrder));
  all.Add("ReduceMin", {1, 2}, OnWideNumbers(Reduction(ReduceMin), U64::kOrder));
  all.Add("ReduceProd", {1, 2}, OnWideNumbers(Reduction(ReduceProd)));
  all.Add("ReduceL1", {1, 2}, OnWideNumbers(Reduction(ReduceL1, [](Tensor x) { return Abs(x); })));
  all.Add("ReduceL2", {1, 2}, Reduction(ReduceL2, [](Tensor x) { return Abs(x); }));
  all.Add("ReduceSumSquare", {1, 2},
          OnWideNumbers(Reduction(ReduceSumSquare, [](Tensor x) { return Square(x); })));
  all.Add("ReduceLogSum", {1, 2}, Reduction(ReduceLogSum, [](Tensor x) { return Log(x); }));
  all.Add("ReduceLogSumExp", {1, 2}, Reduction(LogSumExp));
  all.Add("ArgMax", {}, OnWideNumbers(ArgExtreme(ArgMax), U64::kOrder, {}));
  all.Add("ArgMin", {}, OnWideNumbers(ArgExtreme(ArgMin), U64::kOrder, {}));
  all.Add("CumSum", {2, 2}, OnWideNumbers(Scanned(CumSum)));
  all.Add("CumProd", {2, 2}, OnWideNumbers(Scanned(CumProd)));
}

}  // namespace braid::onnx
