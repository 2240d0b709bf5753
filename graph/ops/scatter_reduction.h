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

// What joined addends and extremes allow beside the splits: `table`, B, `updates` -> `out`.
void AppendPartials(const OpContext& ctx, std::vector<SbpSignature>& signatures);
// Every part joins its own updates, split at these axes, with the whole table: an extreme may be
// met many times.
void AppendSplitUpdates(const OpContext& ctx, int indices, int updates,
                        std::vector<SbpSignature>& signatures);

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
