#include "graph/functions/operand_checks.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace braid {

bool AllValid(const std::vector<Tensor>& tensors) {
  return std::all_of(tensors.begin(), tensors.end(), [](const Tensor& t) { return t.valid(); });
}

bool IsUnusable(const Tensor& optional) { return !optional.is_none() && !optional.valid(); }

Tensor Invalid(const std::vector<Tensor>& tensors, SourceLocation where) {
  for (const Tensor& t : tensors) {
    if (t.graph() != nullptr) return Fail(t, "an operand is no tensor", where);
  }
  const auto gone =
      std::find_if(tensors.begin(), tensors.end(), [](const Tensor& t) { return !t.is_none(); });
  return gone == tensors.end() ? Tensor() : *gone;
}

Tensor Fail(Tensor x, std::string_view what, SourceLocation where) {
  if (x.graph() == nullptr) return x;
  return x.graph()->Fail(
      absl::InvalidArgumentError(absl::StrCat(std::string(what), " (", where.ToString(), ")")));
}

std::optional<int64_t> Normalize(Tensor x, int64_t axis, int rank, std::string_view op,
                                 SourceLocation where) {
  const int64_t normal = axis < 0 ? axis + rank : axis;
  if (normal >= 0 && normal < rank) return normal;
  Fail(x,
       absl::StrCat(std::string(op), ": axis is ", axis, ", a is ", x.type().ToString(),
                    "; axes go from ", -rank, " to ", rank - 1),
       where);
  return std::nullopt;
}

std::optional<std::vector<int64_t>> NormalizeAll(Tensor x, const std::vector<int64_t>& axes,
                                                 std::string_view op, SourceLocation where) {
  const int rank = x.shape().rank();
  std::vector<int64_t> normal(axes.empty() ? rank : 0);
  std::iota(normal.begin(), normal.end(), 0);
  for (int64_t axis : axes) {
    const std::optional<int64_t> one = Normalize(x, axis, rank, op, where);
    if (!one) return std::nullopt;
    normal.push_back(*one);
  }
  std::sort(normal.begin(), normal.end());
  normal.erase(std::unique(normal.begin(), normal.end()), normal.end());
  return normal;
}

std::optional<std::vector<int64_t>> NormalizeEach(Tensor x, const std::vector<int64_t>& axes,
                                                  std::string_view op, SourceLocation where) {
  std::vector<int64_t> normal;
  for (int64_t axis : axes) {
    const std::optional<int64_t> one = Normalize(x, axis, x.shape().rank(), op, where);
    if (!one) return std::nullopt;
    if (std::count(normal.begin(), normal.end(), *one) > 0) {
      Fail(x,
           absl::StrCat(std::string(op), ": axis ", *one, " of ", x.type().ToString(),
                        " is named twice"),
           where);
      return std::nullopt;
    }
    normal.push_back(*one);
  }
  return normal;
}

}  // namespace braid
