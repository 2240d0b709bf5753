// Ensembles of trees of the domain ai.onnx.ml, of the versions before 5, in which leaves are nodes
// too, and since.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "api/onnx/ml_forest.h"
#include "api/onnx/ml_scores.h"
#include "api/onnx/onnx.pb.h"
#include "api/onnx/tensor_proto.h"
#include "api/onnx/translators.h"
#include "graph/functional.h"
#include "runtime/base/status.h"

namespace braid::onnx {
namespace {

using Numbers = std::vector<double>;

// How ONNX names and numbers what a node asks.
enum class TreeMode { kAtMost, kBelow, kAtLeast, kAbove, kEqual, kNotEqual, kMember, kLeaf };

absl::StatusOr<TreeMode> TreeModeOf(const std::string& name) {
  if (name == "BRANCH_LEQ") return TreeMode::kAtMost;
  if (name == "BRANCH_LT") return TreeMode::kBelow;
  if (name == "BRANCH_GTE") return TreeMode::kAtLeast;
  if (name == "BRANCH_GT") return TreeMode::kAbove;
  if (name == "BRANCH_EQ") return TreeMode::kEqual;
  if (name == "BRANCH_NEQ") return TreeMode::kNotEqual;
  if (name == "LEAF") return TreeMode::kLeaf;
  return Wrong(absl::StrCat("a node's mode is '", name, "'"));
}

// `node` has its branches and its value. NaN goes where `tracks_true` says.
void SetMode(TreeNode& node, TreeMode mode, bool tracks_true) {
  const bool is_swapped =
      mode == TreeMode::kAtLeast || mode == TreeMode::kAbove || mode == TreeMode::kNotEqual;
  node.kind = mode == TreeMode::kAtMost || mode == TreeMode::kAbove    ? SplitKind::kAtMost
              : mode == TreeMode::kBelow || mode == TreeMode::kAtLeast ? SplitKind::kBelow
                                                                       : SplitKind::kMember;
  if (mode == TreeMode::kEqual || mode == TreeMode::kNotEqual) node.members = {node.value};
  if (is_swapped) std::swap(node.yes, node.no);
  node.takes_nan = tracks_true != is_swapped;
}

// A list that has an element for each of `size` things, or is not there.
template <class T>
absl::Status CheckSize(const char* name, const std::vector<T>& list, size_t size) {
  if (list.size() == size) return absl::OkStatus();
  return Wrong(absl::StrCat(name, " has ", list.size(), " elements for ", size));
}

absl::StatusOr<Ints> IntsFor(const NodeView& n, const char* name, size_t size) {
  Ints list = n.List(name).value_or(Ints());
  BRAID_RETURN_IF_ERROR(CheckSize(name, list, size));
  return list;
}

absl::StatusOr<Numbers> NumbersFor(const NodeView& n, const char* name, size_t size) {
  BRAID_ASSIGN_OR_RETURN(Numbers list, FloatsOf(n, name));
  BRAID_RETURN_IF_ERROR(CheckSize(name, list, size));
  return list;
}

// Nodes by tree and by their number in it, as the attributes name them.
using Places = std::map<std::pair<int64_t, int64_t>, int64_t>;

// The nodes of the versions before 5, without what leaves give.
absl::StatusOr<Places> ReadNodes(const NodeView& n, Forest& forest) {
  n.Ignore("nodes_hitrates");  // how often training came there
  n.Ignore("nodes_hitrates_as_tensor");
  const Ints trees = n.List("nodes_treeids").value_or(Ints());
  const size_t size = trees.size();
  BRAID_ASSIGN_OR_RETURN(const Ints ids, IntsFor(n, "nodes_nodeids", size));
  BRAID_ASSIGN_OR_RETURN(const Ints features, IntsFor(n, "nodes_featureids", size));
  BRAID_ASSIGN_OR_RETURN(const Ints yes, IntsFor(n, "nodes_truenodeids", size));
  BRAID_ASSIGN_OR_RETURN(const Ints no, IntsFor(n, "nodes_falsenodeids", size));
  BRAID_ASSIGN_OR_RETURN(const Numbers values, NumbersFor(n, "nodes_values", size));
  const auto modes = n.Texts("nodes_modes").value_or(std::vector<std::string>());
  BRAID_RETURN_IF_ERROR(CheckSize("nodes_modes", modes, size));
  Ints nans(size);
  if (const auto given = n.List("nodes_missing_value_tracks_true"); given && !given->empty()) {
    BRAID_RETURN_IF_ERROR(CheckSize("nodes_missing_value_tracks_true", *given, size));
    nans = *given;
  }
  Places places;
  std::set<int64_t> begun;
  for (size_t i = 0; i < size; ++i) {
    const auto place = static_cast<int64_t>(i);
    if (!places.insert({{trees[i], ids[i]}, place}).second) {
      return Wrong(absl::StrCat("tree ", trees[i], " has two nodes ", ids[i]));
    }
    // The first node of a tree is its root.
    if (begun.insert(trees[i]).second) forest.roots.push_back(place);
  }
  for (size_t i = 0; i < size; ++i) {
    TreeNode& node = forest.nodes.emplace_back();
    BRAID_ASSIGN_OR_RETURN(const TreeMode mode, TreeModeOf(modes[i]));
    node.is_leaf = mode == TreeMode::kLeaf;
    if (node.is_leaf) continue;
    const auto at_yes = places.find({trees[i], yes[i]}), at_no = places.find({trees[i], no[i]});
    if (at_yes == places.end() || at_no == places.end()) {
      return Wrong(absl::StrCat("node ", ids[i], " of tree ", trees[i], " leads to ", yes[i],
                                " and ", no[i], ", which are not both there"));
    }
    node.feature = features[i];
    node.value = values[i];
    node.yes = at_yes->second;
    node.no = at_no->second;
    SetMode(node, mode, nans[i] != 0);
  }
  return places;
}

// What the leaves give, in attributes that begin with `prefix`, "class" or "target".
absl::Status ReadWeights(const NodeView& n, const std::string& prefix, const Places& places,
                         Forest& forest) {
  const Ints targets = n.List((prefix + "_ids").c_str()).value_or(Ints());
  const size_t size = targets.size();
  BRAID_ASSIGN_OR_RETURN(const Ints trees, IntsFor(n, (prefix + "_treeids").c_str(), size));
  BRAID_ASSIGN_OR_RETURN(const Ints ids, IntsFor(n, (prefix + "_nodeids").c_str(), size));
  BRAID_ASSIGN_OR_RETURN(const Numbers weights, NumbersFor(n, (prefix + "_weights").c_str(), size));
  for (size_t i = 0; i < size; ++i) {
    const auto place = places.find({trees[i], ids[i]});
    if (place == places.end()) {
      return Wrong(absl::StrCat("tree ", trees[i], " has no node ", ids[i], " with a weight"));
    }
    TreeNode& node = forest.nodes[place->second];
    if (node.is_leaf) node.weights.emplace_back(targets[i], weights[i]);
  }
  return absl::OkStatus();
}

absl::StatusOr<Tensor> AddBase(const NodeView& n, Tensor scores, const Numbers& base) {
  const auto size = static_cast<int64_t>(base.size());
  if (size == 0) return scores;
  if (size != 1 && size != scores.shape()[1]) {
    return Wrong(absl::StrCat("it has ", size, " base_values for ", scores.shape()[1]));
  }
  BRAID_ASSIGN_OR_RETURN(const Tensor table,
                         n.Table("base", TableOf(base, {size}, scores.dtype())));
  return Add(scores, table);
}

absl::StatusOr<Aggregate> AggregateOf(const std::string& name) {
  if (name == "SUM") return Aggregate::kSum;
  if (name == "AVERAGE") return Aggregate::kAverage;
  if (name == "MIN") return Aggregate::kMin;
  if (name == "MAX") return Aggregate::kMax;
  return Wrong(absl::StrCat("aggregate_function is '", name, "'"));
}

absl::StatusOr<Tensors> TranslateTreeEnsembleRegressor(const NodeView& n) {
  Forest forest;
  BRAID_ASSIGN_OR_RETURN(const Tensor x, Rows(n));
  BRAID_ASSIGN_OR_RETURN(const PostTransform transform, PostTransformOf(n));
  BRAID_ASSIGN_OR_RETURN(forest.aggregate, AggregateOf(n.Text("aggregate_function", "SUM")));
  forest.targets = n.Int("n_targets", 1);
  BRAID_ASSIGN_OR_RETURN(const Places places, ReadNodes(n, forest));
  BRAID_RETURN_IF_ERROR(ReadWeights(n, "target", places, forest));
  BRAID_ASSIGN_OR_RETURN(const Numbers base, FloatsOf(n, "base_values"));
  BRAID_ASSIGN_OR_RETURN(Tensor scores, Evaluate(n, forest, x));
  BRAID_ASSIGN_OR_RETURN(scores, AddBase(n, scores, base));
  return Tensors{Cast(Transformed(scores, transform), DType::kF32)};
}

// What the leaves of a classifier's trees say of its classes.
struct ClassWeights {
  std::set<int64_t> classes;  // that some leaf has a weight for
  bool is_positive = true;    // no weight is below 0
};

ClassWeights ClassWeightsOf(const Forest& forest) {
  ClassWeights result;
  for (const TreeNode& node : forest.nodes) {
    for (const auto& [target, weight] : node.weights) {
      result.classes.insert(target);
      result.is_positive &= weight >= 0;
    }
  }
  return result;
}

// Two classes of which the leaves know one, class 0 standing for both: its score is the second
// label's. Weights that are never negative are probabilities.
absl::StatusOr<Tensors> PairOfClasses(const NodeView& n, Tensor scores, const ClassWeights& weights,
                                      const Ints& labels) {
  BRAID_ASSIGN_OR_RETURN(const PostTransform transform, PostTransformOf(n));
  BRAID_ASSIGN_OR_RETURN(Numbers base, FloatsOf(n, "base_values"));
  const bool is_first = weights.classes.contains(0);
  if (is_first && base.size() == 2) base.pop_back();
  if (!is_first && base.size() == 1) base.insert(base.begin(), 0.0);
  if (is_first) scores = SliceAxis(scores, 1, {.begin = 0, .end = 1});
  BRAID_ASSIGN_OR_RETURN(scores, AddBase(n, scores, base));
  const Tensor score = is_first ? scores : SliceAxis(scores, 1, {.begin = 1, .end = 2});
  const Tensor is_second = Greater(score, NumberLike(score, weights.is_positive ? 0.5 : 0));
  const Tensor label = LabelsOf(Squeeze(Cast(is_second, DType::kI32), 1), labels);
  const Tensor rest = weights.is_positive ? AddScalar(Neg(score), 1) : Neg(score);
  const Tensor result =
      is_first ? TransformedPair(rest, score, transform) : Transformed(scores, transform);
  return Tensors{label, Cast(result, DType::kF32)};
}

// Labels i64 [n] and scores f32 [n, classes].
absl::StatusOr<Tensors> TranslateTreeEnsembleClassifier(const NodeView& n) {
  Forest forest;
  BRAID_ASSIGN_OR_RETURN(const Tensor x, Rows(n));
  BRAID_ASSIGN_OR_RETURN(const Ints labels, ClassLabels(n, "classlabels_int64s"));
  if (labels.size() == 1) return Lacking("a classifier with one class");
  forest.targets = static_cast<int64_t>(labels.size());
  BRAID_ASSIGN_OR_RETURN(const Places places, ReadNodes(n, forest));
  BRAID_RETURN_IF_ERROR(ReadWeights(n, "class", places, forest));
  BRAID_ASSIGN_OR_RETURN(Tensor scores, Evaluate(n, forest, x));
  const ClassWeights weights = ClassWeightsOf(forest);
  if (labels.size() == 2 && weights.classes.size() == 1) {
    return PairOfClasses(n, scores, weights, labels);
  }
  BRAID_ASSIGN_OR_RETURN(const PostTransform transform, PostTransformOf(n));
  BRAID_ASSIGN_OR_RETURN(const Numbers base, FloatsOf(n, "base_values"));
  if (!base.empty()) BRAID_RETURN_IF_ERROR(CheckSize("base_values", base, labels.size()));
  BRAID_ASSIGN_OR_RETURN(scores, AddBase(n, scores, base));
  return Tensors{LabelsOf(ArgMax(scores), labels),
                 Cast(Transformed(scores, transform), DType::kF32)};
}

absl::StatusOr<Numbers> TensorNumbers(const NodeView& n, const char* name) {
  const AttributeProto* tensor = n.Find(name);
  if (tensor == nullptr) return Numbers();
  BRAID_ASSIGN_OR_RETURN(const Array array, ToArray(tensor->t(), n.surroundings().file()));
  const Array wide = array.As(DType::kF64);
  return Numbers(wide.data<double>().begin(), wide.data<double>().end());
}

// The inner nodes of version 5; place `size` + i is leaf i.
absl::Status ReadInnerNodes(const NodeView& n, Forest& forest) {
  n.Ignore("nodes_hitrates");
  const Ints features = n.List("nodes_featureids").value_or(Ints());
  const size_t size = features.size();
  BRAID_ASSIGN_OR_RETURN(const Numbers modes, TensorNumbers(n, "nodes_modes"));
  BRAID_ASSIGN_OR_RETURN(const Numbers values, TensorNumbers(n, "nodes_splits"));
  BRAID_ASSIGN_OR_RETURN(const Ints yes, IntsFor(n, "nodes_truenodeids", size));
  BRAID_ASSIGN_OR_RETURN(const Ints no, IntsFor(n, "nodes_falsenodeids", size));
  BRAID_ASSIGN_OR_RETURN(const Ints yes_leaf, IntsFor(n, "nodes_trueleafs", size));
  BRAID_ASSIGN_OR_RETURN(const Ints no_leaf, IntsFor(n, "nodes_falseleafs", size));
  BRAID_ASSIGN_OR_RETURN(const Numbers members, TensorNumbers(n, "membership_values"));
  BRAID_RETURN_IF_ERROR(CheckSize("nodes_modes", modes, size));
  BRAID_RETURN_IF_ERROR(CheckSize("nodes_splits", values, size));
  Ints nans(size);
  if (const auto given = n.List("nodes_missing_value_tracks_true"); given && !given->empty()) {
    BRAID_RETURN_IF_ERROR(CheckSize("nodes_missing_value_tracks_true", *given, size));
    nans = *given;
  }
  const auto leaf_begin = static_cast<int64_t>(size);
  size_t at = 0;  // in members: the sets of the nodes, one after another, a NaN behind each
  for (size_t i = 0; i < size; ++i) {
    if (!(modes[i] >= 0 && modes[i] <= static_cast<double>(TreeMode::kMember))) {
      return Wrong(absl::StrCat("a node's mode is ", modes[i]));
    }
    // Leaves have places behind the inner nodes; a node never leads to a place that is none.
    const int64_t last = std::numeric_limits<int32_t>::max();
    if (yes[i] < 0 || yes[i] > last || no[i] < 0 || no[i] > last) {
      return Wrong(absl::StrCat("a node leads to ", yes[i], " and ", no[i]));
    }
    if ((yes_leaf[i] == 0 && yes[i] >= leaf_begin) || (no_leaf[i] == 0 && no[i] >= leaf_begin)) {
      return Wrong(absl::StrCat("a node leads to ", yes[i], " and ", no[i], " of ", size));
    }
    TreeNode& node = forest.nodes.emplace_back();
    node.feature = features[i];
    node.value = values[i];
    node.yes = yes[i] + (yes_leaf[i] != 0 ? leaf_begin : 0);
    node.no = no[i] + (no_leaf[i] != 0 ? leaf_begin : 0);
    const auto mode = static_cast<TreeMode>(modes[i]);
    if (mode == TreeMode::kMember) {
      for (; at < members.size() && !std::isnan(members[at]); ++at) {
        node.members.push_back(members[at]);
      }
      if (at == members.size()) return Wrong("membership_values has fewer sets than nodes");
      ++at;
    }
    SetMode(node, mode, nans[i] != 0);
  }
  return absl::OkStatus();
}

absl::StatusOr<Tensors> TranslateTreeEnsemble(const NodeView& n) {
  constexpr Aggregate kAggregates[] = {Aggregate::kAverage, Aggregate::kSum, Aggregate::kMin,
                                       Aggregate::kMax};
  constexpr PostTransform kTransforms[] = {PostTransform::kNone, PostTransform::kSoftmax,
                                           PostTransform::kLogistic, PostTransform::kSoftmaxZero,
                                           PostTransform::kProbit};
  const int64_t aggregate = n.Int("aggregate_function", 1), transform = n.Int("post_transform", 0);
  if (aggregate < 0 || aggregate > 3 || transform < 0 || transform > 4) {
    return Wrong(absl::StrCat("aggregate_function is ", aggregate, ", post_transform ", transform));
  }
  Forest forest;
  forest.aggregate = kAggregates[aggregate];
  BRAID_ASSIGN_OR_RETURN(const Tensor x, Rows(n));
  BRAID_RETURN_IF_ERROR(ReadInnerNodes(n, forest));
  forest.roots = n.List("tree_roots").value_or(Ints());
  const Ints targets = n.List("leaf_targetids").value_or(Ints());
  BRAID_ASSIGN_OR_RETURN(const Numbers weights, TensorNumbers(n, "leaf_weights"));
  BRAID_RETURN_IF_ERROR(CheckSize("leaf_weights", weights, targets.size()));
  int64_t most = 0;
  for (size_t i = 0; i < targets.size(); ++i) {
    forest.nodes.push_back({.is_leaf = true, .weights = {{targets[i], weights[i]}}});
    most = std::max(most, targets[i]);
  }
  forest.targets = n.Int("n_targets", most + 1);
  BRAID_ASSIGN_OR_RETURN(const Tensor scores, Evaluate(n, forest, x));
  return Tensors{Cast(Transformed(scores, kTransforms[transform]), n.dtype())};
}

}  // namespace

void AddMlTrees(Translators& all) {
  all.Add("ai.onnx.ml.TreeEnsembleRegressor", {}, TranslateTreeEnsembleRegressor);
  all.Add("ai.onnx.ml.TreeEnsembleClassifier", {}, TranslateTreeEnsembleClassifier);
  all.Add("ai.onnx.ml.TreeEnsemble", {}, TranslateTreeEnsemble);
}

}  // namespace braid::onnx
