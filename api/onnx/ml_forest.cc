#include "api/onnx/ml_forest.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "api/onnx/ml_scores.h"
#include "graph/functional.h"
#include "runtime/base/status.h"

namespace braid::onnx {
namespace {

// Each level is some operators of the job.
constexpr int64_t kMaxTreeDepth = 1000;
constexpr int64_t kMaxTable = int64_t{1} << 28;  // numbers

absl::Status CheckNodes(const Forest& forest, int64_t features) {
  const auto size = static_cast<int64_t>(forest.nodes.size());
  const auto is_inside = [size](int64_t at) { return at >= 0 && at < size; };
  if (forest.roots.empty() || size > std::numeric_limits<int32_t>::max()) {
    return Wrong(absl::StrCat("it has ", forest.roots.size(), " trees of ", size, " nodes"));
  }
  if (forest.targets <= 0 || forest.targets > kMaxTable / std::max<int64_t>(size, 1)) {
    return Wrong(absl::StrCat("it has ", forest.targets, " targets for ", size, " nodes"));
  }
  for (int64_t root : forest.roots) {
    if (!is_inside(root)) return Wrong(absl::StrCat("a tree begins at node ", root, " of ", size));
  }
  for (const TreeNode& node : forest.nodes) {
    for (const auto& [target, weight] : node.weights) {
      if (target >= 0 && target < forest.targets) continue;
      return Wrong(absl::StrCat("a leaf has a weight for ", target, " of ", forest.targets));
    }
    if (node.is_leaf) continue;
    if (!is_inside(node.yes) || !is_inside(node.no)) {
      return Wrong(absl::StrCat("a node leads to ", node.yes, " and ", node.no, " of ", size));
    }
    if (node.feature < 0 || node.feature >= features) {
      return Wrong(absl::StrCat("a node asks for feature ", node.feature, " of ", features));
    }
  }
  return absl::OkStatus();
}

// The most inner nodes on a way from a root to a leaf.
absl::StatusOr<int64_t> DepthOf(const Forest& forest) {
  std::set<int64_t> level;
  const auto add = [&](std::set<int64_t>& to, int64_t at) {
    if (!forest.nodes[at].is_leaf) to.insert(at);
  };
  for (int64_t root : forest.roots) add(level, root);
  int64_t depth = 0;
  while (!level.empty()) {
    if (++depth > kMaxTreeDepth) {
      return Lacking(
          absl::StrCat("trees that are deeper than ", kMaxTreeDepth, ", or go in a circle"));
    }
    std::set<int64_t> next;
    for (int64_t at : level) {
      add(next, forest.nodes[at].yes);
      add(next, forest.nodes[at].no);
    }
    level = std::move(next);
  }
  return depth;
}

// A number of each node, or 0 of leaves.
template <class NumberOf>
absl::StatusOr<Tensor> Column(const NodeView& n, const char* name, const Forest& forest,
                              NumberOf number_of) {
  std::vector<int32_t> numbers;
  for (const TreeNode& node : forest.nodes) {
    numbers.push_back(node.is_leaf ? 0 : static_cast<int32_t>(number_of(node)));
  }
  return n.Table(name, Array::FromVector({static_cast<int64_t>(numbers.size())}, numbers));
}

// How the nodes decide, as tables that are indexed by node.
class Splits {
 public:
  static absl::StatusOr<Splits> Make(const NodeView& n, const Forest& forest, DType dtype) {
    Splits splits;
    std::set<SplitKind> kinds;
    bool takes_nan = false;
    for (const TreeNode& node : forest.nodes) {
      if (node.is_leaf) continue;
      kinds.insert(node.kind);
      takes_nan |= node.takes_nan;
    }
    splits.kinds_.assign(kinds.begin(), kinds.end());
    if (kinds.size() > 1) {
      BRAID_ASSIGN_OR_RETURN(splits.kind_, Column(n, "kinds", forest, [](const TreeNode& node) {
                               return static_cast<int>(node.kind);
                             }));
    }
    if (takes_nan) {
      BRAID_ASSIGN_OR_RETURN(splits.takes_nan_, Column(n, "nans", forest, [](const TreeNode& node) {
                               return node.takes_nan ? 1 : 0;
                             }));
    }
    if (kinds.contains(SplitKind::kAtMost) || kinds.contains(SplitKind::kBelow)) {
      std::vector<double> values;
      for (const TreeNode& node : forest.nodes) values.push_back(node.value);
      const auto size = static_cast<int64_t>(values.size());
      BRAID_ASSIGN_OR_RETURN(splits.values_, n.Table("values", TableOf(values, {size}, dtype)));
    }
    if (kinds.contains(SplitKind::kMember)) {
      BRAID_RETURN_IF_ERROR(splits.MakeSets(n, forest, dtype));
    }
    return splits;
  }

  // Whether nodes [n, trees] say yes to x [n, trees]: bool.
  Tensor Decide(Tensor nodes, Tensor x) const {
    Tensor result;
    for (SplitKind kind : kinds_) {
      Tensor is_yes = DecideAs(kind, nodes, x);
      if (kinds_.size() > 1) {
        const Tensor mine = Constant(*x.graph(), static_cast<int>(kind), {.dtype = DType::kI32});
        is_yes = LogicalAnd(is_yes, Equal(Gather(kind_, nodes), mine));
      }
      result = result.is_none() ? is_yes : LogicalOr(result, is_yes);
    }
    if (takes_nan_.is_none()) return result;
    const Tensor takes_nan = Gather(takes_nan_, nodes);
    const Tensor is_taken = Greater(takes_nan, NumberLike(takes_nan, 0));
    return LogicalOr(result, LogicalAnd(is_taken, IsNan(x)));
  }

 private:
  // The sets as rows of one width, filled up with NaN, which equals nothing.
  absl::Status MakeSets(const NodeView& n, const Forest& forest, DType dtype) {
    size_t width = 1, count = 0;
    for (const TreeNode& node : forest.nodes) {
      width = std::max(width, node.members.size());
      count += !node.is_leaf && node.kind == SplitKind::kMember;
    }
    if (count > kMaxTable / width) {
      return Lacking(absl::StrCat(count, " sets, the largest of ", width, " members"));
    }
    std::vector<double> sets;
    std::vector<int32_t> set_of;
    for (const TreeNode& node : forest.nodes) {
      set_of.push_back(0);
      if (node.is_leaf || node.kind != SplitKind::kMember) continue;
      set_of.back() = static_cast<int32_t>(sets.size() / width);
      sets.insert(sets.end(), node.members.begin(), node.members.end());
      sets.resize(sets.size() + width - node.members.size(),
                  std::numeric_limits<double>::quiet_NaN());
    }
    const Shape shape = {static_cast<int64_t>(count), static_cast<int64_t>(width)};
    BRAID_ASSIGN_OR_RETURN(sets_, n.Table("sets", TableOf(sets, shape, dtype)));
    BRAID_ASSIGN_OR_RETURN(
        set_of_,
        n.Table("set_of", Array::FromVector({static_cast<int64_t>(set_of.size())}, set_of)));
    return absl::OkStatus();
  }

  Tensor DecideAs(SplitKind kind, Tensor nodes, Tensor x) const {
    switch (kind) {
      case SplitKind::kAtMost:
        return LessEqual(x, Gather(values_, nodes));
      case SplitKind::kBelow:
        return Less(x, Gather(values_, nodes));
      case SplitKind::kMember:
        break;
    }
    const Tensor sets = Gather(sets_, Gather(set_of_, nodes));
    return ReduceAny(Equal(ExpandDims(x, -1), sets), {.axes = {-1}});
  }

  std::vector<SplitKind> kinds_;  // that occur
  Tensor kind_, takes_nan_, values_, sets_, set_of_;
};

// The leaf to which each row comes in each tree, as a place among the nodes: [n, trees].
absl::StatusOr<Tensor> Walk(const NodeView& n, const Forest& forest, Tensor x) {
  BRAID_ASSIGN_OR_RETURN(const int64_t depth, DepthOf(forest));
  const auto trees = static_cast<int64_t>(forest.roots.size());
  BRAID_ASSIGN_OR_RETURN(
      const Tensor roots,
      n.Table("roots", Array::FromVector({trees}, std::vector<int32_t>(forest.roots.begin(),
                                                                       forest.roots.end()))));
  Tensor nodes = BroadcastTo(roots, {x.shape()[0], trees});
  if (depth == 0) return nodes;
  BRAID_ASSIGN_OR_RETURN(const Splits splits, Splits::Make(n, forest, x.dtype()));
  BRAID_ASSIGN_OR_RETURN(
      const Tensor features,
      Column(n, "features", forest, [](const TreeNode& node) { return node.feature; }));
  // Where a node leads, first for no, then for yes; a leaf to itself.
  std::vector<int32_t> next;
  for (size_t i = 0; i < forest.nodes.size(); ++i) {
    const TreeNode& node = forest.nodes[i];
    next.push_back(static_cast<int32_t>(node.is_leaf ? i : node.no));
    next.push_back(static_cast<int32_t>(node.is_leaf ? i : node.yes));
  }
  BRAID_ASSIGN_OR_RETURN(
      const Tensor children,
      n.Table("children", Array::FromVector({static_cast<int64_t>(next.size())}, next)));
  for (int64_t level = 0; level < depth; ++level) {
    const Tensor asked = GatherElements(x, Gather(features, nodes), 1);
    const Tensor is_yes = Cast(splits.Decide(nodes, asked), DType::kI32);
    nodes = Gather(children, Add(Add(nodes, nodes), is_yes));
  }
  return nodes;
}

// What each node gives to each target, [nodes, targets]; `nothing` where it gives nothing.
std::vector<double> WeightsOf(const Forest& forest, double nothing) {
  std::vector<double> table(forest.nodes.size() * forest.targets, nothing);
  for (size_t i = 0; i < forest.nodes.size(); ++i) {
    for (const auto& [target, weight] : forest.nodes[i].weights) {
      double& entry = table[i * forest.targets + target];
      if (forest.aggregate == Aggregate::kMin) {
        entry = std::min(entry, weight);
      } else if (forest.aggregate == Aggregate::kMax) {
        entry = std::max(entry, weight);
      } else {
        entry += weight;
      }
    }
  }
  return table;
}

}  // namespace

absl::StatusOr<Tensor> Evaluate(const NodeView& n, const Forest& forest, Tensor x) {
  BRAID_RETURN_IF_ERROR(CheckNodes(forest, x.shape()[1]));
  BRAID_ASSIGN_OR_RETURN(const Tensor leaves, Walk(n, forest, x));
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const bool is_min = forest.aggregate == Aggregate::kMin;
  const bool is_max = forest.aggregate == Aggregate::kMax;
  const double nothing = is_min ? kInfinity : is_max ? -kInfinity : 0;
  const auto size = static_cast<int64_t>(forest.nodes.size());
  BRAID_ASSIGN_OR_RETURN(
      const Tensor weights,
      n.Table("weights", TableOf(WeightsOf(forest, nothing), {size, forest.targets}, x.dtype())));
  const Tensor given = Gather(weights, leaves);  // [n, trees, targets]
  if (is_min || is_max) {
    const Tensor extreme =
        is_min ? ReduceMin(given, {.axes = {1}}) : ReduceMax(given, {.axes = {1}});
    return Where(IsInf(extreme), NumberLike(extreme, 0), extreme);
  }
  return forest.aggregate == Aggregate::kAverage ? ReduceMean(given, {.axes = {1}})
                                                 : ReduceSum(given, {.axes = {1}});
}

}  // namespace braid::onnx
