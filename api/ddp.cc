#include "api/ddp.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "graph/functional.h"

namespace braid {
namespace {

GradientHook NarrowGradients(DType dtype) {
  return [dtype](Tensor bucket, const std::string&) {
    return Cast(SumMirrored(Cast(bucket, dtype)), bucket.dtype());
  };
}

// Columns that are orthogonal and of length 1, by Gram and Schmidt, twice for what rounding leaves;
// those that depend on others become 0. p is [n, rank].
Tensor Orthogonal(const Tensor& p, int64_t rank) {
  constexpr double kDependent = 1e-5;  // shares of a column's length
  constexpr double kNoLength = 1e-30;
  const auto length_of = [](const Tensor& column) {
    return Sqrt(ReduceSum(Square(column), {.axes = {0}, .keep_dims = true}));
  };
  std::vector<Tensor> columns;
  for (int64_t i = 0; i < rank; ++i) {
    Tensor column = SliceAxis(p, 1, {.begin = i, .end = i + 1});
    const Tensor least = AddScalar(Scale(length_of(column), kDependent), kNoLength);
    for (int pass = 0; pass < 2; ++pass) {
      for (const Tensor& other : columns) {
        column = column - other * ReduceSum(other * column, {.axes = {0}, .keep_dims = true});
      }
      const Tensor length = length_of(column);
      const Tensor counts = Cast(Greater(length, least), DType::kF32);
      if (pass == 0) column = column * counts;
      if (pass == 1) column = column * counts / AddScalar(length, kNoLength);
    }
    columns.push_back(column);
  }
  return columns.size() == 1 ? columns[0] : Concat(columns, 1);
}

Tensor Compressed(const Tensor& bucket, const std::string& name, int64_t rank) {
  LogicalGraph& graph = *bucket.graph();
  const int64_t count = bucket.shape()[0];
  const auto side = static_cast<int64_t>(std::ceil(std::sqrt(static_cast<double>(count))));
  rank = std::min(rank, side);
  const OwnVariable error =
      MakeOwnVariable(graph, *bucket.mirroring(), name + ".error", {DType::kF32, {count}});
  const Tensor wanted = Cast(bucket, DType::kF32) + error.value;
  const Tensor matrix = Reshape(Pad(wanted, {0}, {side * side - count}), {side, side});
  const Tensor q = Variable(graph, {.name = name + ".q",
                                    .shape = {side, rank},
                                    .init = "normal",
                                    .stddev = 1,
                                    .trainable = false});
  const Tensor p = Orthogonal(SumMirrored(MatMul(matrix, q)), rank);
  const Tensor own = MatMul(matrix, p, {.transpose_a = true});
  const Tensor sum = SumMirrored(own);
  const auto whole = [&](const Tensor& factor) {
    const Tensor product = MatMul(p, factor, {.transpose_b = true});
    return SliceAxis(Reshape(product, {side * side}), 0, {.begin = 0, .end = count});
  };
  Assign(error.stored, StoreOwn(wanted - whole(own)));
  Assign(q, sum);
  return Cast(whole(sum), bucket.dtype());
}

}  // namespace

GradientHook Fp16Gradients() { return NarrowGradients(DType::kF16); }
GradientHook Bf16Gradients() { return NarrowGradients(DType::kBF16); }

GradientHook PowerSgd::hook() const {
  return [rank = rank](Tensor bucket, const std::string& name) {
    if (rank >= 1) return Compressed(bucket, name, rank);
    return bucket.graph()->Fail(absl::InvalidArgumentError(
        absl::StrFormat("PowerSgd: rank is %d; at least 1 was expected", rank)));
  };
}

Tensor MeanOfLive(Tensor x, Tensor live, JoinDivisor by, SourceLocation where) {
  if (!x.valid() || !live.valid()) return x;
  const std::optional<Mirroring> mirroring = live.mirroring();
  if (live.shape().rank() != 0 || !mirroring.has_value()) {
    return x.graph()->Fail(absl::InvalidArgumentError(absl::StrFormat(
        "MeanOfLive: live is %s%s; a mirrored scalar was expected, 1 on devices that have data and "
        "0 on others (%s)",
        live.type().ToString(), mirroring.has_value() ? "" : ", which all devices share",
        where.ToString())));
  }
  const Tensor factor = StopGradient(Cast(live, x.dtype(), where), where);
  const Tensor sum = SumMirrored(Mul(x, factor, where), where);
  if (by == JoinDivisor::kAll) {
    return Scale(sum, 1.0 / static_cast<double>(mirroring->parts), where);
  }
  return Div(sum, SumMirrored(factor, where), where);
}

}  // namespace braid
