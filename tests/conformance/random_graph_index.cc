// Moves that rearrange elements, order them, and read and write at places that an index names.
#include <algorithm>
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
