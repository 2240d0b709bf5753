// Determinants.
#include <utility>

#include "absl/strings/str_cat.h"
#include "api/onnx/sample.h"
#include "api/onnx/translators.h"
#include "graph/functional.h"
#include "runtime/base/status.h"

namespace braid::onnx {
namespace {

// Matrices [batch, n, n] with their first column and one row eliminated, and the pivots [batch],
// whose products over all steps are the determinants: Gaussian elimination, each column by its
// largest element.
struct Elimination {
  Tensor rest, pivot;
};

Elimination Eliminate(Tensor x) {
  LogicalGraph& graph = *x.graph();
  const int64_t batch = x.shape()[0], n = x.shape()[1];
  const Tensor zero = Constant(graph, 0, {.dtype = x.dtype()});
  const Tensor one = Constant(graph, 1, {.dtype = x.dtype()});
  const Tensor column = Squeeze(SliceAxis(x, 2, {.end = 1}), 2);
  const Tensor largest = Cast(ArgMax(Abs(column), 1), DType::kI64);  // its row
  const Tensor row = GatherNd(x, ExpandDims(largest, 1), 1);         // [batch, n]
  const Tensor pivot = Squeeze(SliceAxis(row, 1, {.end = 1}), 1);
  // Swapping two rows turns the sign.
  const Tensor is_first = Equal(largest, Constant(graph, 0, {.dtype = DType::kI64}));
  Elimination step = {.rest = {}, .pivot = Where(is_first, pivot, Neg(pivot))};
  if (n == 1) return step;
  // The first row goes to the place of the one that was taken out.
  const Tensor place = Reshape(Range(graph, n - 1, {.start = 1}), {1, n - 1, 1});
  const Tensor is_gap = Equal(place, Reshape(largest, {batch, 1, 1}));
  const Tensor others = Where(is_gap, SliceAxis(x, 1, {.end = 1}), SliceAxis(x, 1, {.begin = 1}));
  // A pivot of 0: the column is 0, and so are the factors.
  const Tensor divisor = Reshape(Where(Equal(pivot, zero), one, pivot), {batch, 1, 1});
  const Tensor factor = Div(SliceAxis(others, 2, {.end = 1}), divisor);
  const Tensor right = ExpandDims(SliceAxis(row, 1, {.begin = 1}), 1);
  step.rest = Sub(SliceAxis(others, 2, {.begin = 1}), Mul(factor, right));
  return step;
}

absl::StatusOr<Tensors> TranslateDet(const NodeView& n) {
  constexpr int64_t kLargest = 64;  // a dozen operators for each row
  const Shape shape = n.shape();
  const int rank = shape.rank();
  if (rank < 2 || shape[rank - 1] != shape[rank - 2]) {
    return Wrong(absl::StrCat("x is ", shape.ToString(), "; [.., n, n] is needed"));
  }
  const int64_t size = shape[rank - 1];
  if (size > kLargest) return Lacking(absl::StrCat("matrices of ", size, " rows"));
  const Shape batch(Ints(shape.begin(), shape.end() - 2));
  const DType wide = WideEnough(n.dtype());
  Tensor product = Constant(n.graph(), 1, {.dtype = wide, .shape = {batch.num_elements()}});
  Tensor x = Reshape(Cast(n.in(0), wide), {batch.num_elements(), size, size});
  for (int64_t i = 0; i < size; ++i) {
    if (!x.valid()) return n.graph().status();
    const auto [rest, pivot] = Eliminate(x);
    product = i == 0 ? pivot : Mul(product, pivot);
    x = rest;
  }
  return Tensors{Cast(Reshape(product, batch), n.dtype())};
}

}  // namespace

void AddDeterminant(Translators& all) { all.Add("Det", {}, TranslateDet); }

}  // namespace braid::onnx
