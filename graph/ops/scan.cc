// Sums and products of all elements up to each one, along an axis that is never split.
#include <utility>

#include "graph/functional.h"
#include "graph/ops/families.h"
#include "graph/ops/shapes.h"

namespace braid {
namespace {

using Context = GradientContext;
using Gradients = std::vector<Tensor>;

// `inputs` floating operands of one type (or, of a single one, also i32 and i64).
OpDef Scan(std::string name, int inputs) {
  OpDef def = OpDef(std::move(name))
                  .Rule(inputs == 1 ? "A{axis}[v]B->A[v]B" : "A{axis}[v]B,A[v]B->A[v]B")
                  .Takes(inputs == 1 ? "x" : "ff")
                  .Check([](const OpContext& ctx) {
                    return CheckInteger(ctx, 0).ok() ? absl::OkStatus() : CheckFloating(ctx, 0);
                  });
  const auto add = [&](TensorType type, int64_t axis, bool exclusive, bool reverse) {
    def.Sample({.inputs = std::vector<TensorType>(inputs, std::move(type)),
                .attrs = {{"axis", axis}, {"exclusive", exclusive}, {"reverse", reverse}}});
  };
  add({DType::kF32, {5, 6}}, 1, false, false);
  add({DType::kF32, {3, 5, 2}}, 1, true, false);
  add({DType::kF32, {5, 6}}, 0, false, true);
  add({DType::kF32, {3, 5}}, 1, true, true);
  if (inputs == 1) add({DType::kI64, {5, 6}}, 0, false, false);
  return def;
}

}  // namespace

std::vector<OpDef> ScanOps() {
  return {
      Scan("cumsum", 1).Linear({0}).Inplace(0, 0).Gradient([](const Context& c) {
        const Attrs& attrs = c.op.attrs;
        return Gradients{
            CumSum(c.output_gradients[0], attrs.Int("axis"),
                   {.exclusive = Flag(attrs, "exclusive"), .reverse = !Flag(attrs, "reverse")})};
      }),
      Scan("cumprod", 1).Inplace(0, 0).Gradient([](const Context& c) {
        return Gradients{Apply("cumprod_grad", {c.inputs[0], c.output_gradients[0]}, c.op.attrs)};
      }),
      // (x, dy) -> dx, right also where elements are 0.
      Scan("cumprod_grad", 2).Linear({1}).NoGradient(),
  };
}

}  // namespace braid
