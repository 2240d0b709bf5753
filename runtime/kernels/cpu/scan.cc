// cumsum, cumprod and its gradient: running sums and products along an axis, kept in double, so
// that a result does not depend on what lies beside it.
#include <algorithm>
#include <type_traits>
#include <utility>

#include "runtime/base/status.h"
#include "runtime/kernels/cpu/families.h"
#include "runtime/kernels/cpu/make_kernel.h"

namespace braid::cpu {
namespace {

using KernelOr = absl::StatusOr<std::unique_ptr<Kernel>>;

// Integers wrap around.
template <class T>
using Running = std::conditional_t<std::is_floating_point_v<T>, double, uint64_t>;

inline constexpr int64_t kColumns = 64;  // that run beside each other

// The series of a region along the axis, in the direction of the scan.
struct Series {
  AxisView view;
  bool exclusive, reverse;

  explicit Series(const KernelSpec& spec)
      : view(ViewAround(spec.outputs[0].shape(), static_cast<int>(spec.attrs.Int("axis")))),
        exclusive(Flag(spec.attrs, "exclusive")),
        reverse(Flag(spec.attrs, "reverse")) {}

  // f(first, columns) for up to kColumns series that start side by side.
  template <class F>
  void ForEachBlock(F f) const {
    for (int64_t outer = 0; outer < view.outer; ++outer) {
      for (int64_t column = 0; column < view.inner; column += kColumns) {
        f(outer * view.size * view.inner + column, std::min(kColumns, view.inner - column));
      }
    }
  }
  // Where element k of the scan lies behind element 0 of the axis.
  int64_t At(int64_t k) const { return (reverse ? view.size - 1 - k : k) * view.inner; }
};

struct Plus {
  template <class A>
  static A Of(A a, A b) {
    return a + b;
  }
  static constexpr int kIdentity = 0;
};
struct Times {
  template <class A>
  static A Of(A a, A b) {
    return a * b;
  }
  static constexpr int kIdentity = 1;
};

template <class T, class Join>
KernelOr MakeScanOf(const KernelSpec& spec) {
  return MakeKernel([series = Series(spec)](const KernelRun& run) {
    using A = Running<T>;
    const T* x = Input<T>(run, 0);
    T* out = Output<T>(run, 0);
    series.ForEachBlock([&](int64_t first, int64_t columns) {
      A running[kColumns];
      std::fill_n(running, columns, A{Join::kIdentity});
      for (int64_t k = 0; k < series.view.size; ++k) {
        const int64_t at = first + series.At(k);
        for (int64_t j = 0; j < columns; ++j) {
          // x is read first: out may be its place.
          const A before = running[j];
          running[j] = Join::Of(before, static_cast<A>(x[at + j]));
          out[at + j] = static_cast<T>(series.exclusive ? before : running[j]);
        }
      }
    });
  });
}

template <class Join>
KernelOr MakeScan(const KernelSpec& spec) {
  switch (spec.inputs[0].dtype) {
    case DType::kF32:
      return MakeScanOf<float, Join>(spec);
    case DType::kF64:
      return MakeScanOf<double, Join>(spec);
    case DType::kI32:
      return MakeScanOf<int32_t, Join>(spec);
    case DType::kI64:
      return MakeScanOf<int64_t, Join>(spec);
    default:
      return UnsupportedTypes(spec);
  }
}

// dx[j] = (product of x before j) * tail[j]: what dy and the elements behind j make of it.
// Inclusive, tail[j] = dy[j] + x[j + 1] tail[j + 1]; exclusive, tail[j] = dy[j + 1] + x[j + 1]
// tail[j + 1], nothing at the end. No division, so that zeros are elements like others.
template <class T>
KernelOr MakeProductGradient(const KernelSpec& spec, ElementType<T>) {
  return MakeKernel([series = Series(spec)](const KernelRun& run) {
    const T* x = Input<T>(run, 0);
    const T* dy = Input<T>(run, 1);
    T* dx = Output<T>(run, 0);
    const int64_t size = series.view.size;
    series.ForEachBlock([&](int64_t first, int64_t columns) {
      double running[kColumns];
      std::fill_n(running, columns, 0.0);
      for (int64_t k = size - 1; k >= 0; --k) {
        const int64_t at = first + series.At(k);
        for (int64_t j = 0; j < columns; ++j) {
          // Here running is x[k + 1] * tail[k + 1], exclusive with dy[k + 1] added.
          const double tail = series.exclusive ? running[j] : running[j] + dy[at + j];
          running[j] = x[at + j] * tail + (series.exclusive ? dy[at + j] : T{0});
          dx[at + j] = static_cast<T>(tail);
        }
      }
      std::fill_n(running, columns, 1.0);
      for (int64_t k = 0; k < size; ++k) {
        const int64_t at = first + series.At(k);
        for (int64_t j = 0; j < columns; ++j) {
          dx[at + j] = static_cast<T>(running[j] * dx[at + j]);
          running[j] *= x[at + j];
        }
      }
    });
  });
}

}  // namespace

absl::Status RegisterScanKernels(KernelRegistry& registry) {
  BRAID_RETURN_IF_ERROR(registry.Register("cumsum", Widened(MakeScan<Plus>)));
  BRAID_RETURN_IF_ERROR(registry.Register("cumprod", Widened(MakeScan<Times>)));
  return registry.Register(
      "cumprod_grad",
      Widened(ForFloats([](const auto& s, auto type) { return MakeProductGradient(s, type); })));
}

}  // namespace braid::cpu
