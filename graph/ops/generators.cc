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
        BRAID_RETURN_IF_ERROR(CheckInputs(ctx, 0));
        const Ints& dims = ctx.attrs.Ints("shape");
        for (int64_t dim : dims) {
          if (dim < 0) {
            return absl::InvalidArgumentError(
                absl::StrCat("shape is ", Shape(dims).ToString(), "; a dim must not be negative"));
          }
        }
        if (ctx.attrs.Has("axis")) {
          BRAID_RETURN_IF_ERROR(CheckAxis(ctx.attrs.Int("axis"), static_cast<int>(dims.size())));
        }
        return std::vector<TensorType>{{ctx.attrs.Type("dtype"), Shape(dims)}};
      })
      .Rule("()->N")
      .NoGradient()
      .Sample({.inputs = {}, .attrs = std::move(sample)});
}

bool FitsInto(int64_t element, DType dtype) {
  switch (dtype) {
    case DType::kI32:
      return element == static_cast<int32_t>(element);
    case DType::kU8:
      return element == static_cast<uint8_t>(element);
    case DType::kI8:
      return element == static_cast<int8_t>(element);
    case DType::kI16:
      return element == static_cast<int16_t>(element);
    case DType::kU16:
      return element == static_cast<uint16_t>(element);
    case DType::kU32:
      return element == static_cast<uint32_t>(element);
    case DType::kBool:
      return element == 0 || element == 1;
    default:
      // A floating type's are bits of f64, of u64 all bits are taken, coded numbers are codes.
      return !IsCoded(dtype) || element == static_cast<uint8_t>(element);
  }
}

// `elements` stand in C order; of floating types, the bits of each as an f64.
OpDef LiteralOp() {
  return OpDef("literal")
      .Infer([](const OpContext& ctx) -> Types {
        BRAID_RETURN_IF_ERROR(CheckInputs(ctx, 0));
        const Ints& dims = ctx.attrs.Ints("shape");
        const Ints& elements = ctx.attrs.Ints("elements");
        const DType dtype = ctx.attrs.Type("dtype");
        bool is_shape = true;
        int64_t count = 1;
        for (int64_t dim : dims) {
          is_shape = is_shape && dim >= 0 && (dim == 0 || count <= kMaxLiteralElements / dim);
          if (is_shape) count *= dim;
        }
        if (!is_shape || count != static_cast<int64_t>(elements.size())) {
          return absl::InvalidArgumentError(absl::StrCat(
              "shape is [", absl::StrJoin(dims, ", "), "] and there are ", elements.size(),
              " elements; as many as the shape has are needed, at ", "most ", kMaxLiteralElements));
        }
        for (int64_t element : elements) {
          if (FitsInto(element, dtype)) continue;
          return absl::InvalidArgumentError(absl::StrCat(
              "the element ", element, " does not fit into ", std::string(ToString(dtype))));
        }
        return std::vector<TensorType>{{dtype, Shape(dims)}};
      })
      .Rule("()->N")
      .NoGradient()
      .Sample({.inputs = {},
               .attrs = {{"dtype", DType::kI64},
                         {"shape", Ints{3, 2}},
                         {"elements", Ints{5, -7, int64_t{1} << 60, 0, 2, 1}}}})
      .Sample({.inputs = {},
               .attrs = {{"dtype", DType::kF32},
                         {"shape", Ints{2, 3}},
                         {"elements",
                          Ints{0x3FE8000000000000, 0x4008000000000000, 0, 0x4000000000000000,
                               0x3FB999999999999A, -0x4010000000000000}}}})
      .Sample(
          {.inputs = {},
           .attrs = {{"dtype", DType::kBool}, {"shape", Ints{3}}, {"elements", Ints{1, 0, 1}}}});
}

OpDef DropoutOp() {
  const Attrs attrs = {{"key", "dropout"}, {"rate", 0.25}};
  return OpDef("dropout")
      .Role(OpRole::kDropout)
      .Rule("...->...")
      .Takes("f")
      .Check([](const OpContext& ctx) -> absl::Status {
        const double rate = ctx.attrs.Double("rate");
        if (rate >= 0 && rate < 1) return absl::OkStatus();
        return absl::InvalidArgumentError(absl::StrCat("rate is ", rate, "; it must be in [0, 1)"));
      })
      .Random()
      .Inplace(0, 0)
      .Gradient([](const Context& c) {
        return Gradients{Apply("dropout", {c.output_gradients[0]}, c.op.attrs)};
      })
      .Sample({.inputs = {{DType::kF32, {5, 6}}}, .attrs = attrs});
}

OpDef StepOp() {
  return OpDef("step")
      .Role(OpRole::kStep)
      .Rule("()->")
      .Gives(DType::kI64)
      .NoGradient()
      .Sample({.inputs = {}, .attrs = {}});
}

}  // namespace

std::vector<OpDef> GeneratorOps() {
  return {Generator("constant", {{"value", 0.5}}),
          Generator("random_uniform", {{"low", -1.0}, {"high", 1.0}}).Random(),
          Generator("random_normal", {{"mean", 0.0}, {"stddev", 1.0}}).Random(),
          Generator("iota", {{"axis", int64_t{1}}}),
          LiteralOp(),
          DropoutOp(),
          StepOp()};
}

}  // namespace braid
