// Control flow. Conditions and numbers of rounds are known when a model is imported: branches are
// taken and loops unrolled then.
#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "api/onnx/onnx.pb.h"
#include "api/onnx/translators.h"
#include "graph/functional.h"
#include "runtime/base/status.h"

namespace braid::onnx {
namespace {

using Values = std::vector<Value>;

constexpr int64_t kMaxRounds = 1 << 13;

// Both branches are computed where the condition is not known; they have no effects.
absl::StatusOr<Values> TranslateIf(const NodeView& n) {
  BRAID_ASSIGN_OR_RETURN(const GraphProto* then_branch, n.Graph("then_branch"));
  BRAID_ASSIGN_OR_RETURN(const GraphProto* else_branch, n.Graph("else_branch"));
  if (n.IsKnown(0)) {
    BRAID_ASSIGN_OR_RETURN(const int64_t condition, n.KnownInt(0));
    return n.surroundings().RunGraph(condition != 0 ? *then_branch : *else_branch, {});
  }
  BRAID_ASSIGN_OR_RETURN(const Values yes, n.surroundings().RunGraph(*then_branch, {}));
  BRAID_ASSIGN_OR_RETURN(const Values no, n.surroundings().RunGraph(*else_branch, {}));
  Values chosen;
  for (size_t i = 0; i < std::min(yes.size(), no.size()); ++i) {
    if (!yes[i].is_tensor() || !no[i].is_tensor() || yes[i].type() != no[i].type()) {
      return Lacking(absl::StrCat("a condition that is computed, with branches of different types",
                                  n.surroundings().HowToKnow(n.value(0))));
    }
    BRAID_ASSIGN_OR_RETURN(
        const Values both,
        n.surroundings().Compute({n.value(0), yes[i], no[i]}, [](const NodeView& inner) {
          return Tensors{Where(inner.in(0), inner.in(1), inner.in(2))};
        }));
    chosen.push_back(both[0]);
  }
  return chosen;
}

// Tensors of one type as slices along a new axis.
absl::StatusOr<Value> Stack(const NodeView& n, Values slices, int64_t axis) {
  if (slices.empty()) return Lacking("what no round makes: its type is not known");
  for (const Value& slice : slices) {
    if (!slice.is_tensor()) return Wrong("an output over all rounds is no tensor");
  }
  const int rank = slices[0].type().shape.rank() + 1;
  BRAID_ASSIGN_OR_RETURN(axis, NormalAxis(axis, rank));
  BRAID_ASSIGN_OR_RETURN(const Values stacked,
                         n.surroundings().Compute(std::move(slices), [axis](const NodeView& inner) {
                           Tensors parts = inner.inputs();
                           for (Tensor& part : parts) part = ExpandDims(part, axis);
                           return Tensors{Concat(parts, axis)};
                         }));
  return stacked[0];
}

absl::StatusOr<bool> IsTrue(const NodeView& n, const Value& condition) {
  if (!condition.is_tensor() || condition.type().shape.num_elements() != 1) {
    return Wrong("its condition is not one bool");
  }
  if (condition.numbers == nullptr) {
    return Lacking(absl::StrCat("a loop with a condition that is computed",
                                n.surroundings().HowToKnow(condition)));
  }
  BRAID_ASSIGN_OR_RETURN(const std::shared_ptr<const Array> array, condition.numbers->Read());
  return array->As(DType::kBool).data<bool>()[0];
}

absl::StatusOr<Values> TranslateLoop(const NodeView& n) {
  BRAID_ASSIGN_OR_RETURN(const GraphProto* body, n.Graph("body"));
  int64_t rounds = std::numeric_limits<int64_t>::max();
  if (n.HasInput(0)) {
    BRAID_ASSIGN_OR_RETURN(rounds, n.KnownInt(0));
  }
  const bool has_condition = n.HasInput(1);
  if (!has_condition && !n.HasInput(0)) return Lacking("a loop without an end");
  bool goes_on = true;
  if (has_condition) {
    BRAID_ASSIGN_OR_RETURN(goes_on, IsTrue(n, n.value(1)));
  }
  Values carried;
  for (int i = 2; i < n.num_inputs(); ++i) carried.push_back(n.value(i));
  std::vector<Values> scans(std::max<int>(0, n.num_outputs() - static_cast<int>(carried.size())));
  for (int64_t round = 0; round < rounds && goes_on; ++round) {
    if (round == kMaxRounds) return Lacking(absl::StrCat("more than ", kMaxRounds, " rounds"));
    Values inputs = {ConstantOf(Array::Scalar(round)), ConstantOf(Array::Scalar(true))};
    inputs.insert(inputs.end(), carried.begin(), carried.end());
    BRAID_ASSIGN_OR_RETURN(Values outputs, n.surroundings().RunGraph(*body, std::move(inputs)));
    if (outputs.size() != 1 + carried.size() + scans.size()) {
      return Wrong(absl::StrCat("the body has ", outputs.size(), " outputs; 1 + ", carried.size(),
                                " + ", scans.size(), " are needed"));
    }
    if (has_condition) {
      BRAID_ASSIGN_OR_RETURN(goes_on, IsTrue(n, outputs[0]));
    }
    for (size_t i = 0; i < carried.size(); ++i) carried[i] = std::move(outputs[1 + i]);
    for (size_t i = 0; i < scans.size(); ++i) {
      scans[i].push_back(std::move(outputs[1 + carried.size() + i]));
    }
  }
  for (Values& scan : scans) {
    BRAID_ASSIGN_OR_RETURN(Value stacked, Stack(n, std::move(scan), 0));
    carried.push_back(std::move(stacked));
  }
  return carried;
}

// The slice at `at` of axis `axis`, without the axis.
absl::StatusOr<Value> SliceAt(const NodeView& n, const Value& x, int64_t axis, int64_t at) {
  BRAID_ASSIGN_OR_RETURN(const Values slice,
                         n.surroundings().Compute({x}, [=](const NodeView& inner) {
                           Ints begin(inner.rank(), 0), size = inner.shape().dims();
                           begin[axis] = at;
                           size[axis] = 1;
                           return Tensors{Squeeze(Slice(inner.in(0), begin, size), axis)};
                         }));
  return slice[0];
}

// How a scan goes through its inputs and puts together its outputs, one number per each of these.
struct ScanPlan {
  const GraphProto* body = nullptr;
  Ints in_axes, in_backward, out_axes, out_backward;
};

absl::StatusOr<Values> RunScan(const NodeView& n, ScanPlan plan, Values states,
                               const Values& scanned) {
  int64_t rounds = -1;
  for (size_t i = 0; i < scanned.size(); ++i) {
    if (!scanned[i].is_tensor()) return Wrong("a scanned input is no tensor");
    const Shape shape = scanned[i].type().shape;
    BRAID_ASSIGN_OR_RETURN(plan.in_axes[i], NormalAxis(plan.in_axes[i], shape.rank()));
    const int64_t size = shape[static_cast<int>(plan.in_axes[i])];
    if (rounds >= 0 && rounds != size) {
      return Wrong(absl::StrCat("scanned axes have sizes ", rounds, " and ", size));
    }
    rounds = size;
  }
  if (rounds > kMaxRounds) return Lacking(absl::StrCat("more than ", kMaxRounds, " rounds"));
  const size_t num_states = states.size();
  std::vector<Values> made(plan.out_axes.size());
  for (int64_t round = 0; round < rounds; ++round) {
    Values inputs = states;
    for (size_t i = 0; i < scanned.size(); ++i) {
      const int64_t at = plan.in_backward[i] != 0 ? rounds - 1 - round : round;
      BRAID_ASSIGN_OR_RETURN(Value slice, SliceAt(n, scanned[i], plan.in_axes[i], at));
      inputs.push_back(std::move(slice));
    }
    BRAID_ASSIGN_OR_RETURN(Values outputs,
                           n.surroundings().RunGraph(*plan.body, std::move(inputs)));
    if (outputs.size() != num_states + made.size()) {
      return Wrong(absl::StrCat("the body has ", outputs.size(), " outputs; ", num_states, " + ",
                                made.size(), " are needed"));
    }
    for (size_t i = 0; i < num_states; ++i) states[i] = std::move(outputs[i]);
    for (size_t i = 0; i < made.size(); ++i) {
      made[i].insert(plan.out_backward[i] != 0 ? made[i].begin() : made[i].end(),
                     std::move(outputs[num_states + i]));
    }
  }
  for (size_t i = 0; i < made.size(); ++i) {
    BRAID_ASSIGN_OR_RETURN(Value stacked, Stack(n, std::move(made[i]), plan.out_axes[i]));
    states.push_back(std::move(stacked));
  }
  return states;
}

// Version 8 had a first input of lengths, and a batch axis in front of everything.
absl::StatusOr<Values> RunBatchedScan(const NodeView& n, const ScanPlan& plan, const Values& states,
                                      const Values& scanned) {
  if (n.HasInput(0)) return Lacking("a scan of sequences of different lengths");
  if (!scanned[0].is_tensor() || scanned[0].type().shape.rank() < 2) {
    return Wrong("a scanned input has no axes of batch and sequence");
  }
  const int64_t batch = scanned[0].type().shape[0];
  if (batch > kMaxRounds) return Lacking(absl::StrCat("a batch of more than ", kMaxRounds));
  std::vector<Values> results(plan.out_axes.size() + states.size());
  for (int64_t at = 0; at < batch; ++at) {
    std::vector<Values> slices(2);
    for (const Values* values : {&states, &scanned}) {
      for (const Value& value : *values) {
        const Shape shape = value.is_tensor() ? value.type().shape : Shape();
        if (shape.rank() == 0 || shape[0] != batch) return Wrong("an input has another batch");
        BRAID_ASSIGN_OR_RETURN(Value slice, SliceAt(n, value, 0, at));
        slices[values == &states ? 0 : 1].push_back(std::move(slice));
      }
    }
    BRAID_ASSIGN_OR_RETURN(Values made, RunScan(n, plan, std::move(slices[0]), slices[1]));
    for (size_t i = 0; i < made.size(); ++i) results[i].push_back(std::move(made[i]));
  }
  Values stacked;
  for (Values& result : results) {
    BRAID_ASSIGN_OR_RETURN(Value value, Stack(n, std::move(result), 0));
    stacked.push_back(std::move(value));
  }
  return stacked;
}

absl::StatusOr<Values> TranslateScan(const NodeView& n) {
  ScanPlan plan;
  BRAID_ASSIGN_OR_RETURN(plan.body, n.Graph("body"));
  const bool is_batched = n.opset() < 9;
  const int first = is_batched ? 1 : 0;
  const int num_scanned = static_cast<int>(n.Int("num_scan_inputs", 1));
  if (num_scanned < 1 || num_scanned > n.num_inputs() - first) {
    return Wrong(absl::StrCat(num_scanned, " scanned inputs of ", n.num_inputs()));
  }
  const int num_states = n.num_inputs() - first - num_scanned;
  const int num_made = n.num_outputs() - num_states;
  if (num_made < 0) return Wrong("it has too few outputs");
  const Ints in_zeros(num_scanned, 0), out_zeros(num_made, 0);
  plan.in_axes = n.List("scan_input_axes").value_or(in_zeros);
  plan.in_backward = n.List(is_batched ? "directions" : "scan_input_directions").value_or(in_zeros);
  plan.out_axes = n.List("scan_output_axes").value_or(out_zeros);
  plan.out_backward = n.List("scan_output_directions").value_or(out_zeros);
  if (plan.in_axes.size() != in_zeros.size() || plan.in_backward.size() != in_zeros.size() ||
      plan.out_axes.size() != out_zeros.size() || plan.out_backward.size() != out_zeros.size()) {
    return Wrong("its lists of axes and directions are not as long as its inputs and outputs");
  }
  Values states, scanned;
  for (int i = 0; i < num_states + num_scanned; ++i) {
    (i < num_states ? states : scanned).push_back(n.value(first + i));
  }
  return is_batched ? RunBatchedScan(n, plan, states, scanned)
                    : RunScan(n, std::move(plan), std::move(states), scanned);
}

}  // namespace

void AddControl(Translators& all) {
  all.AddValues("If", {}, TranslateIf);
  all.AddValues("Loop", {0, kAnyNumber}, TranslateLoop);
  all.AddValues("Scan", {0, kAnyNumber}, TranslateScan);
}

}  // namespace braid::onnx
