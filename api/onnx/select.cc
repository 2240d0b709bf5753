// Results whose size the values decide: known values only, since shapes are fixed before a job
// runs.
#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "api/onnx/translators.h"
#include "graph/functional.h"
#include "runtime/base/status.h"

namespace braid::onnx {
namespace {

using Values = std::vector<Value>;

Value List(const Ints& ints) {
  return ConstantOf(Array::FromVector({static_cast<int64_t>(ints.size())}, ints));
}

// The slices where the condition holds, or, without an axis, the elements.
absl::StatusOr<Values> TranslateCompress(const NodeView& n) {
  BRAID_ASSIGN_OR_RETURN(const Ints condition, n.KnownInts(1));
  const bool is_flat = !n.Has("axis");
  int64_t axis = 0;
  if (!is_flat) {
    BRAID_ASSIGN_OR_RETURN(axis, n.Axis("axis", 0));
  }
  const Shape shape = n.shape();
  const int64_t all = is_flat ? shape.num_elements() : shape[static_cast<int>(axis)];
  if (static_cast<int64_t>(condition.size()) > all) {
    return Wrong(absl::StrCat("the condition has ", condition.size(), " elements for ", all));
  }
  Ints chosen;
  for (size_t i = 0; i < condition.size(); ++i) {
    if (condition[i] != 0) chosen.push_back(static_cast<int64_t>(i));
  }
  return n.surroundings().Compute({n.value(0), List(chosen)},
                                  [=](const NodeView& m) -> absl::StatusOr<Tensors> {
                                    const Tensor x = is_flat ? Reshape(m.in(0), {all}) : m.in(0);
                                    return Tensors{Gather(x, m.in(1), {.axis = axis})};
                                  });
}

// [rank, count]: the indices of elements that are not 0, in their order.
absl::StatusOr<Values> TranslateNonZero(const NodeView& n) {
  BRAID_ASSIGN_OR_RETURN(const std::vector<double> x, n.KnownFloats(0));
  const Shape shape = n.shape();
  std::vector<Ints> indices(shape.rank());
  int64_t count = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    if (x[i] == 0) continue;
    ++count;
    auto rest = static_cast<int64_t>(i);
    for (int axis = shape.rank() - 1; axis >= 0; --axis) {
      indices[axis].push_back(rest % shape[axis]);
      rest /= shape[axis];
    }
  }
  Ints all;
  for (const Ints& row : indices) all.insert(all.end(), row.begin(), row.end());
  return Values{ConstantOf(Array::FromVector({shape.rank(), count}, all))};
}

// Which slices along the axis are the first of their kind, and of which kind each one is.
struct Kinds {
  Ints first, of, counts;
};

// `slices` stand by place. Kinds are numbered by value, or by first place.
template <class T>
Kinds KindsOf(const std::vector<std::vector<T>>& slices, bool is_sorted) {
  struct Kind {
    int64_t first = 0, count = 0;
  };
  std::map<std::vector<T>, Kind> found;
  for (size_t i = 0; i < slices.size(); ++i) {
    Kind& kind = found[slices[i]];
    if (kind.count++ == 0) kind.first = static_cast<int64_t>(i);
  }
  std::vector<Kind> kinds;
  for (const auto& [slice, kind] : found) kinds.push_back(kind);
  if (!is_sorted) {
    std::sort(kinds.begin(), kinds.end(),
              [](const Kind& a, const Kind& b) { return a.first < b.first; });
  }
  Kinds result;
  std::map<int64_t, int64_t> number;  // of the kind that is first there
  for (const Kind& kind : kinds) {
    number[kind.first] = static_cast<int64_t>(result.first.size());
    result.first.push_back(kind.first);
    result.counts.push_back(kind.count);
  }
  for (const std::vector<T>& slice : slices) result.of.push_back(number[found[slice].first]);
  return result;
}

// Element i of slice k: values[(i / inner * size + k) * inner + i % inner].
template <class T>
std::vector<std::vector<T>> SlicesOf(const std::vector<T>& values, int64_t size, int64_t inner) {
  std::vector<std::vector<T>> slices(size);
  for (size_t at = 0; at < values.size(); ++at) {
    slices[static_cast<int64_t>(at) / inner % size].push_back(values[at]);
  }
  return slices;
}

absl::StatusOr<Values> TranslateUnique(const NodeView& n) {
  const bool is_sorted = n.Flag("sorted", true), is_flat = !n.Has("axis");
  int64_t axis = 0;
  if (!is_flat) {
    BRAID_ASSIGN_OR_RETURN(axis, n.Axis("axis", 0));
  }
  const Shape shape = is_flat ? Shape({n.shape().num_elements()}) : n.shape();
  const int64_t size = shape[static_cast<int>(axis)];
  int64_t inner = 1;
  for (int i = static_cast<int>(axis) + 1; i < shape.rank(); ++i) inner *= shape[i];
  Kinds kinds;
  if (IsFloating(n.dtype())) {
    BRAID_ASSIGN_OR_RETURN(const std::vector<double> values, n.KnownFloats(0));
    if (std::any_of(values.begin(), values.end(), [](double v) { return v != v; })) {
      return Lacking("unique of NaNs");
    }
    kinds = KindsOf(SlicesOf(values, size, inner), is_sorted);
  } else {
    BRAID_ASSIGN_OR_RETURN(const Ints values, n.KnownInts(0));
    kinds = KindsOf(SlicesOf(values, size, inner), is_sorted);
  }
  BRAID_ASSIGN_OR_RETURN(
      Values outputs,
      n.surroundings().Compute(
          {n.value(0), List(kinds.first)}, [=](const NodeView& m) -> absl::StatusOr<Tensors> {
            return Tensors{Gather(Reshape(m.in(0), shape), m.in(1), {.axis = axis})};
          }));
  for (const Ints* list : {&kinds.first, &kinds.of, &kinds.counts}) outputs.push_back(List(*list));
  return outputs;
}

}  // namespace

void AddSelect(Translators& all) {
  all.AddValues("Compress", {2, 2}, TranslateCompress);
  all.AddValues("NonZero", {}, TranslateNonZero);
  all.AddValues("Unique", {}, TranslateUnique);
}

}  // namespace braid::onnx
