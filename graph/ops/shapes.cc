#include "graph/ops/shapes.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "graph/functional.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

std::string Letter(int input) { return std::string(1, static_cast<char>('a' + input)); }

std::string Is(const OpContext& ctx, int input) {
  return absl::StrCat(Letter(input), " is ", ctx.inputs[input].ToString());
}

}  // namespace

absl::Status CheckInputs(const OpContext& ctx, int count) {
  if (static_cast<int>(ctx.inputs.size()) == count) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("has ", ctx.inputs.size(), " inputs, takes ", count));
}

absl::Status CheckFloating(const OpContext& ctx, int input) {
  if (IsFloating(ctx.inputs[input].dtype)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(Is(ctx, input), "; a floating dtype is needed"));
}

absl::Status CheckInteger(const OpContext& ctx, int input) {
  const DType dtype = ctx.inputs[input].dtype;
  if (dtype == DType::kI32 || dtype == DType::kI64) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(Is(ctx, input), "; i32 or i64 is needed"));
}

absl::Status CheckSameDType(const OpContext& ctx, int a, int b) {
  if (ctx.inputs[a].dtype == ctx.inputs[b].dtype) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(Is(ctx, a), ", ", Is(ctx, b), "; dtypes differ, Cast one"));
}

absl::Status CheckSameType(const OpContext& ctx, int a, int b) {
  RETURN_IF_ERROR(CheckSameDType(ctx, a, b));
  if (ctx.inputs[a].shape == ctx.inputs[b].shape) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(Is(ctx, a), ", ", Is(ctx, b), "; shapes differ"));
}

absl::Status CheckShape(const OpContext& ctx, int input, const Shape& expected) {
  if (ctx.inputs[input].shape == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(Is(ctx, input), ", a is ",
                                                 ctx.inputs[0].ToString(), "; ", Letter(input),
                                                 " must have shape ", expected.ToString()));
}

absl::Status CheckMinRank(const OpContext& ctx, int input, int rank) {
  if (ctx.inputs[input].shape.rank() >= rank) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(Is(ctx, input), "; at least ", rank, " axes are needed"));
}

absl::Status CheckAxis(int64_t axis, int rank) {
  if (axis >= 0 && axis < rank) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("axis is ", axis, ", rank is ", rank));
}

absl::Status Disagree(const OpContext& ctx, std::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("a is ", ctx.inputs[0].shape.ToString(), ", b is ",
                                                 ctx.inputs[1].shape.ToString(), "; ",
                                                 std::string(why)));
}

absl::Status Disagree(const OpContext& ctx, std::string_view attr,
                      const std::vector<int64_t>& value, std::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("a is ", ctx.inputs[0].ToString(), ", ",
                                                 std::string(attr), " is ", ListText(value), "; ",
                                                 std::string(why)));
}

std::string ListText(const std::vector<int64_t>& values) {
  return absl::StrCat("[", absl::StrJoin(values, ", "), "]");
}

bool Flag(const Attrs& attrs, std::string_view name) { return attrs.Has(name) && attrs.Bool(name); }

absl::StatusOr<Shape> BroadcastShapes(const Shape& a, const Shape& b) {
  const int rank = std::max(a.rank(), b.rank());
  std::vector<int64_t> dims(rank);
  for (int i = 0; i < rank; ++i) {
    const int ia = i - (rank - a.rank()), ib = i - (rank - b.rank());
    const int64_t da = ia < 0 ? 1 : a[ia], db = ib < 0 ? 1 : b[ib];
    if (da != db && da != 1 && db != 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("a is ", a.ToString(), ", b is ", b.ToString(), "; they do not broadcast"));
    }
    dims[i] = da == 1 ? db : da;
  }
  return Shape(std::move(dims));
}

Sbp BroadcastOperandSbp(const Shape& operand, const Shape& out, int axis) {
  const int own = axis - (out.rank() - operand.rank());
  if (own < 0 || operand[own] != out[axis]) return sbp::B;
  return sbp::S(own);
}

std::vector<SbpSignature> BroadcastSignatures(const OpContext& ctx) {
  std::vector<SbpSignature> signatures;
  const Shape& out = ctx.outputs[0].shape;
  for (int axis = 0; axis < out.rank(); ++axis) {
    SbpSignature signature;
    for (const TensorType& input : ctx.inputs) {
      signature.inputs.push_back(BroadcastOperandSbp(input.shape, out, axis));
    }
    signature.outputs.assign(ctx.outputs.size(), sbp::S(axis));
    signatures.push_back(std::move(signature));
  }
  return signatures;
}

SbpSignature SplitAt(std::initializer_list<int> inputs, std::initializer_list<int> outputs) {
  SbpSignature signature;
  for (int axis : inputs) signature.inputs.push_back(axis < 0 ? sbp::B : sbp::S(axis));
  for (int axis : outputs) signature.outputs.push_back(axis < 0 ? sbp::B : sbp::S(axis));
  return signature;
}

std::vector<SbpSignature> LeadingSignatures(const OpContext& ctx, int axes) {
  std::vector<SbpSignature> signatures;
  for (int axis = 0; axis < axes; ++axis) {
    signatures.push_back({std::vector<Sbp>(ctx.inputs.size(), sbp::S(axis)),
                          std::vector<Sbp>(ctx.outputs.size(), sbp::S(axis))});
  }
  return signatures;
}

Shape Leading(const Shape& shape, int count) {
  return Shape(std::vector<int64_t>(shape.begin(), shape.end() - count));
}

Tensor SumTo(Tensor x, Shape shape) {
  if (!x.valid() || x.shape() == shape) return x;
  const int extra = x.shape().rank() - shape.rank();
  std::vector<int64_t> axes;
  for (int axis = 0; axis < x.shape().rank(); ++axis) {
    if (axis < extra || shape[axis - extra] != x.shape()[axis]) axes.push_back(axis);
  }
  return Reshape(ReduceSum(x, {.axes = axes}), shape);
}

}  // namespace braid
