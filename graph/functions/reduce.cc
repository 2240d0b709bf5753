#include "graph/functions/reduce.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "graph/functional.h"
#include "graph/functions/operand_checks.h"

namespace braid {
namespace {

using Ints = std::vector<int64_t>;

Tensor Reduce(std::string_view op, Tensor x, const ReduceOptions& options, SourceLocation where) {
  if (!x.valid()) return x;
  const std::optional<Ints> axes = NormalizeAll(x, options.axes, op, where);
  if (!axes) return Invalid({x}, where);
  return Apply(op, {x}, {{"axes", *axes}, {"keep_dims", options.keep_dims}}, where);
}

Tensor ReduceBools(std::string_view op, Tensor x, const ReduceOptions& options,
                   SourceLocation where) {
  if (x.valid() && x.dtype() != DType::kBool) {
    return Fail(x, std::string(op) + ": a is " + x.type().ToString() + "; bool is needed", where);
  }
  return Reduce(op == "reduce_any" ? "reduce_max" : "reduce_min", x, options, where);
}

Tensor ArgExtreme(std::string_view op, Tensor x, int64_t axis, ArgOptions options,
                  SourceLocation where) {
  if (!x.valid()) return x;
  const std::optional<int64_t> at = Normalize(x, axis, x.shape().rank(), op, where);
  if (!at) return Invalid({x}, where);
  Attrs attrs = {{"axis", *at}};
  if (options.last) attrs.Set("last", true);
  return Apply(op, {x}, std::move(attrs), where);
}

Tensor Scan(std::string_view op, Tensor x, int64_t axis, ScanOptions options,
            SourceLocation where) {
  if (!x.valid()) return x;
  const std::optional<int64_t> at = Normalize(x, axis, x.shape().rank(), op, where);
  if (!at) return Invalid({x}, where);
  return Apply(op, {x},
               {{"axis", *at}, {"exclusive", options.exclusive}, {"reverse", options.reverse}},
               where);
}

double LargestFinite(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return std::numeric_limits<double>::max();
    case DType::kF16:
      return 65504;
    case DType::kBF16:
      return 3.3895313892515355e38;
    default:
      return std::numeric_limits<float>::max();
  }
}

}  // namespace

Tensor ReduceSum(Tensor x, ReduceOptions options, SourceLocation where) {
  return Reduce("reduce_sum", x, options, where);
}
Tensor ReduceMean(Tensor x, ReduceOptions options, SourceLocation where) {
  return Reduce("reduce_mean", x, options, where);
}
Tensor ReduceMax(Tensor x, ReduceOptions options, SourceLocation where) {
  return Reduce("reduce_max", x, options, where);
}
Tensor ReduceMin(Tensor x, ReduceOptions options, SourceLocation where) {
  return Reduce("reduce_min", x, options, where);
}
Tensor ReduceProd(Tensor x, ReduceOptions options, SourceLocation where) {
  return Reduce("reduce_prod", x, options, where);
}
Tensor ReduceSumSquare(Tensor x, ReduceOptions options, SourceLocation where) {
  return Reduce("reduce_sum_square", x, options, where);
}
Tensor ReduceL1(Tensor x, ReduceOptions options, SourceLocation where) {
  return Reduce("reduce_l1", x, options, where);
}

Tensor ReduceL2(Tensor x, ReduceOptions options, SourceLocation where) {
  const Tensor square = ReduceSumSquare(x, std::move(options), where);
  if (!square.valid()) return square;
  // The root's slope at 0 is infinite, and infinity times 0 is no gradient: no root of 0 is taken.
  const Tensor zero = Constant(*x.graph(), 0, {.dtype = x.dtype()}, where);
  const double tiny = x.dtype() == DType::kF64 ? 1e-300 : (x.dtype() == DType::kF16 ? 6e-5 : 1e-37);
  const Tensor root = Sqrt(Maximum(square, AddScalar(zero, tiny, where), where), where);
  return Where(Equal(square, zero, where), zero, root, where);
}

Tensor LogSumExp(Tensor x, ReduceOptions options, SourceLocation where) {
  if (!x.valid()) return x;
  const std::optional<Ints> axes = NormalizeAll(x, options.axes, "log_sum_exp", where);
  if (!axes) return Invalid({x}, where);
  // The reduced axes become one, behind the others.
  const Shape shape = x.shape();
  Ints perm, merged, kept = shape.dims();
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (std::find(axes->begin(), axes->end(), axis) != axes->end()) continue;
    perm.push_back(axis);
    merged.push_back(shape[axis]);
  }
  int64_t count = 1;
  for (int64_t axis : *axes) {
    perm.push_back(axis);
    count *= shape[static_cast<int>(axis)];
    kept[axis] = 1;
  }
  const Shape rows(merged);
  merged.push_back(count);
  if (!std::is_sorted(perm.begin(), perm.end())) x = Transpose(x, perm, where);
  if (x.shape() != Shape(merged)) x = Reshape(x, Shape(merged), where);
  // Any value in place of the largest gives the same sum, so that no gradient flows through it; a
  // finite one takes no difference of infinities.
  const double limit = LargestFinite(x.dtype());
  const Tensor max =
      Clip(StopGradient(ReduceMax(x, {.axes = {-1}}, where), where), -limit, limit, where);
  const Tensor sum = Add(Log(Apply("sum_exp", {x, max}, {}, where), where), max, where);
  return options.keep_dims ? Reshape(sum, Shape(kept), where) : sum;
}

Tensor Variance(Tensor x, VarianceOptions options, SourceLocation where) {
  if (!x.valid()) return x;
  const std::optional<Ints> axes = NormalizeAll(x, options.axes, "variance", where);
  if (!axes) return Invalid({x}, where);
  double count = 1;
  for (int64_t axis : *axes) count *= static_cast<double>(x.shape()[static_cast<int>(axis)]);
  const Tensor mean = ReduceMean(x, {.axes = *axes, .keep_dims = true}, where);
  const Tensor squares =
      ReduceSumSquare(Sub(x, mean, where), {.axes = *axes, .keep_dims = options.keep_dims}, where);
  return Scale(squares, 1 / (count - options.correction), where);
}
Tensor StandardDeviation(Tensor x, VarianceOptions options, SourceLocation where) {
  return Sqrt(Variance(x, std::move(options), where), where);
}

Tensor ReduceAny(Tensor x, ReduceOptions options, SourceLocation where) {
  return ReduceBools("reduce_any", x, options, where);
}
Tensor ReduceAll(Tensor x, ReduceOptions options, SourceLocation where) {
  return ReduceBools("reduce_all", x, options, where);
}

Tensor Sum(Tensor x, SourceLocation where) { return ReduceSum(x, {}, where); }
Tensor Mean(Tensor x, SourceLocation where) {
  if (x.valid() && x.dtype() == DType::kBool) x = Cast(x, DType::kF32, where);
  return ReduceMean(x, {}, where);
}

Tensor ArgMax(Tensor x, int64_t axis, ArgOptions options, SourceLocation where) {
  return ArgExtreme("argmax", x, axis, options, where);
}
Tensor ArgMin(Tensor x, int64_t axis, ArgOptions options, SourceLocation where) {
  return ArgExtreme("argmin", x, axis, options, where);
}

Tensor CumSum(Tensor x, int64_t axis, ScanOptions options, SourceLocation where) {
  return Scan("cumsum", x, axis, options, where);
}
Tensor CumProd(Tensor x, int64_t axis, ScanOptions options, SourceLocation where) {
  return Scan("cumprod", x, axis, options, where);
}

}  // namespace braid
