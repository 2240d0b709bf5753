// Normalization and softmax.
#include <functional>
#include <numeric>
#include <utility>

#include "api/onnx/translators.h"
#include "graph/functional.h"
#include "runtime/base/status.h"

namespace braid::onnx {
namespace {

// f works on the last axis. Before opset 13 everything from `axis` on was one axis.
TranslateFunction AlongAxis(std::function<Tensor(Tensor)> f) {
  return [f](const NodeView& n) -> absl::StatusOr<Tensors> {
    const bool is_joined = n.opset() < 13;
    BRAID_ASSIGN_OR_RETURN(const int64_t axis, n.Axis("axis", is_joined ? 1 : -1));
    const Shape shape = n.shape();
    if (is_joined && axis != n.rank() - 1) {
      Ints dims(shape.begin(), shape.begin() + axis);
      dims.push_back(
          std::accumulate(shape.begin() + axis, shape.end(), int64_t{1}, std::multiplies<>()));
      return Tensors{Reshape(f(Reshape(n.in(0), Shape(dims))), shape)};
    }
    Ints swap(n.rank());
    std::iota(swap.begin(), swap.end(), 0);
    std::swap(swap[axis], swap.back());
    return Tensors{Transpose(f(Transpose(n.in(0), swap)), swap)};
  };
}

absl::StatusOr<Tensors> TranslateLayerNorm(const NodeView& n) {
  BRAID_ASSIGN_OR_RETURN(const int64_t axis, n.Axis("axis", -1));
  const double epsilon = n.Float("epsilon", 1e-5);
  n.Ignore("stash_type");  // statistics are f32 at least
  const Shape shape = n.shape();
  int64_t rows = 1, columns = 1;
  Ints kept;  // the statistics' shape
  for (int i = 0; i < n.rank(); ++i) {
    (i < axis ? rows : columns) *= shape[i];
    kept.push_back(i < axis ? shape[i] : 1);
  }
  const Tensor beta = n.HasInput(2)
                          ? Reshape(n.in(2), {columns})
                          : Constant(n.graph(), 0, {.dtype = n.dtype(), .shape = {columns}});
  const Tensors all =
      ApplyAll("layer_norm", {Reshape(n.in(0), {rows, columns}), Reshape(n.in(1), {columns}), beta},
               {{"epsilon", epsilon}});
  if (all.size() != 3) return n.graph().status();
  return Tensors{Reshape(all[0], shape), Reshape(all[1], Shape(kept)),
                 Reshape(all[2], Shape(kept))};
}

}  // namespace

void AddNorm(Translators& all) {
  all.Add("Softmax", {}, AlongAxis([](Tensor x) { return Softmax(x); }));
  all.Add("LogSoftmax", {}, AlongAxis([](Tensor x) { return LogSoftmax(x); }));
  all.Add("LayerNormalization", {2, 3}, TranslateLayerNorm);
}

}  // namespace braid::onnx
