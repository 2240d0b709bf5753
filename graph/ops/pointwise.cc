#include "graph/ops/pointwise.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/functional.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

TensorType Matrix(DType dtype = DType::kF32) { return {dtype, {5, 6}}; }

bool IsAccepted(DType dtype, Accepts accepts) {
  const bool is_wide_integer = dtype == DType::kI32 || dtype == DType::kI64;
  switch (accepts) {
    case Accepts::kFloating:
      return IsFloating(dtype);
    case Accepts::kNumbers:
      return IsFloating(dtype) || is_wide_integer;
    case Accepts::kIntegers:
      return is_wide_integer || dtype == DType::kU8;
    case Accepts::kAll:
      return IsFloating(dtype) || is_wide_integer || dtype == DType::kU8;
  }
  return false;
}

const char* NameOf(Accepts accepts) {
  switch (accepts) {
    case Accepts::kFloating:
      return "a floating dtype";
    case Accepts::kNumbers:
      return "floating, i32 or i64";
    case Accepts::kIntegers:
      return "i32, i64 or u8";
    case Accepts::kAll:
      return "floating, i32, i64 or u8";
  }
  return "";
}

std::vector<SbpSignature> Signatures(const OpContext& ctx, int64_t /*parts*/) {
  return BroadcastSignatures(ctx);
}

}  // namespace

absl::Status CheckAccepted(const OpContext& ctx, int input, Accepts accepts) {
  if (IsAccepted(ctx.inputs[input].dtype, accepts)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(std::string(1, static_cast<char>('a' + input)),
                                                 " is ", ctx.inputs[input].ToString(), "; ",
                                                 NameOf(accepts), " is needed"));
}

OpDef Unary(std::string name, PointwiseOptions options) {
  const Accepts accepts = options.accepts;
  OpDef def = OpDef(std::move(name))
                  .Infer([accepts](const OpContext& ctx) -> Types {
                    RETURN_IF_ERROR(CheckInputs(ctx, 1));
                    RETURN_IF_ERROR(CheckAccepted(ctx, 0, accepts));
                    return std::vector<TensorType>{ctx.inputs[0]};
                  })
                  .Signatures(Signatures)
                  .Pointwise()
                  .Inplace(0, 0);
  if (accepts != Accepts::kIntegers) {
    def.Sample(
        {.inputs = {Matrix()}, .attrs = options.attrs, .low = options.low, .high = options.high});
  }
  if (accepts != Accepts::kFloating) {
    def.Sample({.inputs = {Matrix(DType::kI32)}, .attrs = options.attrs});
  }
  return def;
}

OpDef Binary(std::string name, PointwiseOptions options) {
  const Accepts accepts = options.accepts;
  OpDef def = OpDef(std::move(name))
                  .Infer([accepts](const OpContext& ctx) -> Types {
                    RETURN_IF_ERROR(CheckInputs(ctx, 2));
                    RETURN_IF_ERROR(CheckAccepted(ctx, 0, accepts));
                    RETURN_IF_ERROR(CheckSameDType(ctx, 0, 1));
                    absl::StatusOr<Shape> shape =
                        BroadcastShapes(ctx.inputs[0].shape, ctx.inputs[1].shape);
                    if (!shape.ok()) return shape.status();
                    return std::vector<TensorType>{{ctx.inputs[0].dtype, *std::move(shape)}};
                  })
                  .Signatures(Signatures)
                  .Pointwise()
                  .Inplace(0, 0)
                  .Inplace(1, 0);
  const DType first = accepts == Accepts::kIntegers ? DType::kI64 : DType::kF32;
  const auto add = [&](TensorType a, TensorType b) {
    def.Sample({.inputs = {std::move(a), std::move(b)},
                .attrs = options.attrs,
                .low = options.low,
                .high = options.high});
  };
  add(Matrix(first), Matrix(first));
  add(Matrix(first), {first, {6}});
  add({first, {3, 1, 6}}, {first, {5, 1}});
  if (accepts != Accepts::kFloating) add(Matrix(DType::kI32), {DType::kI32, {6}});
  return def;
}

OpDef ActivationGradient(std::string name, PointwiseOptions options) {
  return OpDef(std::move(name))
      .Infer([](const OpContext& ctx) -> Types {
        RETURN_IF_ERROR(CheckInputs(ctx, 2));
        RETURN_IF_ERROR(CheckFloating(ctx, 0));
        RETURN_IF_ERROR(CheckSameType(ctx, 0, 1));
        return std::vector<TensorType>{ctx.inputs[0]};
      })
      .Signatures(Signatures)
      .Pointwise()
      .Linear({1})
      .Inplace(1, 0)
      .NoGradient()
      .Sample({.inputs = {Matrix(), Matrix()},
               .attrs = std::move(options.attrs),
               .low = options.low,
               .high = options.high});
}

std::vector<Tensor> Summed(const GradientContext& c, std::vector<Tensor> gradients) {
  return {SumTo(gradients[0], c.inputs[0].shape()), SumTo(gradients[1], c.inputs[1].shape())};
}

}  // namespace braid
