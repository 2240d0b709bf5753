// Cross entropy of logits, given each row's max and sum of exponentials, against labels or
// probabilities. The class axis may be split: each shard adds its own classes' terms.
#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "runtime/base/status.h"
#include "runtime/kernels/cpu/families.h"
#include "runtime/kernels/cpu/index_error.h"
#include "runtime/kernels/cpu/make_kernel.h"
#include "runtime/kernels/cpu/row_loops.h"
#include "runtime/kernels/cpu/simd/isa.h"
#include "runtime/kernels/cpu/softmax_loops.h"

namespace braid::cpu {
namespace {

using KernelOr = absl::StatusOr<std::unique_ptr<Kernel>>;

// What the loss and gradient kernels know of the logits: the classes here, of all.
struct Classes {
  int64_t rows, here, all;
  OperandSpec operand;

  explicit Classes(const OperandSpec& logits) : operand(logits) {
    const int last = logits.shape().rank() - 1;
    const AxisView view = ViewAround(logits.shape(), last);
    rows = view.outer;
    here = view.size;
    all = logits.logical[last];
  }
  // The first class here in that act of a step.
  int64_t OffsetIn(int64_t micro_batch) const {
    return OffsetAt(operand, operand.shape().rank() - 1, micro_batch);
  }
};

// The attributes of losses with class numbers.
struct LabelOptions {
  std::optional<int64_t> ignored = std::nullopt;
  double on_label = 1, on_each = 0;  // how a row's probability is spread: 1 - smoothing, the rest

  LabelOptions(const Attrs& attrs, int64_t classes) {
    if (attrs.Has("ignore_index")) ignored = attrs.Int("ignore_index");
    const double smoothing = Number(attrs, "label_smoothing", 0);
    on_label = 1 - smoothing;
    if (classes > 0) on_each = smoothing / static_cast<double>(classes);
  }
};

template <class T>
KernelOr MakeSparseLoss(const KernelSpec& spec, ElementType<T>) {
  if (!IsIndexType(spec.inputs[1].dtype)) return UnsupportedTypes(spec);
  const bool is_i64 = spec.inputs[1].dtype == DType::kI64;
  const Classes classes(spec.inputs[0]);
  return MakeKernel([spec, is_i64, classes,
                     options = LabelOptions(spec.attrs, classes.all)](const KernelRun& run) {
    const IndexReader labels = {run.inputs[1], is_i64};
    const T* max = Input<T>(run, 2);
    const T* sum = Input<T>(run, 3);
    T* loss = Output<T>(run, 0);
    const int64_t offset = classes.OffsetIn(run.micro_batch);
    for (int64_t row = 0; row < classes.rows; ++row) {
      const T* logits = Input<T>(run, 0) + row * classes.here;
      const int64_t label = labels[row];
      if (label == options.ignored) {
        loss[row] = 0;
        continue;
      }
      if (label < 0 || label >= classes.all) {
        return IndexOutOfRange(spec, "label", label, row, classes.all);
      }
      // log(sum), which belongs to no class, is added by the shard with the first ones. No term is
      // negative, so that nothing cancels, here or when the shards' sums over rows are added.
      double value = offset == 0 && classes.here > 0 ? std::log(sum[row]) : T{0};
      const int64_t local = label - offset;
      if (local >= 0 && local < classes.here) {
        value += options.on_label * (max[row] - logits[local]);
      }
      if (options.on_each != 0) {
        double below = 0;
        for (int64_t c = 0; c < classes.here; ++c) below += max[row] - logits[c];
        value += options.on_each * below;
      }
      loss[row] = static_cast<T>(value);
    }
    return absl::OkStatus();
  });
}

template <class T>
KernelOr MakeSparseLossGrad(const KernelSpec& spec, ElementType<T>) {
  if (!IsIndexType(spec.inputs[1].dtype)) return UnsupportedTypes(spec);
  const bool is_i64 = spec.inputs[1].dtype == DType::kI64;
  const auto scaled_exp = simd::BestLoops<simd::SoftmaxLoops<T>>().scaled_exp;
  const Classes classes(spec.inputs[0]);
  return MakeKernel([=, options = LabelOptions(spec.attrs, classes.all)](const KernelRun& run) {
    const T* logits = Input<T>(run, 0);
    const IndexReader labels = {run.inputs[1], is_i64};
    const T* max = Input<T>(run, 2);
    const T* sum = Input<T>(run, 3);
    const T* dloss = Input<T>(run, 4);
    T* dlogits = Output<T>(run, 0);
    const int64_t offset = classes.OffsetIn(run.micro_batch);
    for (int64_t row = 0; row < classes.rows; ++row) {
      const int64_t label = labels[row];
      T* out = dlogits + row * classes.here;
      if (label == options.ignored) {
        std::fill_n(out, classes.here, T{0});
        continue;
      }
      if (label < 0 || label >= classes.all) {
        return IndexOutOfRange(spec, "label", label, row, classes.all);
      }
      scaled_exp(logits + row * classes.here, out, classes.here, max[row], dloss[row] / sum[row]);
      if (options.on_each != 0) {
        const T each = static_cast<T>(options.on_each * dloss[row]);
        for (int64_t c = 0; c < classes.here; ++c) out[c] -= each;
      }
      const int64_t local = label - offset;
      if (local >= 0 && local < classes.here) {
        out[local] -= static_cast<T>(options.on_label * dloss[row]);
      }
    }
    return absl::OkStatus();
  });
}

template <class T>
KernelOr MakeLoss(const KernelSpec& spec, ElementType<T>) {
  return MakeKernel([classes = Classes(spec.inputs[0])](const KernelRun& run) {
    const T* logits = Input<T>(run, 0);
    const T* probs = Input<T>(run, 1);
    const T* max = Input<T>(run, 2);
    const T* sum = Input<T>(run, 3);
    T* loss = Output<T>(run, 0);
    for (int64_t row = 0; row < classes.rows; ++row) {
      const double log_sum = std::log(static_cast<double>(sum[row])), row_max = max[row];
      double value = 0;
      for (int64_t c = row * classes.here; c < (row + 1) * classes.here; ++c) {
        value += probs[c] * (log_sum + (row_max - logits[c]));
      }
      loss[row] = static_cast<T>(value);
    }
  });
}

template <class T>
KernelOr MakeLossGrad(const KernelSpec& spec, ElementType<T>) {
  const auto& softmax_loops = simd::BestLoops<simd::SoftmaxLoops<T>>();
  const auto& row_loops = simd::BestLoops<simd::RowLoops<T>>();
  return MakeKernel([scaled_exp = softmax_loops.scaled_exp, add_scaled = row_loops.add_scaled,
                     classes = Classes(spec.inputs[0])](const KernelRun& run) {
    const T* logits = Input<T>(run, 0);
    const T* probs = Input<T>(run, 1);
    const T* max = Input<T>(run, 2);
    const T* sum = Input<T>(run, 3);
    const T* dloss = Input<T>(run, 4);
    for (int64_t row = 0; row < classes.rows; ++row) {
      const int64_t at = row * classes.here;
      T* out = Output<T>(run, 0) + at;
      scaled_exp(logits + at, out, classes.here, max[row], dloss[row] / sum[row]);
      add_scaled(probs + at, -dloss[row], out, classes.here);
    }
  });
}

}  // namespace

absl::Status RegisterCrossEntropyKernels(KernelRegistry& registry) {
  const auto add = [&](const char* name, auto make) {
    return registry.Register(name, Widened(ForFloats(make)));
  };
  BRAID_RETURN_IF_ERROR(add("sparse_softmax_cross_entropy",
                            [](const auto& s, auto type) { return MakeSparseLoss(s, type); }));
  BRAID_RETURN_IF_ERROR(add("sparse_softmax_cross_entropy_grad",
                            [](const auto& s, auto type) { return MakeSparseLossGrad(s, type); }));
  BRAID_RETURN_IF_ERROR(
      add("softmax_cross_entropy", [](const auto& s, auto type) { return MakeLoss(s, type); }));
  return add("softmax_cross_entropy_grad",
             [](const auto& s, auto type) { return MakeLossGrad(s, type); });
}

}  // namespace braid::cpu
