// Of KernelSpecs: softmax, cross entropies, negative log-likelihoods.
#include <algorithm>
#include <memory>
#include <optional>

#include "runtime/base/status.h"
#include "runtime/kernels/cuda/families.h"
#include "runtime/kernels/cuda/floating_type.h"
#include "runtime/kernels/cuda/make_kernel.h"

namespace braid::cuda {
namespace {

using PlannedOr = absl::StatusOr<PlannedKernel>;

// make(): a Kernel.
template <class Make>
PlannedKernel Planned(Make make) {
  return {.make = [=]() -> absl::StatusOr<std::unique_ptr<Kernel>> { return make(); }};
}

AxisView RowsOf(const Shape& shape) { return ViewAround(shape, shape.rank() - 1); }

absl::StatusOr<SoftmaxLaunch> SoftmaxOf(const KernelSpec& spec) {
  const std::optional<DType> type = FloatingTypeOf(spec);
  if (!type.has_value()) return UnsupportedTypes(spec);
  const Shape& shape = spec.outputs[0].shape();
  const AxisView view = RowsOf(shape);
  SoftmaxLaunch launch = {.type = *type,
                          .rows = view.outer,
                          .size = view.size,
                          .scale = Number(spec.attrs, "scale", 1),
                          .is_causal = Flag(spec.attrs, "causal")};
  if (launch.is_causal) {
    launch.matrix_rows = std::max<int64_t>(1, shape[shape.rank() - 2]);
  }
  return launch;
}

// Of the axis before the last, in that act of a step.
int64_t FirstRow(const OperandSpec& operand, int64_t micro_batch) {
  return OffsetAt(operand, operand.shape().rank() - 2, micro_batch);
}

PlannedOr PlanSoftmax(const SoftmaxTable& table, const KernelSpec& spec, bool is_log) {
  BRAID_ASSIGN_OR_RETURN(SoftmaxLaunch launch, SoftmaxOf(spec));
  launch.is_log = is_log;
  return Planned([launch, &table, out = spec.outputs[0]] {
    return MakeKernel([=, &table](const Queue& queue, const KernelRun& run) {
      SoftmaxLaunch now = launch;
      now.x = run.inputs[0];
      now.y = run.outputs[0];
      if (now.is_causal) now.first_row = FirstRow(out, run.micro_batch);
      return table.softmax(queue, now);
    });
  });
}

PlannedOr PlanSoftmaxGrad(const SoftmaxTable& table, const KernelSpec& spec, bool is_log) {
  BRAID_ASSIGN_OR_RETURN(SoftmaxLaunch launch, SoftmaxOf(spec));
  launch.is_log = is_log;
  return Planned([launch, &table, out = spec.outputs[0]] {
    return MakeKernel([=, &table](const Queue& queue, const KernelRun& run) {
      SoftmaxLaunch now = launch;
      now.y = run.inputs[0];
      now.dy = run.inputs[1];
      now.dx = run.outputs[0];
      if (now.is_causal) now.first_row = FirstRow(out, run.micro_batch);
      return table.softmax_grad(queue, now);
    });
  });
}

// Whether what rows have, of which operand `rows` is some, is f32 of narrow logits; UNIMPLEMENTED
// where it is of another type than they, and not that.
absl::StatusOr<bool> AreRowsWide(const KernelSpec& spec, int rows) {
  const DType logits = spec.inputs[0].dtype, of_rows = spec.inputs[rows].dtype;
  const bool are_wide = IsNarrow(logits) && of_rows == DType::kF32;
  if (!IsFloating(logits) || (of_rows != logits && !are_wide)) return UnsupportedTypes(spec);
  return are_wide;
}

PlannedOr PlanSumExp(const SoftmaxTable& table, const KernelSpec& spec) {
  BRAID_ASSIGN_OR_RETURN(const bool are_wide, AreRowsWide(spec, 1));
  const AxisView view = RowsOf(spec.inputs[0].shape());
  const SumExpLaunch launch = {
      .type = spec.inputs[0].dtype, .are_wide = are_wide, .rows = view.outer, .size = view.size};
  return Planned([&table, launch] {
    return MakeKernel([=, &table](const Queue& queue, const KernelRun& run) {
      SumExpLaunch now = launch;
      now.x = run.inputs[0];
      now.max = run.inputs[1];
      now.sum = run.outputs[0];
      return table.sum_exp(queue, now);
    });
  });
}

// Of rows of `classes`, the last axis; input `operand` has the labels.
absl::StatusOr<Labels> LabelsOf(const KernelSpec& spec, const OperandSpec& classes, int operand) {
  const DType type = spec.inputs[operand].dtype;
  if (!IsIndexType(type)) return UnsupportedTypes(spec);
  const AxisView view = RowsOf(classes.shape());
  Labels labels = {.is_i64 = type == DType::kI64,
                   .has_ignored = spec.attrs.Has("ignore_index"),
                   .rows = view.outer,
                   .here = view.size,
                   .all = classes.logical[classes.logical.rank() - 1]};
  if (labels.has_ignored) labels.ignored = spec.attrs.Int("ignore_index");
  return labels;
}

// The first class that is here in that act of a step.
int64_t FirstClass(const OperandSpec& classes, int64_t micro_batch) {
  return OffsetAt(classes, classes.shape().rank() - 1, micro_batch);
}

enum class LabelKind { kNumbers, kProbabilities };

PlannedOr PlanCrossEntropy(const SoftmaxTable& table, const KernelSpec& spec, LabelKind kind,
                           bool is_gradient) {
  const OperandSpec logits = spec.inputs[0];
  CrossEntropyLaunch launch = {.type = logits.dtype};
  BRAID_ASSIGN_OR_RETURN(launch.are_wide, AreRowsWide(spec, 2));
  const bool has_numbers = kind == LabelKind::kNumbers;
  if (!has_numbers && !FloatingTypeOf(spec).has_value()) return UnsupportedTypes(spec);
  if (has_numbers) {
    BRAID_ASSIGN_OR_RETURN(launch.labels, LabelsOf(spec, logits, 1));
    const double smoothing = Number(spec.attrs, "label_smoothing", 0);
    launch.on_label = 1 - smoothing;
    if (launch.labels.all > 0) {
      launch.on_each = smoothing / static_cast<double>(launch.labels.all);
    }
  } else {
    const AxisView view = RowsOf(logits.shape());
    launch.labels.rows = view.outer;
    launch.labels.here = view.size;
  }
  return Planned([=, &table] {
    return MakeKernel([=, &table](const Queue& queue, const KernelRun& run) {
      CrossEntropyLaunch now = launch;
      now.logits = run.inputs[0];
      (has_numbers ? now.labels.data : now.probabilities) = run.inputs[1];
      now.max = run.inputs[2];
      now.sum = run.inputs[3];
      now.out = run.outputs[0];
      if (has_numbers) now.labels.first = FirstClass(logits, run.micro_batch);
      if (!is_gradient) return table.cross_entropy(queue, now);
      now.dloss = run.inputs[4];
      return table.cross_entropy_grad(queue, now);
    });
  });
}

PlannedOr PlanNll(const SoftmaxTable& table, const KernelSpec& spec, bool is_gradient) {
  const std::optional<DType> type = FloatingTypeOf(spec);
  if (!type.has_value()) return UnsupportedTypes(spec);
  const OperandSpec classes = is_gradient ? spec.outputs[0] : spec.inputs[0];
  const int labels = is_gradient ? 0 : 1;
  NllLaunch launch = {.type = *type};
  BRAID_ASSIGN_OR_RETURN(launch.labels, LabelsOf(spec, classes, labels));
  return Planned([=, &table] {
    return MakeKernel([=, &table](const Queue& queue, const KernelRun& run) {
      NllLaunch now = launch;
      now.labels.data = run.inputs[labels];
      now.labels.first = FirstClass(classes, run.micro_batch);
      now.x = run.inputs[1 - labels];
      now.out = run.outputs[0];
      return (is_gradient ? table.nll_grad : table.nll)(queue, now);
    });
  });
}

}  // namespace

absl::Status RegisterSoftmaxKernels(const KernelTable& all, KernelRegistry& registry) {
  const SoftmaxTable& table = all.softmax;
  for (const bool is_log : {false, true}) {
    BRAID_RETURN_IF_ERROR(registry.Register(
        is_log ? "log_softmax" : "softmax",
        [=, &table](const KernelSpec& spec) { return PlanSoftmax(table, spec, is_log); }));
    BRAID_RETURN_IF_ERROR(registry.Register(
        is_log ? "log_softmax_grad" : "softmax_grad",
        [=, &table](const KernelSpec& spec) { return PlanSoftmaxGrad(table, spec, is_log); }));
  }
  BRAID_RETURN_IF_ERROR(registry.Register(
      "sum_exp", [&table](const KernelSpec& spec) { return PlanSumExp(table, spec); }));
  const auto add = [&](const char* name, LabelKind kind, bool is_gradient) {
    return registry.Register(name, [=, &table](const KernelSpec& spec) {
      return PlanCrossEntropy(table, spec, kind, is_gradient);
    });
  };
  BRAID_RETURN_IF_ERROR(add("sparse_softmax_cross_entropy", LabelKind::kNumbers, false));
  BRAID_RETURN_IF_ERROR(add("sparse_softmax_cross_entropy_grad", LabelKind::kNumbers, true));
  BRAID_RETURN_IF_ERROR(add("softmax_cross_entropy", LabelKind::kProbabilities, false));
  BRAID_RETURN_IF_ERROR(add("softmax_cross_entropy_grad", LabelKind::kProbabilities, true));
  BRAID_RETURN_IF_ERROR(registry.Register(
      "nll", [&table](const KernelSpec& spec) { return PlanNll(table, spec, false); }));
  return registry.Register("nll_grad",
                           [&table](const KernelSpec& spec) { return PlanNll(table, spec, true); });
}

}  // namespace braid::cuda
