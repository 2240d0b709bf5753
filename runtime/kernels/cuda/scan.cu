// Kernels of running sums and products, which are kept in f64, so that a result does not depend on
// what lies beside it.
#include "runtime/kernels/cuda/device_code.h"
#include "runtime/kernels/cuda/rows.h"
#include "runtime/kernels/cuda/scan.h"

namespace braid::cuda {
namespace {

// Integers wrap around.
template <class T>
struct RunsIn {
  using type = double;
};
template <>
struct RunsIn<int32_t> {
  using type = uint64_t;
};
template <>
struct RunsIn<int64_t> {
  using type = uint64_t;
};
template <class T>
using Running = typename RunsIn<T>::type;

struct Joins {
  bool is_product;
  template <class A>
  __device__ __forceinline__ A operator()(A a, A b) const {
    return is_product ? a * b : a + b;
  }
  template <class A>
  __device__ __forceinline__ A Identity() const {
    return is_product ? A(1) : A(0);
  }
};

// A chunk of a series: where the series starts, and which of its elements, in the scan's order.
struct Chunk {
  int64_t first, begin, end;
};
// Of [outer, chunks, inner].
__device__ __forceinline__ Chunk ChunkAt(const ScanLaunch& l, int64_t i) {
  const int64_t chunk = i / l.inner % l.chunks;
  const int64_t begin = chunk * l.chunk_size, end = begin + l.chunk_size;
  return {i / l.inner / l.chunks * l.size * l.inner + i % l.inner, begin,
          end < l.size ? end : l.size};
}
// Where element k of the scan lies behind element 0 of the axis.
template <class L>
__device__ __forceinline__ int64_t PlaceOf(const L& l, int64_t k) {
  return (l.is_reverse ? l.size - 1 - k : k) * l.inner;
}

enum class Stage : int32_t { kTotals, kResults };

// What comes before chunk i.
template <class A>
__device__ __forceinline__ A Before(const ScanLaunch& l, Stage stage, int64_t i,
                                    const Joins& joins) {
  if (stage == Stage::kTotals || l.chunks == 1) return joins.Identity<A>();
  return static_cast<const A*>(l.totals)[i];
}

// A thread for each chunk.
template <class T>
__global__ void __launch_bounds__(kThreads) ScanColumns(ScanLaunch l, Stage stage) {
  using A = Running<T>;
  const Joins joins = {l.is_product};
  for (int64_t i = FirstIndex(); i < l.outer * l.chunks * l.inner; i += IndexStep()) {
    const Chunk chunk = ChunkAt(l, i);
    const T* x = static_cast<const T*>(l.x) + chunk.first;
    T* out = static_cast<T*>(l.out) + chunk.first;
    A running = Before<A>(l, stage, i, joins);
    for (int64_t k = chunk.begin; k < chunk.end; ++k) {
      const int64_t at = PlaceOf(l, k);
      // x is read first: out may be its place.
      const A before = running;
      running = joins(before, static_cast<A>(Load(x + at)));
      if (stage == Stage::kTotals) continue;
      Store(out + at, static_cast<Compute<T>>(l.is_exclusive ? before : running));
    }
    if (stage == Stage::kTotals) static_cast<A*>(l.totals)[i] = running;
  }
}

// A warp for each chunk; inner is 1.
template <class T>
__global__ void __launch_bounds__(kThreads) ScanRows(ScanLaunch l, Stage stage) {
  using A = Running<T>;
  const Joins joins = {l.is_product};
  const A identity = joins.Identity<A>();
  const Team team = MyTeam(/*are_warps=*/true);
  for (int64_t row = team.row; row < l.outer * l.chunks; row += team.row_step) {
    const Chunk chunk = ChunkAt(l, row);
    const T* x = static_cast<const T*>(l.x) + chunk.first;
    T* out = static_cast<T*>(l.out) + chunk.first;
    A before = Before<A>(l, stage, row, joins);
    for (int64_t base = chunk.begin; base < chunk.end; base += kWarpThreads) {
      const int64_t k = base + team.lane;
      const int64_t at = PlaceOf(l, k);
      A running = k < chunk.end ? static_cast<A>(Load(x + at)) : identity;
      for (int lanes = 1; lanes < kWarpThreads; lanes *= 2) {
        const A left = __shfl_up_sync(0xffffffffu, running, static_cast<unsigned>(lanes));
        if (team.lane >= lanes) running = joins(left, running);
      }
      const A left = __shfl_up_sync(0xffffffffu, running, 1u);
      if (stage == Stage::kResults && k < chunk.end) {
        const A mine = !l.is_exclusive ? running : team.lane == 0 ? identity : left;
        Store(out + at, static_cast<Compute<T>>(joins(before, mine)));
      }
      before = joins(before, __shfl_sync(0xffffffffu, running, kWarpThreads - 1));
    }
    if (stage == Stage::kTotals && team.lane == 0) static_cast<A*>(l.totals)[row] = before;
  }
}

// Totals of chunks become what comes before them.
template <class A>
__global__ void __launch_bounds__(kThreads) JoinTotals(ScanLaunch l) {
  const Joins joins = {l.is_product};
  for (int64_t i = FirstIndex(); i < l.outer * l.inner; i += IndexStep()) {
    A* totals = static_cast<A*>(l.totals) + i / l.inner * l.chunks * l.inner + i % l.inner;
    A before = joins.Identity<A>();
    for (int64_t chunk = 0; chunk < l.chunks; ++chunk) {
      const A total = totals[chunk * l.inner];
      totals[chunk * l.inner] = before;
      before = joins(before, total);
    }
  }
}

template <class T>
Error LaunchStage(const Queue& queue, const ScanLaunch& l, Stage stage) {
  const int64_t chunks = l.outer * l.chunks;
  if (l.inner == 1 && l.size >= kWarpThreads) {
    const Teams teams = TeamsFor(queue, chunks, /*size=*/1);
    return LaunchBlocks(queue, teams.blocks, teams.threads, ScanRows<T>, l, stage);
  }
  return Launch(queue, BlocksFor(queue, chunks * l.inner), kThreads, ScanColumns<T>, l, stage);
}

template <class T>
Error LaunchScanOf(const Queue& queue, const ScanLaunch& l) {
  if (l.chunks > 1) {
    Error error = LaunchStage<T>(queue, l, Stage::kTotals);
    if (error != kDone) return error;
    error = Launch(queue, BlocksFor(queue, l.outer * l.inner), kThreads, JoinTotals<Running<T>>, l);
    if (error != kDone) return error;
  }
  return LaunchStage<T>(queue, l, Stage::kResults);
}

Error LaunchScan(const Queue& queue, const ScanLaunch& l) {
  const Error error =
      VisitFloating(l.type, [&](auto type) { return LaunchScanOf<decltype(type)>(queue, l); });
  if (error != kNoSuchType) return error;
  if (l.type == DType::kI32) return LaunchScanOf<int32_t>(queue, l);
  return l.type == DType::kI64 ? LaunchScanOf<int64_t>(queue, l) : kNoSuchType;
}

// As the CPU's (runtime/kernels/cpu/scan.cc): a series back and forth, by a thread.
template <class T>
__global__ void __launch_bounds__(kThreads) ProductGrad(ScanGradLaunch l) {
  using A = Compute<T>;
  for (int64_t i = FirstIndex(); i < l.outer * l.inner; i += IndexStep()) {
    const int64_t first = i / l.inner * l.size * l.inner + i % l.inner;
    const T* x = static_cast<const T*>(l.x) + first;
    const T* dy = static_cast<const T*>(l.dy) + first;
    T* dx = static_cast<T*>(l.dx) + first;
    A* tails = static_cast<A*>(l.tails) + first;
    double running = 0;
    for (int64_t k = l.size - 1; k >= 0; --k) {
      const int64_t at = PlaceOf(l, k);
      const double factor = Load(x + at), addend = Load(dy + at);
      const double tail = l.is_exclusive ? running : running + addend;
      running = factor * tail + (l.is_exclusive ? addend : 0.0);
      tails[at] = static_cast<A>(tail);
    }
    running = 1;
    for (int64_t k = 0; k < l.size; ++k) {
      const int64_t at = PlaceOf(l, k);
      const double factor = Load(x + at);
      Store(dx + at, static_cast<A>(running * tails[at]));
      running *= factor;
    }
  }
}

Error LaunchProductGrad(const Queue& queue, const ScanGradLaunch& l) {
  return VisitFloating(l.type, [&](auto type) {
    return Launch(queue, BlocksFor(queue, l.outer * l.inner), kThreads, ProductGrad<decltype(type)>,
                  l);
  });
}

}  // namespace

ScanTable MakeScanTable() { return {.scan = LaunchScan, .product_grad = LaunchProductGrad}; }

}  // namespace braid::cuda
