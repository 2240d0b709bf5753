#include "api/reduce_gradients.h"

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "graph/functional.h"
#include "graph/op_roles.h"

namespace braid {
namespace {

// Of buckets that a hook gets.
constexpr int64_t kFirstBucketBytes = int64_t{1} << 20;
constexpr int64_t kBucketBytes = int64_t{25} << 20;

// A variable that enters mirrored values, and by which operators.
struct Entering {
  OpId variable = kNone;
  std::vector<TensorId> mirrored;
};

// In the order in which their gradients become final: the last that the loss uses is the first.
std::vector<Entering> EnteringVariables(const LogicalGraph& graph, const MinimizeRequest& request) {
  const std::vector<bool> is_ancestor = AncestorsOf(graph, request.loss);
  std::map<OpId, std::vector<TensorId>> mirrored;  // by variable
  for (const Op& op : graph.ops()) {
    if (!is_ancestor[op.id] || !LeadsIntoMirrored(graph, op)) continue;
    const Op& source = graph.producer(op.inputs[0]);
    if (IsTrained(graph, request, source)) mirrored[source.id].push_back(op.outputs[0]);
  }
  std::vector<Entering> entering;
  for (auto& [variable, tensors] : mirrored) entering.push_back({variable, std::move(tensors)});
  std::ranges::sort(entering, std::greater(),
                    [](const Entering& one) { return *std::ranges::min_element(one.mirrored); });
  return entering;
}

class Reduction {
 public:
  Reduction(LogicalGraph& graph, const Ddp& ddp, bool is_without_sync, SourceLocation where)
      : graph_(graph),
        ddp_(ddp),
        bytes_(ddp.bucket_bytes.value_or(kBucketBytes)),
        first_bytes_(ddp.first_bucket_bytes.value_or(std::min(kFirstBucketBytes, bytes_))),
        is_without_sync_(is_without_sync),
        where_(where) {}

  void Run(const std::vector<Entering>& entering) {
    int64_t bytes = 0;
    std::vector<Part> bucket;
    for (const Entering& one : entering) {
      const Tensor value(&graph_, graph_.op(one.variable).outputs[0]);
      const Tensor own = OwnGradient(one);
      if (is_without_sync_ || !own.valid()) continue;
      if (!ddp_.hook) {
        Take(value, SumMirrored(own, where_));
        continue;
      }
      const int64_t more = own.shape().num_elements() * static_cast<int64_t>(SizeOf(own.dtype()));
      const int64_t limit = buckets_ == 0 ? first_bytes_ : bytes_;
      const bool is_other = !bucket.empty() && bucket[0].own.dtype() != own.dtype();
      if (!bucket.empty() && (is_other || bytes + more > limit)) {
        CallHook(std::exchange(bucket, {}));
        bytes = 0;
      }
      bucket.push_back({value, own});
      bytes += more;
    }
    if (!bucket.empty()) CallHook(bucket);
  }

 private:
  struct Part {
    Tensor value, own;
  };

  // What a device has of a variable's gradient, mirrored, with what is left of steps without sync.
  Tensor OwnGradient(const Entering& one) {
    Tensor own;
    for (const TensorId mirrored : one.mirrored) {
      const Tensor part = GradientOf(Tensor(&graph_, mirrored), where_);
      own = own.valid() ? Add(own, part, where_) : part;
    }
    if (!ddp_.no_sync || !own.valid()) return own;
    const std::string name = graph_.op(one.variable).name + ".unsynced";
    const OwnVariable unsynced =
        MakeOwnVariable(graph_, *own.mirroring(), name, own.type(), where_);
    own = Add(unsynced.value, own, where_);
    const Tensor left =
        is_without_sync_
            ? StoreOwn(own, where_)
            : Constant(graph_, 0, {.dtype = own.dtype(), .shape = unsynced.stored.shape()}, where_);
    Assign(unsynced.stored, left, where_);
    return own;
  }

  void CallHook(const std::vector<Part>& bucket) {
    ++buckets_;
    const std::string name = graph_.producer(bucket[0].value.id()).name;
    std::vector<Tensor> flat;
    for (const Part& part : bucket) {
      flat.push_back(Reshape(part.own, {part.own.shape().num_elements()}, where_));
    }
    const Tensor all = flat.size() == 1 ? flat[0] : Concat(flat, 0, where_);
    if (!all.valid()) return;
    const Tensor result = ddp_.hook(all, name);
    if (!graph_.status().ok()) return;
    const std::string problem = ProblemOf(all, result);
    if (!problem.empty()) {
      graph_.Fail(absl::InvalidArgumentError(absl::StrFormat(
          "Minimize: the hook of .ddp was given the bucket of '%s', %s, and returned %s; %s, which "
          "is "
          "not mirrored, was expected (%s)",
          name, all.type().ToString(), problem, all.type().ToString(), where_.ToString())));
      return;
    }
    int64_t begin = 0;
    for (const Part& part : bucket) {
      const int64_t count = part.own.shape().num_elements();
      const Tensor slice = SliceAxis(result, 0, {.begin = begin, .end = begin + count}, where_);
      Take(part.value, Reshape(slice, part.own.shape(), where_));
      begin += count;
    }
  }

  std::string ProblemOf(const Tensor& bucket, const Tensor& result) const {
    if (!result.valid() || result.graph() != &graph_) return "no tensor of this job";
    if (result.mirroring().has_value()) return result.type().ToString() + ", which is mirrored";
    return result.type() == bucket.type() ? "" : result.type().ToString();
  }

  void Take(const Tensor& variable, const Tensor& gradient) {
    ApplyAll("reduced_gradient", {variable, gradient}, {}, where_);
  }

  LogicalGraph& graph_;
  const Ddp& ddp_;
  const int64_t bytes_, first_bytes_;  // of a bucket
  const bool is_without_sync_;
  const SourceLocation where_;
  int buckets_ = 0;
};

}  // namespace

void ReduceGradients(LogicalGraph& graph, MinimizeRequest& request, const Ddp& ddp,
                     bool is_without_sync, SourceLocation where) {
  const auto fail = [&](const std::string& problem) {
    graph.Fail(absl::InvalidArgumentError(
        absl::StrFormat("Minimize: %s (%s)", problem, where.ToString())));
  };
  for (const auto& [name, bytes] : {std::pair("first_bucket_bytes", ddp.first_bucket_bytes),
                                    std::pair("bucket_bytes", ddp.bucket_bytes)}) {
    if (bytes.value_or(1) >= 1) continue;
    return fail(
        absl::StrFormat(".ddp has .%s = %d; at least 1 was expected, or none", name, *bytes));
  }
  const std::vector<Entering> entering = EnteringVariables(graph, request);
  if (entering.empty()) {
    return fail(
        ".ddp is of gradients that each device has of its own, and no variable enters mirrored "
        "values before the loss; compute it inside job.Mirrored, or leave .ddp away");
  }
  if (!ddp.hook) {
    request.first_bucket_bytes = ddp.first_bucket_bytes;
    request.bucket_bytes = ddp.bucket_bytes;
  }
  Reduction(graph, ddp, is_without_sync, where).Run(entering);
}

}  // namespace braid
