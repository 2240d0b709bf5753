#include "graph/ops/pointwise.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/functional.h"
#include "graph/ops/shapes.h"

namespace braid {
namespace {

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

auto InputZero(Accepts accepts) {
  return [accepts](const OpContext& ctx) { return CheckAccepted(ctx, 0, accepts); };
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
  OpDef def =
      OpDef(std::move(name)).Rule("...->...").Check(InputZero(accepts)).Pointwise().Inplace(0, 0);
  if (accepts != Accepts::kIntegers) {
    def.Sample({.inputs = {SampleMatrix()},
                .attrs = options.attrs,
                .low = options.low,
                .high = options.high});
  }
  if (accepts != Accepts::kFloating) {
    def.Sample({.inputs = {SampleMatrix(DType::kI32)}, .attrs = options.attrs});
  }
  return def;
}

OpDef Binary(std::string name, PointwiseOptions options) {
  const Accepts accepts = options.accepts;
  OpDef def = OpDef(std::move(name))
                  .Rule("...,...->...")
                  .Takes("xx")
                  .Check(InputZero(accepts))
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
  add(SampleMatrix(first), SampleMatrix(first));
  add(SampleMatrix(first), {first, {6}});
  add({first, {3, 1, 6}}, {first, {5, 1}});
  if (accepts != Accepts::kFloating) add(SampleMatrix(DType::kI32), {DType::kI32, {6}});
  return def;
}

OpDef ActivationGradient(std::string name, PointwiseOptions options) {
  return OpDef(std::move(name))
      .Rule("N,N->N")
      .Takes("ff")
      .Pointwise()
      .Linear({1})
      .Inplace(1, 0)
      .NoGradient()
      .Sample({.inputs = {SampleMatrix(), SampleMatrix()},
               .attrs = std::move(options.attrs),
               .low = options.low,
               .high = options.high});
}

std::vector<Tensor> Summed(const GradientContext& c, std::vector<Tensor> gradients) {
  return {SumTo(gradients[0], c.inputs[0].shape()), SumTo(gradients[1], c.inputs[1].shape())};
}

}  // namespace braid
