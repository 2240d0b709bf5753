// Choosing elements by index or condition.

#include <string>

#include "graph/functional.h"
#include "graph/ops/families.h"
#include "graph/ops/shapes.h"

namespace braid {
namespace {

using Context = GradientContext;
using Gradients = std::vector<Tensor>;
using Ints = std::vector<int64_t>;

OpDef GatherOp() {
  return OpDef("gather")
      // Rows that are elsewhere count as zeros.
      .Rule("A{axis}vB,I->AIB; IvAB")
      .Takes("xi")
      .Linear({0})
      .Gradient([](const Context& c) {
        const int64_t axis = c.op.attrs.Int("axis");
        return Gradients{Apply("gather_grad", {c.inputs[1], c.output_gradients[0]},
                               {{"axis", axis}, {"size", c.inputs[0].shape()[axis]}}),
                         Tensor()};
      })
      .Sample({.inputs = {{DType::kF32, {7, 3}}, {DType::kI32, {5}}},
               .attrs = {{"axis", int64_t{0}}},
               .int_high = 7})
      .Sample({.inputs = {{DType::kF32, {3, 7, 2}}, {DType::kI64, {2, 5}}},
               .attrs = {{"axis", int64_t{1}}},
               .int_high = 7});
}

// Adds rows of dy into a table of zeros.
OpDef GatherGradientOp() {
  return OpDef("gather_grad")
      // Each part of the table takes the rows that fall into it.
      .Rule("I,A{axis}IB->Av{size}B; IvAB")
      .Takes("ix")
      .Linear({1})
      .AddsRows()
      .Gradient([](const Context& c) {
        return Gradients{
            Tensor(), Gather(c.output_gradients[0], c.inputs[0], {.axis = c.op.attrs.Int("axis")})};
      })
      .Flops([](const OpContext& ctx) {
        return static_cast<double>(ctx.inputs[1].shape.num_elements());
      })
      .Sample({.inputs = {{DType::kI32, {5}}, {DType::kF32, {5, 3}}},
               .attrs = {{"axis", int64_t{0}}, {"size", int64_t{7}}},
               .int_high = 7})
      .Sample({.inputs = {{DType::kI64, {2, 5}}, {DType::kF32, {3, 2, 5, 2}}},
               .attrs = {{"axis", int64_t{1}}, {"size", int64_t{7}}},
               .int_high = 7});
}

OpDef OneHotOp() {
  return OpDef("one_hot")
      // Each part of the new axis, the last one if nothing is said, takes the ones that fall into
      // it.
      .Rule([](const OpContext& ctx) -> std::string {
        return ctx.attrs.Has("axis") ? "A{axis}B->Ad{depth}B" : "A->Ad{depth}";
      })
      .Takes("i")
      .Gives([](const OpContext& ctx) { return ctx.attrs.Type("dtype"); })
      .NoGradient()
      .Sample({.inputs = {{DType::kI32, {5}}},
               .attrs = {{"depth", int64_t{6}}, {"dtype", DType::kF32}},
               .int_high = 6})
      .Sample({.inputs = {{DType::kI64, {3, 5}}},
               .attrs = {{"depth", int64_t{4}}, {"dtype", DType::kF32}},
               .int_high = 4})
      .Sample({.inputs = {{DType::kI64, {3, 5}}},
               .attrs = {{"axis", int64_t{1}}, {"depth", int64_t{4}}, {"dtype", DType::kF32}},
               .int_high = 4});
}

OpDef WhereOp() {
  const TensorType condition = {DType::kBool, {5, 6}}, number = {DType::kF32, {5, 6}};
  return OpDef("where")
      .Rule("...,...,...->...")
      .Takes("bxx")
      .Linear({1, 2})
      .Inplace(1, 0)
      .Inplace(2, 0)
      .Gradient([](const Context& c) {
        const Tensor condition = c.inputs[0], dy = c.output_gradients[0];
        const Tensor zero = Constant(c.graph, 0, {.dtype = dy.dtype()});
        return Gradients{Tensor(), SumTo(Where(condition, dy, zero), c.inputs[1].shape()),
                         SumTo(Where(condition, zero, dy), c.inputs[2].shape())};
      })
      .Sample({.inputs = {condition, number, number}, .attrs = {}})
      .Sample({.inputs = {{DType::kBool, {5, 1}}, number, {DType::kF32, {}}}, .attrs = {}});
}

}  // namespace

std::vector<OpDef> IndexingOps() { return {GatherOp(), GatherGradientOp(), OneHotOp(), WhereOp()}; }

}  // namespace braid
