// Casts between element types, and the same bits seen as another type.
#include <string>

#include "absl/strings/str_cat.h"
#include "graph/functional.h"
#include "graph/op_parts.h"
#include "graph/ops/families.h"
#include "graph/ops/pointwise.h"
#include "graph/ops/shapes.h"

namespace braid {
namespace {

using Context = GradientContext;
using Gradients = std::vector<Tensor>;

// A wider float holds every value of the narrower: addends may pass.
bool Widens(const OpContext& ctx) {
  const DType from = ctx.inputs[0].dtype, to = ctx.outputs[0].dtype;
  return IsFloating(from) && IsFloating(to) && (from == to || SizeOf(to) > SizeOf(from));
}

// Coded elements are looked up as a whole, and narrow ones widened so.
OpParts CastParts(const OpContext& ctx) {
  const DType from = ctx.inputs[0].dtype, to = ctx.outputs[0].dtype;
  const bool widens = IsNarrow(from) && to == DType::kF32;
  const bool is_whole = from == to || widens || IsCoded(from) || IsCoded(to);
  return is_whole ? OpParts{} : CopyParts(ctx);
}

// `saturate` and `rounding` are of casts to coded floats; see Encoding.
absl::Status CheckCast(const OpContext& ctx) {
  if (!ctx.attrs.Has("rounding")) return absl::OkStatus();
  const std::string& rounding = ctx.attrs.String("rounding");
  if (rounding == "up" || rounding == "down" || rounding == "nearest") return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("rounding is '", rounding, "'; up, down or nearest is needed"));
}

OpDef CastOp() {
  return OpDef("cast")
      .Rule("...->...")
      .Gives([](const OpContext& ctx) { return ctx.attrs.Type("dtype"); })
      .Check(CheckCast)
      .Linear({0}, Widens)
      .Pointwise()
      .Parts(CastParts)
      .Gradient([](const Context& c) {
        const DType from = c.inputs[0].dtype();
        return Gradients{IsFloating(from) && IsFloating(Dy(c).dtype()) ? Cast(Dy(c), from)
                                                                       : Tensor()};
      })
      .Sample({.inputs = {SampleMatrix()}, .attrs = {{"dtype", DType::kF64}}})
      .Sample({.inputs = {SampleMatrix(DType::kI32)}, .attrs = {{"dtype", DType::kF32}}})
      .Sample({.inputs = {SampleMatrix(DType::kI32)}, .attrs = {{"dtype", DType::kI8}}})
      .Sample({.inputs = {SampleMatrix(DType::kU16)}, .attrs = {{"dtype", DType::kI4}}})
      .Sample({.inputs = {SampleMatrix()},
               .attrs = {{"dtype", DType::kF8E4M3Fn}, {"saturate", int64_t{0}}},
               .check_gradient = false})
      .Sample({.inputs = {SampleMatrix()},
               .attrs = {{"dtype", DType::kF8E8M0}, {"rounding", std::string("nearest")}},
               .low = 0.1,
               .high = 9,
               .check_gradient = false});
}

OpDef BitCastOp() {
  return OpDef("bit_cast")
      .Rule("...->...")
      .Gives([](const OpContext& ctx) { return ctx.attrs.Type("dtype"); })
      .Check([](const OpContext& ctx) -> absl::Status {
        const DType from = ctx.inputs[0].dtype, to = ctx.attrs.Type("dtype");
        if (SizeOf(from) == SizeOf(to)) return absl::OkStatus();
        return absl::InvalidArgumentError(
            absl::StrCat("an element of ", std::string(ToString(from)), " has ", SizeOf(from),
                         " bytes and one of ", std::string(ToString(to)), " has ", SizeOf(to),
                         "; as many are needed"));
      })
      .Inplace(0, 0)
      .NoGradient()
      .Sample({.inputs = {SampleMatrix(DType::kI32)}, .attrs = {{"dtype", DType::kU32}}});
}

}  // namespace

std::vector<OpDef> CastOps() {
  std::vector<OpDef> ops;
  ops.push_back(CastOp());
  ops.push_back(BitCastOp());
  return ops;
}

}  // namespace braid
