// What scatter_elements and scatter_nd share: their reductions, the signatures that come from
// these, and gradients.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "graph/op_def.h"

namespace braid {

// OK for none, mul, max and min, of bools only for none.
absl::Status CheckReduction(const OpContext& ctx);
absl::Status CheckDims(const std::vector<int64_t>& dims);  // none may be negative

// What joined addends and extremes allow beside the splits.
void AppendPartials(const OpContext& ctx, FactorRule& rule);
// Every part joins its own updates, split at `axis` as their indices are, with the whole table: an
// extreme may be met many times.
void AppendSplitUpdates(const OpContext& ctx, int axis, FactorRule& rule);

// How one of the two families reads and writes.
struct Places {
  std::function<Tensor(Tensor table)> read;
  std::function<Tensor(Tensor updates, Shape table)> sum;  // into zeros
  std::function<Tensor(Tensor table, Tensor updates, std::string reduction)> join;
  std::function<Tensor()> last_ones;  // bool, broadcasts to the updates: which of them stay
};

std::vector<Tensor> ScatterGradient(const GradientContext& c, const Places& at);

// Numbers 0, 1, .. along `axis`, as integers that hold them.
Tensor Numbered(const GradientContext& c, Shape shape, int64_t axis);
// What no number is.
Tensor Unset(const GradientContext& c, DType dtype, Shape shape);

}  // namespace braid
