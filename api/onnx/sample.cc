#include "api/onnx/sample.h"

#include <utility>

#include "graph/functional.h"

namespace braid::onnx {
namespace {

int NumTaps(SampleMode mode) {
  return mode == SampleMode::kNearest ? 1 : mode == SampleMode::kLinear ? 2 : 4;
}

Tensor NumberLike(Tensor x, double value) {
  return Constant(*x.graph(), value, {.dtype = x.dtype()});
}

// x where it is within [low, high], else x mirrored there as often as it takes.
Tensor Reflected(Tensor x, double low, double high) {
  const double range = high - low;
  if (range <= 0) return Scale(x, 0);
  const Tensor turn = Mod(AddScalar(x, -low), NumberLike(x, 2 * range));
  return AddScalar(Neg(Abs(AddScalar(turn, -range))), high);
}

// Which elements of one axis points are made of, and how much of each: [rows, points, taps].
struct AxisTaps {
  Tensor index, weights;  // as in SampleTaps
};

class Axis {
 public:
  Axis(int64_t size, const SampleOptions& options)
      : options_(options),
        last_(static_cast<double>(size - 1)),
        low_(options.ends_in_elements ? 0 : -0.5),
        high_(last_ - low_) {}

  AxisTaps TapsOf(Tensor position) const {
    const bool is_nearest = options_.mode == SampleMode::kNearest;
    Tensor x = Padded(is_nearest ? Round(position) : position);
    const Tensor below = Floor(x);
    x = ExpandDims(x, 2);
    const int taps = NumTaps(options_.mode);
    const Tensor first = ExpandDims(taps == 4 ? AddScalar(below, -1) : below, 2);
    const Tensor element = Add(first, Iota(*x.graph(), {x.dtype(), {1, 1, taps}}, 2));
    AxisTaps result = {.index = Cast(Clip(Padded(element), 0, last_), DType::kI64), .weights = {}};
    if (!is_nearest) result.weights = Kernel(Abs(Sub(x, element)));
    if (options_.padding == SamplePadding::kZeros) {
      const Tensor is_inside = LogicalAnd(GreaterEqual(element, NumberLike(element, 0)),
                                          LessEqual(element, NumberLike(element, last_)));
      result.weights =
          is_nearest ? is_inside : Where(is_inside, result.weights, NumberLike(element, 0));
    }
    return result;
  }

 private:
  Tensor Padded(Tensor x) const {
    if (options_.padding == SamplePadding::kZeros) return x;
    const Tensor moved =
        options_.padding == SamplePadding::kBorder ? Clip(x, 0, last_) : Reflected(x, low_, high_);
    const Tensor is_outside = LogicalOr(Less(x, NumberLike(x, low_)),  //
                                        Greater(x, NumberLike(x, high_)));
    return Where(is_outside, moved, x);
  }

  // Keys, "Cubic Convolution Interpolation for Digital Image Processing", 1981.
  Tensor Kernel(Tensor distance) const {
    if (options_.mode == SampleMode::kLinear) return AddScalar(Neg(distance), 1);
    constexpr double kA = -0.75;
    const Tensor& d = distance;
    const Tensor near = AddScalar(Mul(Mul(AddScalar(Scale(d, kA + 2), -(kA + 3)), d), d), 1);
    const Tensor far =
        AddScalar(Mul(AddScalar(Mul(AddScalar(Scale(d, kA), -5 * kA), d), 8 * kA), d), -4 * kA);
    return Where(LessEqual(d, NumberLike(d, 1)), near, far);
  }

  const SampleOptions& options_;
  const double last_, low_, high_;
};

}  // namespace

DType WideEnough(DType dtype) { return dtype == DType::kF64 ? dtype : DType::kF32; }

SampleTaps TapsAt(Tensor x, const std::vector<Tensor>& positions, const SampleOptions& options) {
  if (!x.valid() || positions.empty() || !positions[0].valid()) return {};
  LogicalGraph& graph = *x.graph();
  const Shape shape = x.shape();
  const auto axes = static_cast<int>(positions.size());
  const int64_t rows = positions[0].shape()[0], points = positions[0].shape()[1];
  const int64_t taps = NumTaps(options.mode);
  const auto number = [&](int64_t value) {
    return Constant(graph, static_cast<double>(value), {.dtype = DType::kI64});
  };
  // Every axis has a dim of its taps; their places in the plane and their weights multiply out.
  Tensor place, weights;
  int64_t plane = 1, all_taps = 1;
  for (int axis = 0; axis < axes; ++axis) {
    const AxisTaps here = Axis(shape[2 + axis], options).TapsOf(positions[axis]);
    std::vector<int64_t> dims(2 + axes, 1);
    dims[0] = rows, dims[1] = points, dims[2 + axis] = taps;
    const Tensor index = Reshape(here.index, Shape(dims));
    place = axis == 0 ? index : Add(Mul(place, number(shape[2 + axis])), index);
    plane *= shape[2 + axis];
    all_taps *= taps;
    if (!here.weights.valid()) continue;
    const Tensor weight = Reshape(here.weights, Shape(dims));
    weights = axis == 0                              ? weight
              : options.mode == SampleMode::kNearest ? LogicalAnd(weights, weight)
                                                     : Mul(weights, weight);
  }
  place = Reshape(place, {rows, points, all_taps});
  SampleTaps result;
  if (weights.valid()) result.weights = Reshape(weights, {rows, points, all_taps, 1});
  const Tensor table = Transpose(Reshape(x, {shape[0], shape[1], plane}), {0, 2, 1});
  if (options.images.valid()) {
    const Tensor first = Reshape(Mul(options.images, number(plane)), {rows, 1, 1});
    result.values = Gather(Reshape(table, {shape[0] * plane, shape[1]}), Add(place, first));
  } else {
    result.values = GatherNd(table, ExpandDims(place, 3), 1);
  }
  return result;
}

Tensor SampleAt(Tensor x, const std::vector<Tensor>& positions, const SampleOptions& options) {
  const DType dtype = x.dtype();
  const bool is_nearest = options.mode == SampleMode::kNearest;
  const auto [values, weights] =
      TapsAt(is_nearest ? x : Cast(x, WideEnough(dtype)), positions, options);
  if (!values.valid()) return values;
  if (is_nearest) {
    const Tensor y = weights.valid() ? Where(weights, values, NumberLike(values, 0)) : values;
    return Transpose(Squeeze(y, 2), {0, 2, 1});
  }
  const Tensor y = ReduceSum(Mul(values, Cast(weights, values.dtype())), {.axes = {2}});
  return Cast(Transpose(y, {0, 2, 1}), dtype);
}

}  // namespace braid::onnx
