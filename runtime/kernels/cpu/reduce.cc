// reduce_sum and its kin, argmax, argmin.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/kernels/cpu/elementwise_loops.h"
#include "runtime/kernels/cpu/families.h"
#include "runtime/kernels/cpu/make_kernel.h"
#include "runtime/kernels/cpu/row_loops.h"
#include "runtime/kernels/cpu/simd/isa.h"

namespace braid::cpu {
namespace {

using KernelOr = absl::StatusOr<std::unique_ptr<Kernel>>;
using PlanOr = absl::StatusOr<PlannedKernel>;
using simd::BinaryFn;
using simd::BinaryOp;
using simd::kSumRowBlock;

enum class Reduction { kSum, kMean, kMax, kMin, kProd, kSumSquare, kSumAbs };

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
T ProdRow(const T* x, int64_t n) {
  uint64_t product = 1;
  for (int64_t i = 0; i < n; ++i) product *= static_cast<uint64_t>(x[i]);
  return static_cast<T>(product);
}
// What is summed of an integer: its square or its magnitude.
template <class T, Reduction kind>
uint64_t Term(T x) {
  const auto value = static_cast<uint64_t>(x);
  if constexpr (kind == Reduction::kSumSquare) return value * value;
  return x < 0 ? 0 - value : value;
}
template <class T, Reduction kind>
T SumTermsRow(const T* x, int64_t n) {
  uint64_t sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += Term<T, kind>(x[i]);
  return static_cast<T>(sum);
}
template <class T, Reduction kind>
void SumTermsRows(const T* x, int64_t rows, int64_t stride, T* out, int64_t n) {
  for (int64_t j = 0; j < n; ++j) out[j] = static_cast<T>(Term<T, kind>(x[j]));
  for (int64_t row = 1; row < rows; ++row) {
    for (int64_t j = 0; j < n; ++j) {
      out[j] = static_cast<T>(static_cast<uint64_t>(out[j]) + Term<T, kind>(x[row * stride + j]));
    }
  }
}

template <class T>
constexpr simd::Type kLoopType = std::is_same_v<T, float>     ? simd::Type::kF32
                                 : std::is_same_v<T, double>  ? simd::Type::kF64
                                 : std::is_same_v<T, int32_t> ? simd::Type::kI32
                                 : std::is_same_v<T, int64_t> ? simd::Type::kI64
                                                              : simd::Type::kU8;

template <class T>
BinaryFn JoinBy(BinaryOp op) {
  return simd::BestLoops<simd::ElementwiseLoops>()
      .binary[static_cast<int>(op)][static_cast<int>(kLoopType<T>)][0];
}

template <class T>
RowReduction<T> FloatReduction(Reduction reduction) {
  const auto& rows = simd::BestLoops<simd::RowLoops<T>>();
  constexpr T kInfinity = std::numeric_limits<T>::infinity();
  switch (reduction) {
    case Reduction::kMax:
      return {-kInfinity, rows.max, nullptr, JoinBy<T>(BinaryOp::kMaximum)};
    case Reduction::kMin:
      return {kInfinity, rows.min, nullptr, JoinBy<T>(BinaryOp::kMinimum)};
    case Reduction::kProd:
      return {1, rows.product, nullptr, JoinBy<T>(BinaryOp::kMul)};
    case Reduction::kSumSquare:
      return {0, rows.sum_square, rows.sum_square_rows, nullptr};
    case Reduction::kSumAbs:
      return {0, rows.sum_abs, rows.sum_abs_rows, nullptr};
    default:
      return {0, rows.sum, rows.sum_rows, nullptr};
  }
}

template <class T>
RowReduction<T> IntegerReduction(Reduction reduction) {
  switch (reduction) {
    case Reduction::kMax:
      return {std::numeric_limits<T>::lowest(), MaxRow<T>, nullptr, JoinBy<T>(BinaryOp::kMaximum)};
    case Reduction::kMin:
      return {std::numeric_limits<T>::max(), MinRow<T>, nullptr, JoinBy<T>(BinaryOp::kMinimum)};
    case Reduction::kProd:
      return {1, ProdRow<T>, nullptr, JoinBy<T>(BinaryOp::kMul)};
    case Reduction::kSumSquare:
      return {0, SumTermsRow<T, Reduction::kSumSquare>, SumTermsRows<T, Reduction::kSumSquare>,
              nullptr};
    case Reduction::kSumAbs:
      return {0, SumTermsRow<T, Reduction::kSumAbs>, SumTermsRows<T, Reduction::kSumAbs>, nullptr};
    default:
      return {0, SumRow<T>, nullptr, JoinBy<T>(BinaryOp::kAdd)};
  }
}

template <class T>
RowReduction<T> ReductionOf(Reduction reduction) {
  if constexpr (std::is_floating_point_v<T>) {
    return FloatReduction<T>(reduction);
  } else {
    return IntegerReduction<T>(reduction);
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

// The sums of columns, part by part: the parts of a block of rows add up as the whole block does.
template <class T>
std::unique_ptr<Kernel> MakeSumOfRows(int64_t rows, int64_t n) {
  const auto add_rows = simd::BestLoops<simd::RowLoops<T>>().add_rows;
  struct Sums {
    std::vector<T> block;
    std::vector<double> total;
  };
  Sums sums = {std::vector<T>(n), std::vector<double>(n)};
  return MakePointwise(
      rows * n, n,
      [=, sums = std::move(sums)](const KernelRun& run, int64_t begin, int64_t size) mutable {
        const T* x = Input<T>(run, 0);
        const int64_t end = (begin + size) / n;
        for (int64_t row = begin / n; row < end;) {
          const int64_t block_end =
              std::min(row / kSumRowBlock * kSumRowBlock + kSumRowBlock, rows);
          const int64_t next = std::min(block_end, end);
          if (row % kSumRowBlock == 0) std::fill(sums.block.begin(), sums.block.end(), T{0});
          if (row == 0) std::fill(sums.total.begin(), sums.total.end(), 0.0);
          add_rows(x + row * n, next - row, n, sums.block.data(), n);
          row = next;
          if (row < block_end) break;
          for (int64_t j = 0; j < n; ++j) sums.total[j] += static_cast<double>(sums.block[j]);
        }
        if (end == rows) {
          T* out = Output<T>(run, 0);
          for (int64_t j = 0; j < n; ++j) out[j] = static_cast<T>(sums.total[j]);
        }
      });
}

template <class T>
KernelOr MakePasses(const KernelSpec& spec, Reduction kind, std::vector<Pass> passes) {
  const OperandSpec& in = spec.inputs[0];
  const std::vector<int64_t>& axes = spec.attrs.Ints("axes");
  const int64_t n_out = spec.outputs[0].num_elements();
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
  RowReduction<T> first = ReductionOf<T>(kind), rest = first;
  // What the first pass leaves is summed.
  if (kind == Reduction::kSumSquare || kind == Reduction::kSumAbs) {
    rest = ReductionOf<T>(Reduction::kSum);
  }
  if (in.dtype == DType::kBool && kind == Reduction::kMin) first.identity = rest.identity = 1;
  return MakeKernel([=, passes = std::move(passes), even = std::move(between[0]),
                     odd = std::move(between[1])](const KernelRun& run) mutable {
    const T* from = Input<T>(run, 0);
    T* out = Output<T>(run, 0);
    for (size_t i = 0; i < passes.size(); ++i) {
      T* to = i + 1 == passes.size() ? out : (i % 2 == 0 ? even.data() : odd.data());
      RunPass(i == 0 ? first : rest, passes[i], from, to);
      from = to;
    }
    if (kind == Reduction::kMean) {
      for (int64_t i = 0; i < n_out; ++i) out[i] = static_cast<T>(out[i] * factor);
    }
  });
}

template <class T>
PlanOr PlanReduceOf(const KernelSpec& spec, Reduction kind) {
  const OperandSpec& in = spec.inputs[0];
  std::vector<Pass> passes = PassesOf(in.shape(), spec.attrs.Ints("axes"));
  if (passes.empty()) passes.push_back({in.num_elements(), 1, 1});  // nothing to reduce: a copy
  if constexpr (std::is_floating_point_v<T>) {
    const Pass pass = passes[0];
    if (kind == Reduction::kSum && passes.size() == 1 && pass.outer == 1 && pass.reduced > 0 &&
        pass.inner > 1) {
      return PlannedKernel{
          .memory = {.own = pass.inner * static_cast<int64_t>(sizeof(T) + sizeof(double))},
          .make = [pass] { return MakeSumOfRows<T>(pass.reduced, pass.inner); }};
    }
  }
  return PlannedKernel{.make = [=] { return MakePasses<T>(spec, kind, passes); }};
}

PlanOr PlanReduce(const KernelSpec& spec, Reduction kind) {
  if (spec.outputs[0].dtype != spec.inputs[0].dtype) return UnsupportedTypes(spec);
  switch (spec.inputs[0].dtype) {
    case DType::kF32:
      return PlanReduceOf<float>(spec, kind);
    case DType::kF64:
      return PlanReduceOf<double>(spec, kind);
    case DType::kI32:
      if (kind != Reduction::kMean) return PlanReduceOf<int32_t>(spec, kind);
      return UnsupportedTypes(spec);
    case DType::kI64:
      if (kind != Reduction::kMean) return PlanReduceOf<int64_t>(spec, kind);
      return UnsupportedTypes(spec);
    case DType::kU8:
    case DType::kBool:
      if (kind == Reduction::kMax || kind == Reduction::kMin) {
        return PlanReduceOf<uint8_t>(spec, kind);
      }
      return UnsupportedTypes(spec);
    default:
      return UnsupportedTypes(spec);
  }
}

// A NaN counts as the extreme.
struct Larger {
  template <class T>
  bool operator()(T a, T b) const {
    return a > b || (a != a && b == b);
  }
};
struct Smaller {
  template <class T>
  bool operator()(T a, T b) const {
    return a < b || (a != a && b == b);
  }
};

template <class T, class Beats>
KernelOr MakeArgExtremeOf(const KernelSpec& spec) {
  const int axis = static_cast<int>(spec.attrs.Int("axis"));
  const AxisView view = ViewAround(spec.inputs[0].shape(), axis);
  const bool last = Flag(spec.attrs, "last");
  return MakeKernel([view, last](const KernelRun& run) {
    const T* x = Input<T>(run, 0);
    auto* out = Output<int32_t>(run, 0);
    for (int64_t i = 0; i < view.outer; ++i) {
      for (int64_t j = 0; j < view.inner; ++j) {
        const T* row = x + i * view.size * view.inner + j;
        int64_t best = 0;
        for (int64_t k = 1; k < view.size; ++k) {
          const T value = row[k * view.inner], so_far = row[best * view.inner];
          if (last ? !Beats()(so_far, value) : Beats()(value, so_far)) best = k;
        }
        out[i * view.inner + j] = static_cast<int32_t>(best);
      }
    }
  });
}

template <class Beats>
KernelOr MakeArgExtreme(const KernelSpec& spec) {
  if (spec.outputs[0].dtype != DType::kI32) return UnsupportedTypes(spec);
  switch (spec.inputs[0].dtype) {
    case DType::kF32:
      return MakeArgExtremeOf<float, Beats>(spec);
    case DType::kF64:
      return MakeArgExtremeOf<double, Beats>(spec);
    case DType::kI32:
      return MakeArgExtremeOf<int32_t, Beats>(spec);
    case DType::kI64:
      return MakeArgExtremeOf<int64_t, Beats>(spec);
    case DType::kU8:
      return MakeArgExtremeOf<uint8_t, Beats>(spec);
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
                             {"reduce_min", Reduction::kMin},
                             {"reduce_prod", Reduction::kProd},
                             {"reduce_sum_square", Reduction::kSumSquare},
                             {"reduce_l1", Reduction::kSumAbs}}) {
    BRAID_RETURN_IF_ERROR(registry.Register(
        named.name,
        Widened([kind = named.kind](const KernelSpec& s) { return PlanReduce(s, kind); })));
  }
  BRAID_RETURN_IF_ERROR(registry.Register("argmax", Widened(MakeArgExtreme<Larger>)));
  return registry.Register("argmin", Widened(MakeArgExtreme<Smaller>));
}

}  // namespace braid::cpu
