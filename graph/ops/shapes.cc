#include "graph/ops/shapes.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "graph/functional.h"
#include "runtime/base/status.h"

namespace braid {
absl::Status CheckSameType(const OpContext& ctx, int a, int b) {
  BRAID_RETURN_IF_ERROR(CheckSameDType(ctx, a, b));
  if (ctx.inputs[a].shape == ctx.inputs[b].shape) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(InputText(ctx, a), ", ", InputText(ctx, b), "; shapes differ"));
}

absl::Status CheckShape(const OpContext& ctx, int input, const Shape& expected) {
  if (ctx.inputs[input].shape == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(InputText(ctx, input), ", a is ",
                                                 ctx.inputs[0].ToString(), "; ", LetterOf(input),
                                                 " must have shape ", expected.ToString()));
}

absl::Status CheckMinRank(const OpContext& ctx, int input, int rank) {
  if (ctx.inputs[input].shape.rank() >= rank) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(InputText(ctx, input), "; at least ", rank, " axes are needed"));
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

std::string ListText(const std::vector<int64_t>& values) { return Shape(values).ToString(); }

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
