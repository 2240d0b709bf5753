// The negative log likelihood of a label, and its gradient. The class axis may be split: the shard
// that has a row's label adds its term.
#include <algorithm>
#include <optional>
#include <utility>

#include "runtime/base/status.h"
#include "runtime/kernels/cpu/families.h"
#include "runtime/kernels/cpu/index_error.h"
#include "runtime/kernels/cpu/make_kernel.h"

namespace braid::cpu {
namespace {

using KernelOr = absl::StatusOr<std::unique_ptr<Kernel>>;

// The labels of the rows of an operand whose last axis are the classes.
struct LabelledRows {
  KernelSpec spec;  // named in errors
  OperandSpec classes;
  bool is_i64;
  std::optional<int64_t> ignored = std::nullopt;
  int64_t rows = 0, here = 0;

  LabelledRows(const KernelSpec& kernel, OperandSpec with_classes, DType labels)
      : spec(kernel), classes(std::move(with_classes)), is_i64(labels == DType::kI64) {
    if (spec.attrs.Has("ignore_index")) ignored = spec.attrs.Int("ignore_index");
    const AxisView view = ViewAround(classes.shape(), classes.shape().rank() - 1);
    rows = view.outer;
    here = view.size;
  }

  // f(row, local class) where this shard has the label's class.
  template <class F>
  absl::Status ForEach(const void* data, int64_t micro_batch, F f) const {
    const IndexReader labels = {data, is_i64};
    const int last = classes.shape().rank() - 1;
    const int64_t offset = OffsetAt(classes, last, micro_batch), all = classes.logical[last];
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t label = labels[row];
      if (label == ignored) continue;
      if (label < 0 || label >= all) return IndexOutOfRange(spec, "label", label, row, all);
      const int64_t local = label - offset;
      if (local >= 0 && local < here) f(row, local);
    }
    return absl::OkStatus();
  }
};

template <class T>
KernelOr MakeNll(const KernelSpec& spec, ElementType<T>) {
  if (!IsIndexType(spec.inputs[1].dtype)) return UnsupportedTypes(spec);
  return MakeKernel(
      [labels = LabelledRows(spec, spec.inputs[0], spec.inputs[1].dtype)](const KernelRun& run) {
        const T* x = Input<T>(run, 0);
        T* out = Output<T>(run, 0);
        std::fill_n(out, labels.rows, T{0});
        return labels.ForEach(run.inputs[1], run.micro_batch, [&](int64_t row, int64_t local) {
          out[row] = -x[row * labels.here + local];
        });
      });
}

template <class T>
KernelOr MakeNllGrad(const KernelSpec& spec, ElementType<T>) {
  if (!IsIndexType(spec.inputs[0].dtype)) return UnsupportedTypes(spec);
  return MakeKernel(
      [labels = LabelledRows(spec, spec.outputs[0], spec.inputs[0].dtype)](const KernelRun& run) {
        const T* dy = Input<T>(run, 1);
        T* dx = Output<T>(run, 0);
        std::fill_n(dx, labels.rows * labels.here, T{0});
        return labels.ForEach(run.inputs[0], run.micro_batch, [&](int64_t row, int64_t local) {
          dx[row * labels.here + local] = -dy[row];
        });
      });
}

}  // namespace

absl::Status RegisterNllKernels(KernelRegistry& registry) {
  BRAID_RETURN_IF_ERROR(registry.Register(
      "nll", Widened(ForFloats([](const auto& s, auto type) { return MakeNll(s, type); }))));
  return registry.Register(
      "nll_grad",
      Widened(ForFloats([](const auto& s, auto type) { return MakeNllGrad(s, type); })));
}

}  // namespace braid::cpu
