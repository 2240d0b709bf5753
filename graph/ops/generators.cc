// Values out of nothing: constants, random numbers, the step. Every element depends only on its
// logical index (and on seed, name and step if it is random), so that any layout makes the same.
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "graph/functional.h"
#include "graph/ops/families.h"
#include "graph/ops/shapes.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

using Context = GradientContext;
using Gradients = std::vector<Tensor>;
using Ints = std::vector<int64_t>;

OpDef Generator(std::string name, Attrs sample) {
  sample.Set("dtype", DType::kF32);
  sample.Set("shape", Ints{5, 6});
  return OpDef(std::move(name))
      .Infer([](const OpContext& ctx) -> Types {
        RETURN_IF_ERROR(CheckInputs(ctx, 0));
        const Ints& dims = ctx.attrs.Ints("shape");
        for (int64_t dim : dims) {
          if (dim < 0) {
            return absl::InvalidArgumentError(absl::StrCat("shape is [", absl::StrJoin(dims, ", "),
                                                           "]; a dim must not be negative"));
          }
        }
        if (ctx.attrs.Has("axis")) {
          RETURN_IF_ERROR(CheckAxis(ctx.attrs.Int("axis"), static_cast<int>(dims.size())));
        }
        return std::vector<TensorType>{{ctx.attrs.Type("dtype"), Shape(dims)}};
      })
      .Signatures([](const OpContext& ctx, int64_t) {
        return LeadingSignatures(ctx, ctx.outputs[0].shape.rank());
      })
      .NoGradient()
      .Sample({.inputs = {}, .attrs = std::move(sample)});
}

OpDef DropoutOp() {
  const Attrs attrs = {{"key", "dropout"}, {"rate", 0.25}};
  return OpDef("dropout")
      .Infer([](const OpContext& ctx) -> Types {
        RETURN_IF_ERROR(CheckInputs(ctx, 1));
        RETURN_IF_ERROR(CheckFloating(ctx, 0));
        const double rate = ctx.attrs.Double("rate");
        if (!(rate >= 0 && rate < 1)) {
          return absl::InvalidArgumentError(
              absl::StrCat("rate is ", rate, "; it must be in [0, 1)"));
        }
        return std::vector<TensorType>{ctx.inputs[0]};
      })
      .Signatures([](const OpContext& ctx, int64_t) { return BroadcastSignatures(ctx); })
      .Random()
      .Inplace(0, 0)
      .Gradient([](const Context& c) {
        return Gradients{Apply("dropout", {c.output_gradients[0]}, c.op.attrs)};
      })
      .Sample({.inputs = {{DType::kF32, {5, 6}}}, .attrs = attrs});
}

OpDef StepOp() {
  return OpDef("step")
      .Infer([](const OpContext& ctx) -> Types {
        RETURN_IF_ERROR(CheckInputs(ctx, 0));
        return std::vector<TensorType>{{DType::kI64, {}}};
      })
      .NoGradient()
      .Sample({.inputs = {}, .attrs = {}});
}

}  // namespace

std::vector<OpDef> GeneratorOps() {
  return {Generator("constant", {{"value", 0.5}}),
          Generator("random_uniform", {{"low", -1.0}, {"high", 1.0}}).Random(),
          Generator("random_normal", {{"mean", 0.0}, {"stddev", 1.0}}).Random(),
          Generator("iota", {{"axis", int64_t{1}}}),
          DropoutOp(),
          StepOp()};
}

}  // namespace braid
