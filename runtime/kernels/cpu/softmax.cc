// softmax and log_softmax with their gradients, one fused loop per row; sum_exp.
#include <algorithm>
#include <utility>

#include "runtime/base/status.h"
#include "runtime/kernels/cpu/families.h"
#include "runtime/kernels/cpu/make_kernel.h"
#include "runtime/kernels/cpu/simd/isa.h"
#include "runtime/kernels/cpu/softmax_loops.h"

namespace braid::cpu {
namespace {

using KernelOr = absl::StatusOr<std::unique_ptr<Kernel>>;

// Rows of the last axis, which is whole here; with `causal`, row i of the matrices of the last two
// axes sees columns up to logical index i only.
struct MaskedRows {
  AxisView view;
  int64_t matrix_rows = 1;  // size of the axis before the last
  bool causal = false;
  OperandSpec operand;

  explicit MaskedRows(const KernelSpec& spec)
      : view(ViewAround(spec.outputs[0].shape(), spec.outputs[0].shape().rank() - 1)),
        causal(Flag(spec.attrs, "causal")),
        operand(spec.outputs[0]) {
    const int rank = operand.shape().rank();
    if (causal) matrix_rows = std::max<int64_t>(1, operand.shape()[rank - 2]);
  }

  // f(row, number of columns that the row sees).
  template <class F>
  void ForEach(int64_t micro_batch, F f) const {
    const int64_t first = causal ? OffsetAt(operand, operand.shape().rank() - 2, micro_batch) : 0;
    for (int64_t row = 0; row < view.outer; ++row) {
      const int64_t seen = causal ? first + row % matrix_rows + 1 : view.size;
      f(row, std::min(seen, view.size));
    }
  }
};

template <class T>
void ZeroTail(T* row, int64_t seen, int64_t n) {
  std::fill(row + seen, row + n, T{0});
}

template <class T>
KernelOr MakeSoftmax(const KernelSpec& spec, ElementType<T>) {
  const auto loop = simd::BestLoops<simd::SoftmaxLoops<T>>().softmax;
  const T scale = static_cast<T>(Number(spec.attrs, "scale", 1));
  return MakeKernel([=, rows = MaskedRows(spec)](const KernelRun& run) {
    const T* x = Input<T>(run, 0);
    T* y = Output<T>(run, 0);
    const int64_t n = rows.view.size;
    rows.ForEach(run.micro_batch, [&](int64_t row, int64_t seen) {
      loop(x + row * n, y + row * n, seen, scale);
      ZeroTail(y + row * n, seen, n);
    });
  });
}

template <class T>
KernelOr MakeSoftmaxGrad(const KernelSpec& spec, ElementType<T>) {
  const auto loop = simd::BestLoops<simd::SoftmaxLoops<T>>().softmax_grad;
  const T scale = static_cast<T>(Number(spec.attrs, "scale", 1));
  return MakeKernel([=, rows = MaskedRows(spec)](const KernelRun& run) {
    const T* y = Input<T>(run, 0);
    const T* dy = Input<T>(run, 1);
    T* dx = Output<T>(run, 0);
    const int64_t n = rows.view.size;
    rows.ForEach(run.micro_batch, [&](int64_t row, int64_t seen) {
      loop(y + row * n, dy + row * n, dx + row * n, seen, scale);
      ZeroTail(dx + row * n, seen, n);
    });
  });
}

template <class T>
KernelOr MakeLogSoftmax(const KernelSpec& spec, ElementType<T>) {
  const auto loop = simd::BestLoops<simd::SoftmaxLoops<T>>().log_softmax;
  const Shape& shape = spec.outputs[0].shape();
  const AxisView view = ViewAround(shape, shape.rank() - 1);
  return MakeKernel([=](const KernelRun& run) {
    for (int64_t row = 0; row < view.outer; ++row) {
      loop(Input<T>(run, 0) + row * view.size, Output<T>(run, 0) + row * view.size, view.size);
    }
  });
}

template <class T>
KernelOr MakeLogSoftmaxGrad(const KernelSpec& spec, ElementType<T>) {
  const auto loop = simd::BestLoops<simd::SoftmaxLoops<T>>().log_softmax_grad;
  const Shape& shape = spec.outputs[0].shape();
  const AxisView view = ViewAround(shape, shape.rank() - 1);
  return MakeKernel([=](const KernelRun& run) {
    for (int64_t row = 0; row < view.outer; ++row) {
      const int64_t at = row * view.size;
      loop(Input<T>(run, 0) + at, Input<T>(run, 1) + at, Output<T>(run, 0) + at, view.size);
    }
  });
}

template <class T>
KernelOr MakeSumExp(const KernelSpec& spec, ElementType<T>) {
  const auto loop = simd::BestLoops<simd::SoftmaxLoops<T>>().sum_exp;
  const Shape& shape = spec.inputs[0].shape();
  const AxisView view = ViewAround(shape, shape.rank() - 1);
  return MakeKernel([=](const KernelRun& run) {
    const T* max = Input<T>(run, 1);
    T* sum = Output<T>(run, 0);
    for (int64_t row = 0; row < view.outer; ++row) {
      sum[row] = loop(Input<T>(run, 0) + row * view.size, max[row], view.size);
    }
  });
}

}  // namespace

absl::Status RegisterSoftmaxKernels(KernelRegistry& registry) {
  const auto add = [&](const char* name, auto make) {
    return registry.Register(name, Widened(ForFloats(make)));
  };
  BRAID_RETURN_IF_ERROR(
      add("softmax", [](const auto& s, auto type) { return MakeSoftmax(s, type); }));
  BRAID_RETURN_IF_ERROR(
      add("softmax_grad", [](const auto& s, auto type) { return MakeSoftmaxGrad(s, type); }));
  BRAID_RETURN_IF_ERROR(
      add("log_softmax", [](const auto& s, auto type) { return MakeLogSoftmax(s, type); }));
  BRAID_RETURN_IF_ERROR(add("log_softmax_grad",
                            [](const auto& s, auto type) { return MakeLogSoftmaxGrad(s, type); }));
  return add("sum_exp", [](const auto& s, auto type) { return MakeSumExp(s, type); });
}

}  // namespace braid::cpu
