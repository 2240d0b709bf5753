// Functions of the families of indices and of order: defaults and composites.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/functional.h"
#include "graph/functions/operand_checks.h"

namespace braid {
namespace {

const char* NameOf(ScatterReduction reduction) {
  switch (reduction) {
    case ScatterReduction::kMul:
      return "mul";
    case ScatterReduction::kMax:
      return "max";
    case ScatterReduction::kMin:
      return "min";
    default:
      return "none";
  }
}

// The operators take i32 and i64.
Tensor AsIndices(Tensor indices, SourceLocation where) {
  if (!indices.valid() || indices.dtype() != DType::kU8) return indices;
  return Cast(indices, DType::kI32, where);
}

Ordered InOrder(std::string_view op, Tensor x, int64_t axis, Attrs attrs, SourceLocation where) {
  if (!x.valid()) return {x, x};
  const std::optional<int64_t> at = Normalize(x, axis, x.shape().rank(), op, where);
  if (!at) return {Invalid({x}, where), Invalid({x}, where)};
  attrs.Set("axis", *at);
  const std::vector<Tensor> both = ApplyAll(op, {x}, std::move(attrs), where);
  return {both[0], both[1]};
}

}  // namespace

Tensor Gather(Tensor table, Tensor indices, GatherOptions options, SourceLocation where) {
  if (!AllValid({table, indices})) return Invalid({table, indices}, where);
  const std::optional<int64_t> axis =
      Normalize(table, options.axis, table.shape().rank(), "gather", where);
  if (!axis) return Invalid({table}, where);
  return Apply("gather", {table, AsIndices(indices, where)}, {{"axis", *axis}}, where);
}

Tensor Embedding(Tensor table, Tensor indices, SourceLocation where) {
  return Gather(table, indices, {.axis = 0}, where);
}

Tensor OneHot(Tensor indices, int64_t depth, DType dtype, SourceLocation where) {
  return Apply("one_hot", {AsIndices(indices, where)}, {{"depth", depth}, {"dtype", dtype}}, where);
}

Tensor OneHot(Tensor indices, int64_t depth, OneHotOptions options, SourceLocation where) {
  if (!indices.valid()) return indices;
  const std::optional<int64_t> axis =
      Normalize(indices, options.axis, indices.shape().rank() + 1, "one_hot", where);
  if (!axis) return Invalid({indices}, where);
  Attrs attrs = {{"depth", depth}, {"dtype", options.dtype}};
  if (*axis != indices.shape().rank()) attrs.Set("axis", *axis);
  return Apply("one_hot", {AsIndices(indices, where)}, std::move(attrs), where);
}

Tensor GatherElements(Tensor table, Tensor indices, int64_t axis, SourceLocation where) {
  if (!AllValid({table, indices})) return Invalid({table, indices}, where);
  const std::optional<int64_t> at =
      Normalize(table, axis, table.shape().rank(), "gather_elements", where);
  if (!at) return Invalid({table}, where);
  return Apply("gather_elements", {table, AsIndices(indices, where)}, {{"axis", *at}}, where);
}

Tensor TakeAlong(Tensor table, Tensor indices, int64_t axis, SourceLocation where) {
  if (!AllValid({table, indices})) return Invalid({table, indices}, where);
  const std::optional<int64_t> at =
      Normalize(table, axis, table.shape().rank(), "take_along", where);
  if (!at) return Invalid({table}, where);
  Shape from = table.shape(), to = indices.shape();
  if (from.rank() != to.rank()) {
    return Fail(table,
                absl::StrCat("take_along: a is ", table.type().ToString(), ", b is ",
                             indices.type().ToString(), "; the ranks must be equal"),
                where);
  }
  for (int i = 0; i < from.rank(); ++i) {
    if (i == *at) continue;
    if (from[i] == 1) from[i] = to[i];
    if (to[i] == 1) to[i] = from[i];
    if (from[i] != to[i]) {
      return Fail(table,
                  absl::StrCat("take_along: a is ", table.type().ToString(), ", b is ",
                               indices.type().ToString(), ", axis is ", *at,
                               "; the other axes must broadcast"),
                  where);
    }
  }
  table = BroadcastTo(table, from, where);
  return GatherElements(table, BroadcastTo(indices, to, where), *at, where);
}

Tensor GatherNd(Tensor table, Tensor indices, int64_t batch_dims, SourceLocation where) {
  return Apply("gather_nd", {table, AsIndices(indices, where)}, {{"batch_dims", batch_dims}},
               where);
}

Tensor ScatterElements(Tensor table, Tensor indices, Tensor updates, ScatterElementsOptions options,
                       SourceLocation where) {
  if (!AllValid({table, indices, updates})) return Invalid({table, indices, updates}, where);
  const std::optional<int64_t> axis =
      Normalize(table, options.axis, table.shape().rank(), "scatter_elements", where);
  if (!axis) return Invalid({table}, where);
  indices = AsIndices(indices, where);
  if (options.reduction == ScatterReduction::kAdd) {
    return Add(table,
               Apply("gather_elements_grad", {indices, updates},
                     {{"axis", *axis}, {"shape", table.shape().dims()}}, where),
               where);
  }
  return Apply("scatter_elements", {table, indices, updates},
               {{"axis", *axis}, {"reduction", NameOf(options.reduction)}}, where);
}

Tensor ScatterNd(Tensor table, Tensor indices, Tensor updates, ScatterNdOptions options,
                 SourceLocation where) {
  if (!AllValid({table, indices, updates})) return Invalid({table, indices, updates}, where);
  indices = AsIndices(indices, where);
  if (options.reduction == ScatterReduction::kAdd) {
    return Add(table,
               Apply("gather_nd_grad", {indices, updates},
                     {{"batch_dims", options.batch_dims}, {"shape", table.shape().dims()}}, where),
               where);
  }
  return Apply("scatter_nd", {table, indices, updates},
               {{"batch_dims", options.batch_dims}, {"reduction", NameOf(options.reduction)}},
               where);
}

Tensor IndexAdd(Tensor table, Tensor indices, Tensor updates, int64_t axis, SourceLocation where) {
  if (!AllValid({table, indices, updates})) return Invalid({table, indices, updates}, where);
  const Shape shape = table.shape();
  const std::optional<int64_t> at = Normalize(table, axis, shape.rank(), "index_add", where);
  if (!at) return Invalid({table}, where);
  const Tensor sums = Apply("gather_grad", {AsIndices(indices, where), updates},
                            {{"axis", *at}, {"size", shape[static_cast<int>(*at)]}}, where);
  if (sums.valid() && sums.shape() != shape) {
    return Fail(table,
                absl::StrCat("index_add: a is ", table.type().ToString(), ", the updates are ",
                             updates.type().ToString(), "; for these indices a table ",
                             sums.shape().ToString(), " is needed"),
                where);
  }
  return Add(table, sums, where);
}

Ordered Sort(Tensor x, SortOptions options, SourceLocation where) {
  return InOrder("sort", x, options.axis, {{"descending", options.descending}}, where);
}

Tensor ArgSort(Tensor x, SortOptions options, SourceLocation where) {
  return Sort(x, options, where).indices;
}

Ordered TopK(Tensor x, int64_t k, TopKOptions options, SourceLocation where) {
  return InOrder("top_k", x, options.axis, {{"k", k}, {"largest", options.largest}}, where);
}

}  // namespace braid
