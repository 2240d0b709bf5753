// Sorting along an axis. Elements go by value, a NaN above all numbers; equal ones by their index.
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/functional.h"
#include "graph/ops/families.h"
#include "graph/ops/shapes.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

using Context = GradientContext;
using Gradients = std::vector<Tensor>;

absl::Status CheckSorted(const OpContext& ctx) {
  BRAID_RETURN_IF_ERROR(CheckInputs(ctx, 1));
  const Shape& shape = ctx.inputs[0].shape;
  const int64_t axis = ctx.attrs.Int("axis");
  BRAID_RETURN_IF_ERROR(CheckAxis(axis, shape.rank()));
  if (shape[static_cast<int>(axis)] <= std::numeric_limits<int32_t>::max()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("a is ", ctx.inputs[0].ToString(), ", axis is ",
                                                 axis, "; its indices must fit into i32"));
}

// The values, and where in the input they stood.
std::vector<TensorType> ValuesAndIndices(TensorType values) {
  TensorType indices = {DType::kI32, values.shape};
  return {std::move(values), std::move(indices)};
}

// Every value's gradient goes back to where it stood.
Gradients BackToPlaces(const Context& c) {
  if (!c.output_gradients[0].valid()) return {Tensor()};
  return {Apply("gather_elements_grad", {c.outputs[1], c.output_gradients[0]},
                {{"axis", c.op.attrs.Int("axis")}, {"shape", c.inputs[0].shape().dims()}})};
}

double SortFlops(const OpContext& ctx) {
  const Shape& shape = ctx.inputs[0].shape;
  double levels = 1;
  for (int64_t n = shape[static_cast<int>(ctx.attrs.Int("axis"))]; n > 2; n /= 2) ++levels;
  return static_cast<double>(shape.num_elements()) * levels;
}

OpDef SortOp() {
  return OpDef("sort")
      .Infer([](const OpContext& ctx) -> Types {
        BRAID_RETURN_IF_ERROR(CheckSorted(ctx));
        return ValuesAndIndices(ctx.inputs[0]);
      })
      .Rule("A{axis}_B->A_B,A_B")
      .Gradient(BackToPlaces)
      .Flops(SortFlops)
      .Sample({.inputs = {{DType::kF32, {5, 6}}},
               .attrs = {{"axis", int64_t{1}}, {"descending", false}}})
      .Sample({.inputs = {{DType::kF32, {3, 7, 2}}},
               .attrs = {{"axis", int64_t{1}}, {"descending", true}}})
      .Sample({.inputs = {{DType::kI64, {3, 40}}},
               .attrs = {{"axis", int64_t{1}}, {"descending", true}}});
}

OpDef TopKOp() {
  return OpDef("top_k")
      .Infer([](const OpContext& ctx) -> Types {
        BRAID_RETURN_IF_ERROR(CheckSorted(ctx));
        const int axis = static_cast<int>(ctx.attrs.Int("axis"));
        const int64_t k = ctx.attrs.Int("k");
        TensorType values = ctx.inputs[0];
        if (k < 0 || k > values.shape[axis]) {
          return absl::InvalidArgumentError(absl::StrCat("a is ", values.ToString(), ", k is ", k,
                                                         "; it must be within axis ", axis));
        }
        values.shape[axis] = k;
        return ValuesAndIndices(std::move(values));
      })
      .Rule("A{axis}_B->A_B,A_B")
      .Gradient(BackToPlaces)
      .Flops([](const OpContext& ctx) {
        return 2 * static_cast<double>(ctx.inputs[0].shape.num_elements());
      })
      .Sample({.inputs = {{DType::kF32, {5, 6}}},
               .attrs = {{"axis", int64_t{1}}, {"k", int64_t{2}}, {"largest", true}}})
      .Sample({.inputs = {{DType::kF32, {7, 3, 2}}},
               .attrs = {{"axis", int64_t{0}}, {"k", int64_t{3}}, {"largest", false}}})
      .Sample({.inputs = {{DType::kI32, {4, 9}}},
               .attrs = {{"axis", int64_t{1}}, {"k", int64_t{3}}, {"largest", true}}});
}

}  // namespace

std::vector<OpDef> SortOps() { return {SortOp(), TopKOp()}; }

}  // namespace braid
