// An ensemble of decision trees as ml_trees.cc reads it from a node's attributes, and its walk as
// tensors: all rows go down all trees together, a level at a time.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "api/onnx/node_view.h"

namespace braid::onnx {

// Of a tree's inner node. Operators that are missing here are others with the branches swapped.
enum class SplitKind { kAtMost, kBelow, kMember };

struct TreeNode {
  bool is_leaf = false;
  // Inner nodes: whether the feature is at most `value`, below it, or one of `members`; NaN is
  // none of these.
  SplitKind kind = SplitKind::kAtMost;
  int64_t feature = 0;
  double value = 0;
  std::vector<double> members = {};
  bool takes_nan = false;   // NaN goes to `yes` all the same
  int64_t yes = 0, no = 0;  // places among the nodes
  // Leaves.
  std::vector<std::pair<int64_t, double>> weights = {};  // target, what the leaf gives it
};

enum class Aggregate { kSum, kAverage, kMin, kMax };

struct Forest {
  std::vector<TreeNode> nodes;
  std::vector<int64_t> roots;
  int64_t targets = 1;
  Aggregate aggregate = Aggregate::kSum;
};

// [n, targets] of x [n, features], f32 or f64: what the leaves give to each target that the row
// comes to. A target to which they give nothing has 0. INVALID_ARGUMENT if the nodes are no trees.
absl::StatusOr<Tensor> Evaluate(const NodeView& n, const Forest& forest, Tensor x);

}  // namespace braid::onnx
