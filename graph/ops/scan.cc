// Sums and products of all elements up to each one, along an axis that is never split.
#include <utility>

#include "graph/functional.h"
#include "graph/ops/families.h"
#include "graph/ops/shapes.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

using Context = GradientContext;
using Gradients = std::vector<Tensor>;

// `inputs` floating operands of one type (or, of a single one, also i32 and i64).
OpDef Scan(std::string name, int inputs) {
  OpDef def = OpDef(std::move(name))
                  .Infer([inputs](const OpContext& ctx) -> Types {
                    RETURN_IF_ERROR(CheckInputs(ctx, inputs));
                    if (inputs == 2 || !CheckInteger(ctx, 0).ok())
                      RETURN_IF_ERROR(CheckFloating(ctx, 0));
                    if (inputs == 2) RETURN_IF_ERROR(CheckSameType(ctx, 0, 1));
                    RETURN_IF_ERROR(CheckAxis(ctx.attrs.Int("axis"), ctx.inputs[0].shape.rank()));
                    return std::vector<TensorType>{ctx.inputs[0]};
                  })
                  .Signatures([](const OpContext& ctx, int64_t) {
                    std::vector<SbpSignature> signatures =
                        LeadingSignatures(ctx, ctx.outputs[0].shape.rank());
                    signatures.erase(signatures.begin() + ctx.attrs.Int("axis"));
                    return signatures;
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
