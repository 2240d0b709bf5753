// Moves that rearrange elements, order them, and read and write at places that an index names.
#include <algorithm>
#include <numeric>
#include <utility>

#include "tests/conformance/random_graph_ops.h"

namespace braid::conformance {

void RandomGraph::Rearrange() {
  const RealValue v = RealOfRank(first_axis_ + 1);
  const Shape shape = v.tensor.shape();
  const int axis = Axis(shape);
  const int64_t size = shape[axis];
  std::vector<int64_t> before(shape.rank(), 0), after(shape.rank(), 0);
  switch (draws_.Below(7)) {
    case 0:
      return Add(Flip(v.tensor, {axis}), v.bound);
    case 1: {
      const int64_t step = 1 + draws_.Below(3);
      return Add(SliceAxis(v.tensor, axis, {.step = draws_.Chance(50) ? step : -step}), v.bound);
    }
    case 2: {
      static constexpr PadMode kModes[] = {PadMode::kReflect, PadMode::kEdge, PadMode::kWrap};
      before[axis] = draws_.Below(4);
      after[axis] = draws_.Below(3);
      if (size > 2 && draws_.Chance(30)) before[axis] = -1;
      return Add(Pad(v.tensor, before, after, {.mode = kModes[draws_.Below(3)]}), v.bound);
    }
    case 3:
      return Add(Roll(v.tensor, {draws_.Below(9) - 4}, {axis}), v.bound);
    case 4: {
      if (shape.rank() < 2) break;
      const int64_t diagonal = draws_.Below(5) - 2;
      return Add(draws_.Chance(50) ? Tril(v.tensor, diagonal) : Triu(v.tensor, diagonal), v.bound);
    }
    case 5: {
      before[axis] = draws_.Below(2);
      std::vector<int64_t> interior(shape.rank(), 0);
      interior[axis] = 1;
      return Add(Pad(v.tensor, before, after, {.value = 0.5, .interior = interior}), v.bound + 1);
    }
    default:
      break;
  }
  std::vector<int64_t> repeats(shape.rank(), 1);
  repeats[axis] = 2;
  Add(draws_.Chance(50) ? Tile(v.tensor, repeats) : RepeatInterleave(v.tensor, 2, axis), v.bound);
}

void RandomGraph::Order() {
  const RealValue v = RealOfRank(first_axis_ + 1);
  const Shape shape = v.tensor.shape();
  const int axis = Axis(shape);
  const int64_t size = shape[axis];
  if (draws_.Chance(40)) {
    const Tensor noisy = braid::Add(v.tensor, Noise(shape));
    const bool is_up = draws_.Chance(50);
    const Ordered order =
        draws_.Chance(50) ? Sort(noisy, {.axis = axis, .descending = is_up})
                          : TopK(noisy, 1 + draws_.Below(static_cast<int>(size)), {axis, is_up});
    AddIndices(layout_.Perhaps(order.indices), size);
    return Add(order.values, v.bound + 1);
  }
  // Numbers from 0 to below `size`, some of them more than once.
  Shape places = shape;
  places[axis] = 2;
  const double half = static_cast<double>(size) / 2;
  const Tensor indices = Cast(AddScalar(Scale(Noise(places), 0.999 * half), half), DType::kI32);
  if (draws_.Chance(30)) return Add(GatherElements(v.tensor, indices, axis), v.bound);
  const RealValue updates = OfShape(places);
  static constexpr ScatterReduction kReductions[] = {
      ScatterReduction::kReplace, ScatterReduction::kAdd, ScatterReduction::kMul,
      ScatterReduction::kMax, ScatterReduction::kMin};
  const ScatterReduction reduction = kReductions[draws_.Below(5)];
  const double u = updates.bound;
  const double bound = reduction == ScatterReduction::kAdd   ? v.bound + 2 * u
                       : reduction == ScatterReduction::kMul ? v.bound * std::max(1.0, u * u)
                                                             : std::max(v.bound, u);
  Add(ScatterElements(v.tensor, indices, updates.tensor, {.axis = axis, .reduction = reduction}),
      bound);
}

Tensor RandomGraph::ExtremeOf(Tensor x, int axis, bool is_max) {
  const ReduceOptions options = {.axes = {axis}, .keep_dims = true};
  return is_max ? ReduceMax(x, options) : ReduceMin(x, options);
}

Tensor RandomGraph::PassOn(Tensor x, bool is_max) {
  const int rank = x.shape().rank();
  std::vector<int64_t> dims = x.shape().dims();
  switch (draws_.Below(5)) {
    case 0: {
      dims.insert(dims.begin() + first_axis_, 1);
      x = Reshape(x, Shape(dims));
      dims[first_axis_] = 2;
      return BroadcastTo(x, Shape(dims));
    }
    case 1: {
      std::vector<int64_t> perm(rank);
      std::iota(perm.begin(), perm.end(), 0);
      std::reverse(perm.begin() + first_axis_, perm.end());
      return Transpose(x, perm);
    }
    case 2:
      return Identity(x);
    case 3:
      return StopGradient(x);
    default:
      return ExtremeOf(x, Axis(x.shape()), is_max);
  }
}

// Maxima and minima that are partial over the devices live as long as only such operators read
// them.
void RandomGraph::Extreme() {
  const RealValue v = RealOfRank(first_axis_ + 2);
  const bool is_max = draws_.Chance(50);
  Tensor x =
      ExtremeOf(braid::Add(v.tensor, Noise(v.tensor.shape())), Axis(v.tensor.shape()), is_max);
  const bool scatters = draws_.Chance(60);
  const int passes = scatters ? 0 : 1 + draws_.Below(2);
  for (int i = 0; i < passes; ++i) x = PassOn(x, is_max);
  if (scatters) {
    const int axis = Axis(x.shape());
    const int64_t size = x.shape()[axis];
    Shape places = x.shape();
    places[axis] = 2;
    std::vector<int64_t> wide = places.dims();
    wide.push_back(4);
    const ReduceOptions last = {.axes = {places.rank()}};
    const Tensor noise = Noise(Shape(std::move(wide)));
    const Tensor updates = is_max ? ReduceMax(noise, last) : ReduceMin(noise, last);
    const double half = static_cast<double>(size) / 2;
    const Tensor indices = Cast(AddScalar(Scale(Noise(places), 0.999 * half), half), DType::kI32);
    const auto reduction = is_max ? ScatterReduction::kMax : ScatterReduction::kMin;
    x = ScatterElements(x, indices, updates, {.axis = axis, .reduction = reduction});
  }
  Add(x, v.bound + 1);
}

void RandomGraph::Position() {
  if (first_axis_ > 0) return Order();  // there is no batch among positions
  const RealValue table = RealOfRank(2);
  const Shape shape = table.tensor.shape();
  // [4, 2]: places on the first two axes.
  std::vector<Tensor> columns;
  for (int axis : {0, 1}) {
    const double half = static_cast<double>(shape[axis]) / 2;
    columns.push_back(Cast(AddScalar(Scale(Noise({4, 1}), 0.999 * half), half), DType::kI64));
  }
  const Tensor indices = Concat(columns, 1);
  if (draws_.Chance(40)) return Add(GatherNd(table.tensor, indices), table.bound);
  std::vector<int64_t> dims = shape.dims();
  dims.erase(dims.begin());
  dims[0] = 4;
  const RealValue updates = OfShape(Shape(std::move(dims)));
  const ScatterReduction reduction =
      draws_.Chance(50) ? ScatterReduction::kAdd : ScatterReduction::kReplace;
  Add(ScatterNd(table.tensor, indices, updates.tensor, {.reduction = reduction}),
      table.bound + 4 * updates.bound);
}

}  // namespace braid::conformance
