// Kernels of what comes out of nothing: constants, random numbers, and dropout.
#include <type_traits>

#include "runtime/base/philox.h"
#include "runtime/kernels/cuda/device_code.h"
#include "runtime/kernels/cuda/random.h"

namespace braid::cuda {
namespace {

using Kind = RandomLaunch::Kind;

__global__ void __launch_bounds__(kThreads) WriteLiteral(LiteralLaunch launch) {
  for (int64_t i = FirstIndex(); i < launch.bytes; i += IndexStep()) {
    static_cast<unsigned char*>(launch.to)[i] = launch.data[i];
  }
}

Error Literal(const Queue& queue, const LiteralLaunch& launch) {
  if (launch.bytes == 0) return kDone;
  return Launch(queue, BlocksFor(queue, launch.bytes), kThreads, WriteLiteral, launch);
}

template <class T>
__global__ void __launch_bounds__(kThreads) WriteIota(IotaLaunch launch) {
  auto* const to = static_cast<T*>(launch.to);
  for (int64_t i = FirstIndex(); i < launch.elements; i += IndexStep()) {
    Store(to + i, static_cast<Compute<T>>(launch.first + i / launch.inner % launch.size));
  }
}

Error Iota(const Queue& queue, const IotaLaunch& launch) {
  if (launch.elements == 0) return kDone;
  return VisitType(launch.dtype, [&](auto type) {
    return Launch(queue, BlocksFor(queue, launch.elements), kThreads, WriteIota<decltype(type)>,
                  launch);
  });
}

// What elements draw: floats, but doubles for doubles; dropout's are floats.
template <class T, Kind kKind>
using Drawn =
    std::conditional_t<std::is_same_v<T, double> && kKind != Kind::kDropout, double, float>;

template <class Draw>
struct Draws {
  Draw values[4];
};

// For the elements 4 * block .. 4 * block + 3.
template <class Draw, Kind kKind>
__device__ __forceinline__ Draws<Draw> DrawsOf(const RandomKey& key, uint64_t block) {
  Draws<Draw> draws;
  if constexpr (kKind == Kind::kNormal) {
    const PhiloxBlock words = BlockAt(key, block);
    for (int k = 0; k < 4; k += 2) {
      const NormalPair pair = NormalsFromWords(words[k], words[k + 1]);
      draws.values[k] = static_cast<Draw>(pair.even);
      draws.values[k + 1] = static_cast<Draw>(pair.odd);
    }
  } else if constexpr (std::is_same_v<Draw, double>) {
    for (int k = 0; k < 4; ++k) draws.values[k] = UniformDoubleAt(key, 4 * block + k);
  } else {
    const PhiloxBlock words = BlockAt(key, block);
    for (int k = 0; k < 4; ++k) draws.values[k] = UniformFromWord(words[k]);
  }
  return draws;
}

template <class T, Kind kKind>
__device__ __forceinline__ void Finish(const RandomLaunch& launch, int64_t i,
                                       Drawn<T, kKind> draw) {
  auto* const to = static_cast<T*>(launch.to) + i;
  if constexpr (kKind == Kind::kDropout) {
    const Compute<T> x = Load(static_cast<const T*>(launch.x) + i);
    const bool stays = draw >= static_cast<float>(launch.a);
    Store(to, stays ? x * static_cast<Compute<T>>(launch.b) : Compute<T>{0});
  } else {
    // Rounded twice, as everywhere: all machines have the same numbers.
    Store(to, static_cast<Compute<T>>(
                  __dadd_rn(launch.a, __dmul_rn(launch.b, static_cast<double>(draw)))));
  }
}

template <class T, Kind kKind>
__global__ void __launch_bounds__(kThreads) WriteRandom(RandomLaunch launch, bool is_one_run) {
  using Draw = Drawn<T, kKind>;
  const int64_t step = launch.step_now == nullptr ? launch.step : *launch.step_now;
  const RandomKey key = {{launch.key[0], launch.key[1]}, static_cast<uint64_t>(step)};
  const int64_t elements = launch.walk.elements;
  if (is_one_run) {
    // A thread has a block of the generator.
    const int64_t first_block = launch.first / 4;
    const int64_t blocks = (launch.first + elements - 1) / 4 - first_block + 1;
    for (int64_t block = FirstIndex(); block < blocks; block += IndexStep()) {
      const Draws<Draw> draws = DrawsOf<Draw, kKind>(key, first_block + block);
      const int64_t begin = 4 * (first_block + block) - launch.first;
      for (int k = 0; k < 4; ++k) {
        if (begin + k < 0 || begin + k >= elements) continue;
        Finish<T, kKind>(launch, begin + k, draws.values[k]);
      }
    }
    return;
  }
  for (int64_t i = FirstIndex(); i < elements; i += IndexStep()) {
    const int64_t logical = launch.first + OffsetsOf<1>(launch.walk, i).at[0];
    const Draws<Draw> draws = DrawsOf<Draw, kKind>(key, logical / 4);
    Draw draw = draws.values[0];
    for (int k = 1; k < 4; ++k) draw = logical % 4 == k ? draws.values[k] : draw;
    Finish<T, kKind>(launch, i, draw);
  }
}

Error Random(const Queue& queue, const RandomLaunch& launch) {
  const Walk& walk = launch.walk;
  if (walk.elements == 0) return kDone;
  const bool is_one_run = walk.rank == 0 || (walk.rank == 1 && walk.stride[0][0] == 1);
  const int64_t threads = is_one_run ? walk.elements / 4 + 2 : walk.elements;
  return VisitFloating(launch.dtype, [&](auto type) {
    using T = decltype(type);
    const auto kernel = launch.kind == Kind::kUniform  ? WriteRandom<T, Kind::kUniform>
                        : launch.kind == Kind::kNormal ? WriteRandom<T, Kind::kNormal>
                                                       : WriteRandom<T, Kind::kDropout>;
    return Launch(queue, BlocksFor(queue, threads), kThreads, kernel, launch, is_one_run);
  });
}

}  // namespace

RandomTable MakeRandomTable() { return {.literal = Literal, .iota = Iota, .random = Random}; }

}  // namespace braid::cuda
