// Normalization and softmax.
#include <functional>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
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

// In place of Reshape: an op less where the shape is that already.
Tensor InShape(Tensor x, const Shape& shape) {
  return x.valid() && x.shape() != shape ? Reshape(x, shape) : x;
}

absl::StatusOr<Tensors> TranslateLayerNorm(const NodeView& n) {
  BRAID_ASSIGN_OR_RETURN(const int64_t axis, n.Axis("axis", -1));
  const double epsilon = n.Float("epsilon", 1e-5);
  n.Ignore("stash_type");  // statistics are f32 at least
  const Shape shape = n.shape();
  Ints rows, kept;  // the operand's shape, whose last axis is normalized, and the statistics'
  int64_t columns = 1;
  for (int i = 0; i < n.rank(); ++i) {
    if (i < axis) {
      rows.push_back(shape[i]);
    } else {
      columns *= shape[i];
    }
    kept.push_back(i < axis ? shape[i] : 1);
  }
  rows.push_back(columns);
  const Tensor beta = n.HasInput(2)
                          ? InShape(n.in(2), {columns})
                          : Constant(n.graph(), 0, {.dtype = n.dtype(), .shape = {columns}});
  const Tensors all =
      ApplyAll("layer_norm", {InShape(n.in(0), Shape(rows)), InShape(n.in(1), {columns}), beta},
               {{"epsilon", epsilon}});
  if (all.size() != 3) return n.graph().status();
  return Tensors{InShape(all[0], shape), Reshape(all[1], Shape(kept)),
                 Reshape(all[2], Shape(kept))};
}

// Over everything from `axis` on, times a scale that broadcasts to x, of its own type; ONNX Runtime
// also hands out the reciprocal of the root.
absl::StatusOr<Tensors> TranslateRmsNorm(const NodeView& n) {
  BRAID_ASSIGN_OR_RETURN(const int64_t axis, n.Axis("axis", -1));
  const double epsilon = n.Float("epsilon", 1e-5);
  n.Ignore("stash_type");  // statistics are f32 at least
  const Shape shape = n.shape();
  const Shape normalized(Ints(shape.begin() + axis, shape.end()));
  const int64_t columns = normalized.num_elements();
  Ints rows(shape.begin(), shape.begin() + axis);
  Ints kept = rows;  // the statistics' shape
  kept.resize(shape.rank(), 1);
  rows.push_back(columns);
  Ints scale_dims = n.shape(1).dims();
  while (scale_dims.size() > static_cast<size_t>(normalized.rank()) && scale_dims[0] == 1) {
    scale_dims.erase(scale_dims.begin());
  }
  const bool is_of_rows = static_cast<int>(scale_dims.size()) > normalized.rank();
  const bool is_apart = is_of_rows || n.dtype(1) != n.dtype();
  const Tensor gamma =
      is_apart ? Constant(n.graph(), 1, {.dtype = n.dtype(), .shape = {columns}})
               : InShape(BroadcastTo(InShape(n.in(1), Shape(scale_dims)), normalized), {columns});
  const Tensors all =
      ApplyAll("rms_norm", {InShape(n.in(0), Shape(rows)), gamma}, {{"epsilon", epsilon}});
  if (all.size() != 2) return n.graph().status();
  Tensor y = InShape(all[0], shape);
  if (is_apart) y = Mul(Cast(y, n.dtype(1)), n.in(1));
  return Tensors{y, Reshape(all[1], Shape(kept))};
}

// x / (sum of |x|^p)^(1/p) along an axis; where all are zero, zeros.
absl::StatusOr<Tensors> TranslateLpNorm(const NodeView& n) {
  BRAID_ASSIGN_OR_RETURN(const int64_t axis, n.Axis("axis", -1));
  const int64_t p = n.Int("p", 2);
  if (p != 1 && p != 2) return Wrong(absl::StrCat("p is ", p, "; 1 or 2 is needed"));
  const ReduceOptions reduce = {.axes = {axis}, .keep_dims = true};
  const Tensor norm = p == 1 ? ReduceL1(n.in(0), reduce) : ReduceL2(n.in(0), reduce);
  const Tensor zero = Constant(n.graph(), 0, {.dtype = n.dtype()});
  const Tensor one = Constant(n.graph(), 1, {.dtype = n.dtype()});
  return Tensors{Div(n.in(0), Where(Equal(norm, zero), one, norm))};
}

}  // namespace

void AddNorm(Translators& all) {
  all.Add("Softmax", {}, AlongAxis([](Tensor x) { return Softmax(x); }));
  all.Add("LogSoftmax", {}, AlongAxis([](Tensor x) { return LogSoftmax(x); }));
  all.Add("LayerNormalization", {2, 3}, TranslateLayerNorm);
  all.Add("RMSNormalization", {2, 2}, TranslateRmsNorm);
  all.Add("SimplifiedLayerNormalization", {2, 2}, TranslateRmsNorm);  // of ONNX Runtime
  all.Add("LpNormalization", {}, TranslateLpNorm);
}

}  // namespace braid::onnx
