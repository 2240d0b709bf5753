// EmbeddingBag, a composite of gather and a reduction.
#include <limits>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "graph/functional.h"
#include "graph/functions/operand_checks.h"

namespace braid {
namespace {

Tensor Scalar(Tensor like, double value, SourceLocation where) {
  return Constant(*like.graph(), value, {.dtype = like.dtype()}, where);
}

// The sum over bags: rows [batch, n, c], weights [batch, n] or invalid.
Tensor SumOfBags(Tensor rows, Tensor weights, SourceLocation where) {
  if (!weights.valid()) return ReduceSum(rows, {.axes = {1}}, where);
  return Squeeze(MatMul(ExpandDims(weights, 1, where), rows, {}, where), 1, where);
}

}  // namespace

Tensor EmbeddingBag(Tensor table, Tensor indices, EmbeddingBagOptions options,
                    SourceLocation where) {
  const bool has_weights = !options.weights.is_none();
  std::vector<Tensor> operands = {table, indices};
  if (has_weights) operands.push_back(options.weights);
  if (!AllValid(operands)) return Invalid(operands, where);
  const bool fits = table.shape().rank() == 2 && indices.shape().rank() == 2 &&
                    IsFloating(table.dtype()) &&
                    (!has_weights ||
                     (options.weights.shape() == indices.shape() && options.mode == BagMode::kSum));
  if (!fits) {
    return table.graph()->Fail(absl::InvalidArgumentError(absl::StrCat(
        "embedding_bag: table is ", table.type().ToString(), ", indices are ",
        indices.type().ToString(), ", weights are ",
        has_weights ? options.weights.type().ToString() : std::string("none"),
        "; a floating table [rows, c], indices [batch, n] and, for sums only, weights like them "
        "are needed (",
        where.ToString(), ")")));
  }
  const int64_t size = indices.shape()[1];
  const Tensor zero = Scalar(table, 0, where);
  if (size == 0) return BroadcastTo(zero, {indices.shape()[0], table.shape()[1]}, where);
  Tensor rows = Embedding(table, indices, where);
  if (!options.padding_index) {
    if (options.mode == BagMode::kSum) return SumOfBags(rows, options.weights, where);
    return options.mode == BagMode::kMean ? ReduceMean(rows, {.axes = {1}}, where)
                                          : ReduceMax(rows, {.axes = {1}}, where);
  }
  const Tensor padding = Scalar(indices, static_cast<double>(*options.padding_index), where);
  const Tensor is_member = NotEqual(indices, padding, where);  // [batch, n]
  const Tensor member = Cast(is_member, table.dtype(), where);
  if (options.mode == BagMode::kSum) {
    return SumOfBags(rows, has_weights ? Mul(options.weights, member, where) : member, where);
  }
  const Tensor count = ReduceSum(member, {.axes = {1}, .keep_dims = true}, where);
  if (options.mode == BagMode::kMean) {
    return Div(SumOfBags(rows, member, where), Maximum(count, Scalar(table, 1, where), where),
               where);
  }
  const Tensor lowest = Scalar(table, -std::numeric_limits<double>::infinity(), where);
  rows = Where(ExpandDims(is_member, -1, where), rows, lowest, where);
  return Where(Greater(count, zero, where), ReduceMax(rows, {.axes = {1}}, where), zero, where);
}

}  // namespace braid
