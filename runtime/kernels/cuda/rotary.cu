// write_rows and rotary: rows that go to a position, or turn by it.
#include "runtime/kernels/cuda/attention.h"
#include "runtime/kernels/cuda/device_code.h"
#include "runtime/kernels/cuda/positions.h"

namespace braid::cuda {
namespace {

// Bytes are moved as elements of type Unit.
template <class Unit>
__global__ void __launch_bounds__(kThreads) WriteRowsKernel(WriteRowsLaunch launch, Queue queue) {
  int64_t position = ReadPosition(launch.position, launch.position_is_i64, 0);
  const int64_t most = launch.size - launch.rows;
  if (position < 0 || position > most) {
    if (FirstIndex() == 0) NoteIndex(queue, IndexName::kPosition, position, 0, 0, most + 1);
    position = 0;
  }
  const int64_t row = launch.bytes / static_cast<int64_t>(sizeof(Unit)), part = launch.rows * row;
  Unit* const to = static_cast<Unit*>(launch.to) + position * row;
  const Unit* const from = static_cast<const Unit*>(launch.from);
  for (int64_t i = FirstIndex(); i < launch.outer * part; i += IndexStep()) {
    const int64_t outer = i / part;
    to[i + outer * (launch.size - launch.rows) * row] = from[i];
  }
}

template <class Unit>
Error LaunchUnits(const Queue& queue, const WriteRowsLaunch& launch) {
  const int64_t units =
      launch.outer * launch.rows * (launch.bytes / static_cast<int64_t>(sizeof(Unit)));
  return Launch(queue, BlocksFor(queue, units), kThreads, WriteRowsKernel<Unit>, launch, queue);
}

// Two pi, and what its rounding lost.
constexpr double kTwoPi = 6.283185307179586, kTwoPiLost = 2.4492935982947064e-16;

// The cosine and sine of an angle of position * base^(-pair / pairs). It is computed in double and
// brought to one turn there, so that far positions are exact, too.
template <class C>
struct Turn {
  C cos, sin;
};
template <class C>
__device__ __forceinline__ Turn<C> TurnOf(int64_t position, double frequency, bool is_inverse) {
  const double angle = static_cast<double>(position) * frequency;
  const double turns = fn::Round(angle / kTwoPi);
  const double rest = (angle - turns * kTwoPi) - turns * kTwoPiLost;
  const C turn = static_cast<C>(sizeof(C) == sizeof(double) ? angle : rest);
  const C sine = fn::Sin(turn);
  return {.cos = fn::Cos(turn), .sin = is_inverse ? -sine : sine};
}

// A thread has a pair of all rows of a position, or of each `slices`th of them: their angle is the
// same.
template <class T>
__global__ void __launch_bounds__(kThreads) RotaryKernel(RotaryLaunch launch, int64_t slices) {
  using C = Compute<T>;
  const int64_t pairs = launch.depth / 2, rows = launch.outer * launch.inner;
  const int64_t all = launch.batch * launch.time * slices * pairs;
  const T* const x = static_cast<const T*>(launch.x);
  T* const y = static_cast<T*>(launch.y);
  for (int64_t index = FirstIndex(); index < all; index += IndexStep()) {
    const int64_t pair = index % pairs, slice = index / pairs % slices;
    const int64_t place = index / pairs / slices;  // [batch, time]
    const int64_t t = place % launch.time, b = place / launch.time;
    const int64_t position = launch.positions == nullptr
                                 ? launch.first + t
                                 : ReadPosition(launch.positions, launch.positions_are_i64, place);
    const double frequency =
        fn::Pow(launch.base, -static_cast<double>(pair) / static_cast<double>(pairs));
    const Turn<C> turn = TurnOf<C>(position, frequency, launch.is_inverse);
    const int64_t first = launch.is_interleaved ? 2 * pair : pair;
    const int64_t second = launch.is_interleaved ? first + 1 : first + pairs;
    for (int64_t row = slice; row < rows; row += slices) {
      const int64_t outer = b * launch.outer + row / launch.inner;
      const int64_t at =
          ((outer * launch.time + t) * launch.inner + row % launch.inner) * launch.depth;
      const C one = Load(x + at + first), other = Load(x + at + second);
      Store(y + at + first, one * turn.cos - other * turn.sin);
      Store(y + at + second, other * turn.cos + one * turn.sin);
    }
  }
}

}  // namespace

Error LaunchWriteRows(const Queue& queue, const WriteRowsLaunch& launch) {
  if (launch.bytes % 16 == 0 && IsAligned(launch.to) && IsAligned(launch.from)) {
    return LaunchUnits<Pack<uint32_t>>(queue, launch);
  }
  for (int64_t size : {8, 4, 2}) {
    const bool is_aligned =
        (reinterpret_cast<uintptr_t>(launch.to) | reinterpret_cast<uintptr_t>(launch.from)) %
            size ==
        0;
    if (launch.bytes % size != 0 || !is_aligned) continue;
    return VisitBytes(size, [&](auto unit) { return LaunchUnits<decltype(unit)>(queue, launch); });
  }
  return LaunchUnits<uint8_t>(queue, launch);
}

Error LaunchRotary(const Queue& queue, const RotaryLaunch& launch) {
  const int64_t pairs = launch.depth / 2, rows = launch.outer * launch.inner;
  const int64_t angles = launch.batch * launch.time * pairs;
  if (angles * rows == 0) return kDone;
  // As many threads as fill the card, of which each has some rows for an angle.
  const int64_t wanted = int64_t{8} * queue.multiprocessors * kThreads / angles;
  const int64_t slices = wanted < 1 ? 1 : (wanted < rows ? wanted : rows);
  return VisitFloating(launch.dtype, [&](auto type) {
    return Launch(queue, BlocksFor(queue, angles * slices), kThreads, RotaryKernel<decltype(type)>,
                  launch, slices);
  });
}

}  // namespace braid::cuda
