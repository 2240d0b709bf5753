// Kernels of reductions.
#include "runtime/kernels/cuda/device_code.h"
#include "runtime/kernels/cuda/reduce.h"
#include "runtime/kernels/cuda/rows.h"

namespace braid::cuda {
namespace {

// What is reduced with: bytes are widened, for shuffles.
template <class T>
struct ReducedWith {
  using type = Compute<T>;
};
template <>
struct ReducedWith<uint8_t> {
  using type = int32_t;
};
template <class T>
using Accumulator = typename ReducedWith<T>::type;

// Sums of what `kind` says.
template <class A>
struct Sums {
  Reduction kind;
  __device__ __forceinline__ A Identity(bool /*is_bool*/) const { return A(0); }
  __device__ __forceinline__ A Term(A x) const {
    if (kind == Reduction::kSumSquare) return fn::Mul::F(x, x);
    return kind == Reduction::kSumAbs && x < A(0) ? fn::Neg::F(x, x) : x;
  }
  __device__ __forceinline__ A operator()(A a, A b) const { return fn::Add::F(a, b); }
};

template <class A>
struct Limits {
  static constexpr bool kIsSigned64 = sizeof(A) == 8;
  static constexpr A kLowest = kIsSigned64 ? A(INT64_MIN) : A(INT32_MIN);
  static constexpr A kLargest = kIsSigned64 ? A(INT64_MAX) : A(INT32_MAX);
};

// Extremes and products. T: the type of the elements.
template <class T, class A>
struct Others {
  Reduction kind;
  __device__ __forceinline__ A Identity(bool is_bool) const {
    if (kind == Reduction::kProd) return A(1);
    const bool is_max = kind == Reduction::kMax;
    if constexpr (fn::kIsFloat<A>) {
      return static_cast<A>(is_max ? -__builtin_inf() : __builtin_inf());
    } else if constexpr (sizeof(T) == 1) {
      return is_max ? 0 : is_bool ? 1 : 255;
    } else {
      return is_max ? Limits<A>::kLowest : Limits<A>::kLargest;
    }
  }
  __device__ __forceinline__ A Term(A x) const { return x; }
  __device__ __forceinline__ A operator()(A a, A b) const {
    if (kind == Reduction::kProd) return fn::Mul::F(a, b);
    return kind == Reduction::kMax ? fn::Maximum::F(a, b) : fn::Minimum::F(a, b);
  }
};

template <class T, class A>
__device__ __forceinline__ void StoreReduced(const ReduceLaunch& l, int64_t i, A value) {
  if constexpr (fn::kIsFloat<A>) value = static_cast<A>(value * l.factor);
  if constexpr (sizeof(A) == sizeof(float) && fn::kIsFloat<A>) {
    if (l.out_type == DType::kBF16) return Store(static_cast<BFloat16*>(l.out) + i, value);
    if (l.out_type == DType::kF16) return Store(static_cast<Float16*>(l.out) + i, value);
    static_cast<float*>(l.out)[i] = value;
  } else {
    static_cast<T*>(l.out)[i] = static_cast<T>(value);
  }
}

// Where part `part` of the reduced axis ends.
__device__ __forceinline__ int64_t EndOf(const ReduceLaunch& l, int64_t part) {
  const int64_t end = (part + 1) * l.part_size;
  return end < l.reduced ? end : l.reduced;
}

template <class T, int kPack, class Joins>
__global__ void __launch_bounds__(kThreads)
    ReduceRows(ReduceLaunch l, Joins joins, bool are_warps) {
  using A = Accumulator<T>;
  const Team team = MyTeam(are_warps);
  for (int64_t row = team.row; row < l.outer * l.parts; row += team.row_step) {
    const int64_t part = row % l.parts, end = EndOf(l, part);
    const T* in = static_cast<const T*>(l.in) + row / l.parts * l.reduced;
    A sums[kPack];
    for (int j = 0; j < kPack; ++j) sums[j] = joins.Identity(l.is_bool);
    for (int64_t i = part * l.part_size + team.lane * kPack; i < end;
         i += int64_t{team.size} * kPack) {
      Compute<T> values[kPack];
      LoadPack<kPack>(in + i, values);
      for (int j = 0; j < kPack; ++j)
        sums[j] = joins(sums[j], joins.Term(static_cast<A>(values[j])));
    }
    for (int half = kPack / 2; half > 0; half /= 2) {
      for (int j = 0; j < half; ++j) sums[j] = joins(sums[j], sums[j + half]);
    }
    const A sum = TeamJoin(team, sums[0], joins, joins.Identity(l.is_bool));
    if (team.lane == 0) StoreReduced<T>(l, row, sum);
  }
}

template <class T, int kPack, class Joins>
__global__ void __launch_bounds__(kThreads) ReduceColumns(ReduceLaunch l, Joins joins) {
  using A = Accumulator<T>;
  __shared__ A of_threads[kPack * kThreads];
  const int lanes = l.columns.lanes, rows = l.columns.rows;
  const int row = static_cast<int>(threadIdx.x) / lanes;
  const int64_t packs = l.inner / kPack;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * lanes + threadIdx.x % lanes;
  const int64_t outer = column / packs, place = column % packs * kPack;
  const bool is_there = outer < l.outer;
  A sums[kPack];
  for (int j = 0; j < kPack; ++j) sums[j] = joins.Identity(l.is_bool);
  if (is_there) {
    const T* in = static_cast<const T*>(l.in);
    const int64_t first = outer * l.reduced * l.inner + place;
    const int64_t end = EndOf(l, blockIdx.y);
    BRAID_UNROLL_BY_4  // so that loads are under way together
        for (int64_t i = blockIdx.y * l.part_size + row; i < end; i += rows) {
      Compute<T> values[kPack];
      LoadPack<kPack>(in + (first + i * l.inner), values);
      for (int j = 0; j < kPack; ++j)
        sums[j] = joins(sums[j], joins.Term(static_cast<A>(values[j])));
    }
  }
  if (rows > 1) {
    A* mine = of_threads + threadIdx.x;
    for (int j = 0; j < kPack; ++j) mine[j * kThreads] = sums[j];
    for (int half = rows / 2; half > 0; half /= 2) {
      __syncthreads();
      if (row >= half) continue;
      for (int j = 0; j < kPack; ++j) {
        sums[j] = joins(sums[j], mine[j * kThreads + half * lanes]);
        mine[j * kThreads] = sums[j];
      }
    }
  }
  if (row > 0 || !is_there) return;
  const int64_t to = (outer * l.parts + blockIdx.y) * l.inner + place;
  for (int j = 0; j < kPack; ++j) StoreReduced<T>(l, to + j, sums[j]);
}

template <class T, int kPack, class Joins>
Error LaunchOf(const Queue& queue, const ReduceLaunch& l, Joins joins) {
  if (l.by_rows) {
    const Teams teams = TeamsFor(queue, l.outer * l.parts, l.part_size);
    return LaunchBlocks(queue, teams.blocks, teams.threads, ReduceRows<T, kPack, Joins>, l, joins,
                        teams.are_warps);
  }
  const int64_t columns = l.outer * (l.inner / kPack);
  const int64_t blocks = (columns + l.columns.lanes - 1) / l.columns.lanes;
  return LaunchBlocks(queue, dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(l.parts)),
                      static_cast<unsigned>(l.columns.lanes * l.columns.rows),
                      ReduceColumns<T, kPack, Joins>, l, joins);
}

template <class T, int kPack>
Error LaunchOfType(const Queue& queue, const ReduceLaunch& l) {
  using A = Accumulator<T>;
  if (l.kind == Reduction::kMax || l.kind == Reduction::kMin || l.kind == Reduction::kProd) {
    return LaunchOf<T, kPack>(queue, l, Others<T, A>{l.kind});
  }
  if constexpr (sizeof(T) > 1) {
    return LaunchOf<T, kPack>(queue, l, Sums<A>{l.kind});
  } else {
    return kNoSuchType;
  }
}

Error LaunchReduce(const Queue& queue, const ReduceLaunch& l) {
  const int64_t neighbours = l.by_rows ? l.reduced : l.inner;
  const bool is_packed = FitsPacks(l.in_type, neighbours) && IsAligned(l.in);
  const Error error = VisitPacks(l.in_type, is_packed, [&](auto type, auto pack) {
    return LaunchOfType<decltype(type), pack.kSize>(queue, l);
  });
  if (error != kNoSuchType) return error;
  return VisitIntegers(l.in_type,
                       [&](auto type) { return LaunchOfType<decltype(type), 1>(queue, l); });
}

// An element that may be the extreme.
template <class A>
struct Candidate {
  A value;
  int32_t index;  // -1: none
};

// A NaN counts as the extreme.
template <class A>
__device__ __forceinline__ bool Beats(A a, A b, bool is_min) {
  return (is_min ? a < b : a > b) || (a != a && b == b);
}
template <class A>
__device__ __forceinline__ Candidate<A> BetterOf(const Candidate<A>& a, const Candidate<A>& b,
                                                 const ArgExtremeLaunch& l) {
  if (a.index < 0 || b.index < 0) return a.index < 0 ? b : a;
  if (Beats(a.value, b.value, l.is_min)) return a;
  if (Beats(b.value, a.value, l.is_min)) return b;
  return (a.index > b.index) == l.is_last ? a : b;
}

template <class T>
__global__ void __launch_bounds__(kThreads) ArgExtreme(ArgExtremeLaunch l) {
  using A = Accumulator<T>;
  __shared__ A values[kThreads];
  __shared__ int32_t indices[kThreads];
  const int lanes = l.columns.lanes, rows = l.columns.rows;
  const int row = static_cast<int>(threadIdx.x) / lanes;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * lanes + threadIdx.x % lanes;
  const int64_t outer = column / l.inner;
  Candidate<A> best = {A(0), -1};
  if (outer < l.outer) {
    const T* x = static_cast<const T*>(l.x) + outer * l.size * l.inner + column % l.inner;
    for (int64_t i = row; i < l.size; i += rows) {
      const Candidate<A> next = {static_cast<A>(Load(x + i * l.inner)), static_cast<int32_t>(i)};
      best = BetterOf(best, next, l);
    }
  }
  if (rows > 1) {
    values[threadIdx.x] = best.value;
    indices[threadIdx.x] = best.index;
    for (int half = rows / 2; half > 0; half /= 2) {
      __syncthreads();
      if (row >= half) continue;
      const unsigned other = threadIdx.x + half * lanes;
      best = BetterOf(best, {values[other], indices[other]}, l);
      values[threadIdx.x] = best.value;
      indices[threadIdx.x] = best.index;
    }
  }
  if (row == 0 && outer < l.outer) l.out[column] = best.index < 0 ? 0 : best.index;
}

Error LaunchArgExtreme(const Queue& queue, const ArgExtremeLaunch& l) {
  const int64_t blocks = (l.outer * l.inner + l.columns.lanes - 1) / l.columns.lanes;
  return VisitType(l.type, [&](auto type) {
    return LaunchBlocks(queue, static_cast<unsigned>(blocks),
                        static_cast<unsigned>(l.columns.lanes * l.columns.rows),
                        ArgExtreme<decltype(type)>, l);
  });
}

}  // namespace

ReduceTable MakeReduceTable() {
  return {.reduce = LaunchReduce, .arg_extreme = LaunchArgExtreme, .scan = MakeScanTable()};
}

}  // namespace braid::cuda
