// reduce_sum, reduce_mean, reduce_max, reduce_min, argmax.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/kernels/cpu/families.h"
#include "runtime/kernels/cpu/make_kernel.h"
#include "runtime/kernels/cpu/simd/loops.h"

namespace braid::cpu {
namespace {

using KernelOr = absl::StatusOr<std::unique_ptr<Kernel>>;
using simd::BinaryFn;
using simd::BinaryOp;

enum class Reduction { kSum, kMean, kMax, kMin };

// One pass: [outer, reduced, inner] -> [outer, inner].
struct Pass {
  int64_t outer, reduced, inner;
};

// Neighbouring axes of one kind are merged; then each pass takes the last reduced group.
std::vector<Pass> PassesOf(const Shape& shape, const std::vector<int64_t>& axes) {
  struct Group {
    int64_t size;
    bool reduced;
  };
  std::vector<Group> groups;
  for (int i = 0; i < shape.rank(); ++i) {
    const bool reduced = std::find(axes.begin(), axes.end(), i) != axes.end();
    if (!groups.empty() && groups.back().reduced == reduced) {
      groups.back().size *= shape[i];
    } else {
      groups.push_back({shape[i], reduced});
    }
  }
  std::vector<Pass> passes;
  int64_t inner = 1;
  for (size_t i = groups.size(); i-- > 0;) {
    if (!groups[i].reduced) {
      inner *= groups[i].size;
      continue;
    }
    int64_t outer = 1;
    for (size_t j = 0; j < i; ++j) outer *= groups[j].size;
    passes.push_back({outer, groups[i].size, inner});
  }
  return passes;
}

template <class T>
struct RowReduction {
  T identity;
  T (*row)(const T* x, int64_t n);
  // Joins `rows` rows of n elements, `stride` apart; rows > 0.
  void (*rows)(const T* x, int64_t rows, int64_t stride, T* out, int64_t n);
  BinaryFn join;  // used where `rows` is null
};

template <class T>
T SumRow(const T* x, int64_t n) {
  // Unsigned: integers wrap around.
  uint64_t sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<uint64_t>(x[i]);
  return static_cast<T>(sum);
}
template <class T>
T MaxRow(const T* x, int64_t n) {
  T result = std::numeric_limits<T>::lowest();
  for (int64_t i = 0; i < n; ++i) result = std::max(result, x[i]);
  return result;
}
template <class T>
T MinRow(const T* x, int64_t n) {
  T result = std::numeric_limits<T>::max();
  for (int64_t i = 0; i < n; ++i) result = std::min(result, x[i]);
  return result;
}

template <class T>
constexpr simd::Type kLoopType = std::is_same_v<T, float>     ? simd::Type::kF32
                                 : std::is_same_v<T, double>  ? simd::Type::kF64
                                 : std::is_same_v<T, int32_t> ? simd::Type::kI32
                                                              : simd::Type::kI64;

template <class T>
RowReduction<T> ReductionOf(Reduction reduction) {
  const simd::Loops& loops = simd::BestLoops();
  const auto join = [&](BinaryOp op) {
    return loops.binary[static_cast<int>(op)][static_cast<int>(kLoopType<T>)][0];
  };
  using Limits = std::numeric_limits<T>;
  const T lowest = Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
  const T highest = Limits::has_infinity ? Limits::infinity() : Limits::max();
  if constexpr (std::is_floating_point_v<T>) {
    const simd::RowLoops<T>& rows = simd::Rows<T>(loops);
    switch (reduction) {
      case Reduction::kMax:
        return {lowest, rows.max, nullptr, join(BinaryOp::kMaximum)};
      case Reduction::kMin:
        return {highest, rows.min, nullptr, join(BinaryOp::kMinimum)};
      default:
        return {0, rows.sum, rows.sum_rows, nullptr};
    }
  } else {
    switch (reduction) {
      case Reduction::kMax:
        return {lowest, MaxRow<T>, nullptr, join(BinaryOp::kMaximum)};
      case Reduction::kMin:
        return {highest, MinRow<T>, nullptr, join(BinaryOp::kMinimum)};
      default:
        return {0, SumRow<T>, nullptr, join(BinaryOp::kAdd)};
    }
  }
}

template <class T>
void RunPass(const RowReduction<T>& reduction, const Pass& pass, const T* x, T* out) {
  if (pass.reduced == 0) {
    std::fill_n(out, pass.outer * pass.inner, reduction.identity);
    return;
  }
  for (int64_t i = 0; i < pass.outer; ++i) {
    const T* from = x + i * pass.reduced * pass.inner;
    T* to = out + i * pass.inner;
    if (pass.inner == 1) {
      *to = reduction.row(from, pass.reduced);
    } else if (reduction.rows != nullptr) {
      reduction.rows(from, pass.reduced, pass.inner, to, pass.inner);
    } else {
      std::copy_n(from, pass.inner, to);
      for (int64_t row = 1; row < pass.reduced; ++row) {
        reduction.join(to, from + row * pass.inner, to, pass.inner);
      }
    }
  }
}

template <class T>
KernelOr MakeReduceOf(const KernelSpec& spec, Reduction kind) {
  const OperandSpec& in = spec.inputs[0];
  const std::vector<int64_t>& axes = spec.attrs.Ints("axes");
  const int64_t n_out = spec.outputs[0].num_elements();
  std::vector<Pass> passes = PassesOf(in.shape(), axes);
  if (passes.empty()) passes.push_back({in.num_elements(), 1, 1});  // nothing to reduce: a copy
  double factor = 1;
  if (kind == Reduction::kMean) {
    for (int64_t axis : axes) factor /= static_cast<double>(in.logical[axis]);
  }
  // Results between passes, in turns.
  std::vector<T> between[2];
  for (size_t i = 0; i + 1 < passes.size(); ++i) {
    between[i % 2].resize(
        std::max<size_t>(between[i % 2].size(), passes[i].outer * passes[i].inner));
  }
  return MakeKernel([=, reduction = ReductionOf<T>(kind), passes = std::move(passes),
                     even = std::move(between[0]),
                     odd = std::move(between[1])](const KernelRun& run) mutable {
    const T* from = Input<T>(run, 0);
    T* out = Output<T>(run, 0);
    for (size_t i = 0; i < passes.size(); ++i) {
      T* to = i + 1 == passes.size() ? out : (i % 2 == 0 ? even.data() : odd.data());
      RunPass(reduction, passes[i], from, to);
      from = to;
    }
    if (kind == Reduction::kMean) {
      for (int64_t i = 0; i < n_out; ++i) out[i] = static_cast<T>(out[i] * factor);
    }
  });
}

KernelOr MakeReduce(const KernelSpec& spec, Reduction kind) {
  if (spec.outputs[0].dtype != spec.inputs[0].dtype) return UnsupportedTypes(spec);
  switch (spec.inputs[0].dtype) {
    case DType::kF32:
      return MakeReduceOf<float>(spec, kind);
    case DType::kF64:
      return MakeReduceOf<double>(spec, kind);
    case DType::kI32:
      if (kind != Reduction::kMean) return MakeReduceOf<int32_t>(spec, kind);
      return UnsupportedTypes(spec);
    case DType::kI64:
      if (kind != Reduction::kMean) return MakeReduceOf<int64_t>(spec, kind);
      return UnsupportedTypes(spec);
    default:
      return UnsupportedTypes(spec);
  }
}

// The first of the largest; a NaN counts as the largest.
template <class T>
KernelOr MakeArgmaxOf(const KernelSpec& spec) {
  const int axis = static_cast<int>(spec.attrs.Int("axis"));
  const AxisView view = ViewAround(spec.inputs[0].shape(), axis);
  return MakeKernel([view](const KernelRun& run) {
    const T* x = Input<T>(run, 0);
    auto* out = Output<int32_t>(run, 0);
    for (int64_t i = 0; i < view.outer; ++i) {
      for (int64_t j = 0; j < view.inner; ++j) {
        const T* row = x + i * view.size * view.inner + j;
        int64_t best = 0;
        for (int64_t k = 1; k < view.size; ++k) {
          const T value = row[k * view.inner], most = row[best * view.inner];
          if (value > most || (value != value && most == most)) best = k;
        }
        out[i * view.inner + j] = static_cast<int32_t>(best);
      }
    }
  });
}

KernelOr MakeArgmax(const KernelSpec& spec) {
  if (spec.outputs[0].dtype != DType::kI32) return UnsupportedTypes(spec);
  switch (spec.inputs[0].dtype) {
    case DType::kF32:
      return MakeArgmaxOf<float>(spec);
    case DType::kF64:
      return MakeArgmaxOf<double>(spec);
    case DType::kI32:
      return MakeArgmaxOf<int32_t>(spec);
    case DType::kI64:
      return MakeArgmaxOf<int64_t>(spec);
    case DType::kU8:
      return MakeArgmaxOf<uint8_t>(spec);
    default:
      return UnsupportedTypes(spec);
  }
}

}  // namespace

absl::Status RegisterReduceKernels(KernelRegistry& registry) {
  struct Named {
    const char* name;
    Reduction kind;
  };
  for (const Named& named : {Named{"reduce_sum", Reduction::kSum},
                             {"reduce_mean", Reduction::kMean},
                             {"reduce_max", Reduction::kMax},
                             {"reduce_min", Reduction::kMin}}) {
    RETURN_IF_ERROR(registry.Register(named.name, Widened([kind = named.kind](const KernelSpec& s) {
                                        return MakeReduce(s, kind);
                                      })));
  }
  return registry.Register("argmax", Widened(MakeArgmax));
}

}  // namespace braid::cpu
