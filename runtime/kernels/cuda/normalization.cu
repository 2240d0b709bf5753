// Kernels of layer, RMS and group normalization.
#include "runtime/kernels/cuda/device_code.h"
#include "runtime/kernels/cuda/normalization.h"
#include "runtime/kernels/cuda/rows.h"

namespace braid::cuda {
namespace {

// Y: of which the results are; narrow ones may be made of f32.
template <class T, int kPack, class Y = T>
__global__ void __launch_bounds__(kThreads) RowNorm(RowNormLaunch l, bool are_warps) {
  using A = Compute<T>;
  const Team team = MyTeam(are_warps);
  const A size = static_cast<A>(l.size);
  const int64_t begin = team.lane * kPack, step = int64_t{team.size} * kPack;
  for (int64_t row = team.row; row < l.rows; row += team.row_step) {
    const T* x = static_cast<const T*>(l.x) + row * l.size;
    A values[kPack], mean = 0, variance = 0;
    if (l.mean != nullptr) {
      for (int64_t i = begin; i < l.size; i += step) {
        LoadPack<kPack>(x + i, values);
        for (int j = 0; j < kPack; ++j) mean += values[j];
      }
      mean = TeamSum(team, mean) / size;
    }
    for (int64_t i = begin; i < l.size; i += step) {
      LoadPack<kPack>(x + i, values);
      for (int j = 0; j < kPack; ++j) variance += (values[j] - mean) * (values[j] - mean);
    }
    variance = TeamSum(team, variance) / size;
    const A rstd = A(1) / fn::Sqrt(variance + static_cast<A>(l.epsilon));
    for (int64_t i = begin; i < l.size; i += step) {
      A gamma[kPack], beta[kPack] = {};
      LoadPack<kPack>(x + i, values);
      LoadPack<kPack>(static_cast<const T*>(l.gamma) + i, gamma);
      if (l.beta != nullptr) LoadPack<kPack>(static_cast<const T*>(l.beta) + i, beta);
      for (int j = 0; j < kPack; ++j) values[j] = (values[j] - mean) * rstd * gamma[j] + beta[j];
      StorePack<kPack>(static_cast<Y*>(l.y) + row * l.size + i, values);
    }
    if (team.lane != 0) continue;
    Store(static_cast<T*>(l.rstd) + row, rstd);
    if (l.mean != nullptr) Store(static_cast<T*>(l.mean) + row, mean);
  }
}

template <class T>
__device__ __forceinline__ Compute<T> MeanOf(const RowNormGradLaunch& l, int64_t row) {
  return l.mean == nullptr ? Compute<T>(0) : Load(static_cast<const T*>(l.mean) + row);
}

// With g = dy * gamma and h = (x - mean) * rstd: dx = rstd * (g - mean(g) - h * mean(g h)), where
// RMS norm has no mean(g).
template <class T, int kPack>
__global__ void __launch_bounds__(kThreads) RowNormInputGrad(RowNormGradLaunch l, bool are_warps) {
  using A = Compute<T>;
  const Team team = MyTeam(are_warps);
  const int64_t begin = team.lane * kPack, step = int64_t{team.size} * kPack;
  for (int64_t row = team.row; row < l.rows; row += team.row_step) {
    const T* x = static_cast<const T*>(l.x) + row * l.size;
    const T* dy = static_cast<const T*>(l.dy) + row * l.size;
    const A mean = MeanOf<T>(l, row), rstd = Load(static_cast<const T*>(l.rstd) + row);
    A xs[kPack], dys[kPack], gamma[kPack], mean_g = 0, mean_gh = 0;
    for (int64_t i = begin; i < l.size; i += step) {
      LoadPack<kPack>(x + i, xs);
      LoadPack<kPack>(dy + i, dys);
      LoadPack<kPack>(static_cast<const T*>(l.gamma) + i, gamma);
      for (int j = 0; j < kPack; ++j) {
        const A g = dys[j] * gamma[j];
        mean_g += g;
        mean_gh += g * ((xs[j] - mean) * rstd);
      }
    }
    mean_g = l.mean == nullptr ? A(0) : TeamSum(team, mean_g) / static_cast<A>(l.size);
    mean_gh = TeamSum(team, mean_gh) / static_cast<A>(l.size);
    for (int64_t i = begin; i < l.size; i += step) {
      LoadPack<kPack>(x + i, xs);
      LoadPack<kPack>(dy + i, dys);
      LoadPack<kPack>(static_cast<const T*>(l.gamma) + i, gamma);
      for (int j = 0; j < kPack; ++j) {
        const A h = (xs[j] - mean) * rstd;
        dys[j] = rstd * (dys[j] * gamma[j] - mean_g - h * mean_gh);
      }
      StorePack<kPack>(static_cast<T*>(l.dx) + row * l.size + i, dys);
    }
  }
}

// Joins kValues numbers of the threads of a column, which are `lanes` apart; the first rows get
// the sums. of_threads: kValues * kThreads numbers.
template <int kValues, class A>
__device__ __forceinline__ void JoinColumns(A (&sums)[kValues], int lanes, int rows,
                                            A* of_threads) {
  A* mine = of_threads + threadIdx.x;
  for (int k = 0; k < kValues; ++k) mine[k * kThreads] = sums[k];
  for (int half = rows / 2; half > 0; half /= 2) {
    __syncthreads();
    if (static_cast<int>(threadIdx.x) >= half * lanes) continue;
    for (int k = 0; k < kValues; ++k) {
      sums[k] += mine[k * kThreads + half * lanes];
      mine[k * kThreads] = sums[k];
    }
  }
}

// A part's sums of dy * h and of dy.
template <class T, int kPack>
__global__ void __launch_bounds__(kThreads) SumRowParts(RowNormGradLaunch l) {
  using A = Compute<T>;
  __shared__ A of_threads[2 * kPack * kThreads];
  const int row = static_cast<int>(threadIdx.x) / l.lanes;
  const int64_t column = (blockIdx.x * int64_t{l.lanes} + threadIdx.x % l.lanes) * kPack;
  const int64_t begin = blockIdx.y * l.part_rows;
  const int64_t end = begin + l.part_rows < l.rows ? begin + l.part_rows : l.rows;
  A sums[2 * kPack] = {};
  if (column < l.size) {
    for (int64_t i = begin + row; i < end; i += l.block_rows) {
      const A mean = MeanOf<T>(l, i), rstd = Load(static_cast<const T*>(l.rstd) + i);
      A x[kPack], dy[kPack];
      LoadPack<kPack>(static_cast<const T*>(l.x) + i * l.size + column, x);
      LoadPack<kPack>(static_cast<const T*>(l.dy) + i * l.size + column, dy);
      for (int j = 0; j < kPack; ++j) {
        sums[j] += dy[j] * ((x[j] - mean) * rstd);
        sums[kPack + j] += dy[j];
      }
    }
  }
  JoinColumns(sums, l.lanes, l.block_rows, of_threads);
  if (row > 0 || column >= l.size) return;
  A* to = static_cast<A*>(l.sums) + blockIdx.y * l.size + column;
  for (int j = 0; j < kPack; ++j) {
    to[j] = sums[j];
    to[l.parts * l.size + j] = sums[kPack + j];
  }
}

// The sums of the parts' sums, by blocks of `lanes` columns.
template <class T>
__global__ void __launch_bounds__(kThreads) JoinRowParts(RowNormGradLaunch l, int lanes) {
  using A = Compute<T>;
  __shared__ A of_threads[2 * kThreads];
  const int row = static_cast<int>(threadIdx.x) / lanes;
  const int rows = static_cast<int>(blockDim.x) / lanes;
  const int64_t column = blockIdx.x * int64_t{lanes} + threadIdx.x % lanes;
  A sums[2] = {};
  if (column < l.size) {
    const A* from = static_cast<const A*>(l.sums) + column;
    BRAID_UNROLL_BY_4  // so that loads are under way together
        for (int64_t part = row; part < l.parts; part += rows) {
      sums[0] += from[part * l.size];
      sums[1] += from[(l.parts + part) * l.size];
    }
  }
  JoinColumns(sums, lanes, rows, of_threads);
  if (row > 0 || column >= l.size) return;
  Store(static_cast<T*>(l.dgamma) + column, sums[0]);
  if (l.dbeta != nullptr) Store(static_cast<T*>(l.dbeta) + column, sums[1]);
}

// A group of one image is one row of memory.
template <class T, int kPack>
__global__ void __launch_bounds__(kThreads) GroupNorm(GroupNormLaunch l, bool are_warps) {
  using A = Compute<T>;
  const Team team = MyTeam(are_warps);
  const int64_t size = l.channels * l.space;
  const A divisor = static_cast<A>(size > 0 ? size : 1);
  const int64_t begin = team.lane * kPack, step = int64_t{team.size} * kPack;
  for (int64_t row = team.row; row < l.images * l.groups; row += team.row_step) {
    const T* x = static_cast<const T*>(l.x) + row * size;
    const int64_t first = row % l.groups * l.channels;
    A values[kPack], mean = 0, variance = 0;
    for (int64_t i = begin; i < size; i += step) {
      LoadPack<kPack>(x + i, values);
      for (int j = 0; j < kPack; ++j) mean += values[j];
    }
    mean = TeamSum(team, mean) / divisor;
    for (int64_t i = begin; i < size; i += step) {
      LoadPack<kPack>(x + i, values);
      for (int j = 0; j < kPack; ++j) variance += (values[j] - mean) * (values[j] - mean);
    }
    variance = TeamSum(team, variance) / divisor;
    const A rstd = static_cast<A>(1 / fn::Sqrt(static_cast<double>(variance) + l.epsilon));
    for (int64_t i = begin; i < size; i += step) {
      const int64_t channel = first + i / l.space;
      const A factor = Load(static_cast<const T*>(l.gamma) + channel) * rstd;
      const A addend = Load(static_cast<const T*>(l.beta) + channel);
      LoadPack<kPack>(x + i, values);
      for (int j = 0; j < kPack; ++j) values[j] = (values[j] - mean) * factor + addend;
      StorePack<kPack>(static_cast<T*>(l.y) + row * size + i, values);
    }
    if (team.lane != 0) continue;
    Store(static_cast<T*>(l.mean) + row, mean);
    Store(static_cast<T*>(l.rstd) + row, rstd);
  }
}

// For each channel of each image the sums of dy and of dy * (x - mean).
template <class T, int kPack>
__global__ void __launch_bounds__(kThreads) SumChannels(GroupNormGradLaunch l, bool are_warps) {
  using A = Compute<T>;
  const Team team = MyTeam(are_warps);
  const int64_t rows = l.images * l.groups * l.channels;
  for (int64_t row = team.row; row < rows; row += team.row_step) {
    const A mean = Load(static_cast<const T*>(l.mean) + row / l.channels);
    A sum = 0, dot = 0;
    for (int64_t i = team.lane * kPack; i < l.space; i += int64_t{team.size} * kPack) {
      A x[kPack], dy[kPack];
      LoadPack<kPack>(static_cast<const T*>(l.x) + row * l.space + i, x);
      LoadPack<kPack>(static_cast<const T*>(l.dy) + row * l.space + i, dy);
      for (int j = 0; j < kPack; ++j) {
        sum += dy[j];
        dot += dy[j] * (x[j] - mean);
      }
    }
    sum = TeamSum(team, sum);
    dot = TeamSum(team, dot);
    if (team.lane != 0) continue;
    A* to = static_cast<A*>(l.sums) + 2 * row;
    to[0] = sum;
    to[1] = dot;
  }
}

// With xn = (x - mean) * rstd and means over the group:
// dx = rstd * (gamma * dy - mean(gamma * dy) - xn * mean(gamma * dy * xn)).
template <class T, int kPack>
__global__ void __launch_bounds__(kThreads)
    GroupNormInputGrad(GroupNormGradLaunch l, bool are_warps) {
  using A = Compute<T>;
  const Team team = MyTeam(are_warps);
  const double count = static_cast<double>(l.channels * l.space);
  for (int64_t row = team.row; row < l.images * l.groups * l.channels; row += team.row_step) {
    const int64_t group = row / l.channels, first = group % l.groups * l.channels;
    const T* gamma = static_cast<const T*>(l.gamma) + first;
    const A* sums = static_cast<const A*>(l.sums) + 2 * group * l.channels;
    const A mean = Load(static_cast<const T*>(l.mean) + group);
    const double rstd = static_cast<double>(Load(static_cast<const T*>(l.rstd) + group));
    double mean_dy = 0, mean_dot = 0;
    for (int64_t c = team.lane; c < l.channels; c += team.size) {
      mean_dy += static_cast<double>(Load(gamma + c)) * sums[2 * c];
      mean_dot += static_cast<double>(Load(gamma + c)) * sums[2 * c + 1];
    }
    mean_dy = TeamSum(team, mean_dy) / count;
    mean_dot = TeamSum(team, mean_dot) * rstd / count;
    const A of_dy = static_cast<A>(Load(gamma + row % l.channels) * rstd);
    const A of_x = static_cast<A>(-rstd * rstd * mean_dot),
            addend = static_cast<A>(-rstd * mean_dy);
    for (int64_t i = team.lane * kPack; i < l.space; i += int64_t{team.size} * kPack) {
      A x[kPack], dy[kPack];
      LoadPack<kPack>(static_cast<const T*>(l.x) + row * l.space + i, x);
      LoadPack<kPack>(static_cast<const T*>(l.dy) + row * l.space + i, dy);
      for (int j = 0; j < kPack; ++j) dy[j] = of_dy * dy[j] + of_x * (x[j] - mean) + addend;
      StorePack<kPack>(static_cast<T*>(l.dx) + row * l.space + i, dy);
    }
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) GroupNormParameterGrad(GroupNormGradLaunch l) {
  using A = Compute<T>;
  const int64_t channels = l.groups * l.channels;
  for (int64_t c = FirstIndex(); c < channels; c += IndexStep()) {
    double dgamma = 0, dbeta = 0;
    for (int64_t image = 0; image < l.images; ++image) {
      const A* sums = static_cast<const A*>(l.sums) + 2 * (image * channels + c);
      const int64_t group = image * l.groups + c / l.channels;
      dgamma += static_cast<double>(sums[1]) *
                static_cast<double>(Load(static_cast<const T*>(l.rstd) + group));
      dbeta += static_cast<double>(sums[0]);
    }
    Store(static_cast<T*>(l.dgamma) + c, static_cast<A>(dgamma));
    Store(static_cast<T*>(l.dbeta) + c, static_cast<A>(dbeta));
  }
}

Error LaunchRowNorm(const Queue& queue, const RowNormLaunch& l) {
  if (l.size == 0) return kDone;
  const Teams teams = TeamsFor(queue, l.rows, l.size);
  const bool is_packed = FitsPacks(l.y_type, l.size) && IsAligned(l.x) && IsAligned(l.y) &&
                         IsAligned(l.gamma) && IsAligned(l.beta);
  if (l.y_type != l.type) {
    return VisitPacks(l.y_type, is_packed, [&](auto type, auto pack) -> Error {
      using Y = decltype(type);
      if constexpr (kIsHalf<Y>) {
        return LaunchBlocks(queue, teams.blocks, teams.threads, RowNorm<float, pack.kSize, Y>, l,
                            teams.are_warps);
      } else {
        return kNoSuchType;
      }
    });
  }
  return VisitPacks(l.type, is_packed, [&](auto type, auto pack) {
    return LaunchBlocks(queue, teams.blocks, teams.threads, RowNorm<decltype(type), pack.kSize>, l,
                        teams.are_warps);
  });
}

Error LaunchRowNormGrad(const Queue& queue, const RowNormGradLaunch& l) {
  if (l.size == 0) return kDone;
  const Teams teams = TeamsFor(queue, l.rows, l.size);
  const bool is_packed = FitsPacks(l.type, l.size) && IsAligned(l.x) && IsAligned(l.dy) &&
                         IsAligned(l.dx) && IsAligned(l.gamma);
  const Error error = VisitPacks(l.type, is_packed, [&](auto type, auto pack) -> Error {
    using T = decltype(type);
    const Error of_dx = LaunchBlocks(queue, teams.blocks, teams.threads,
                                     RowNormInputGrad<T, pack.kSize>, l, teams.are_warps);
    if (of_dx != kDone) return of_dx;
    const int64_t columns = l.size / pack.kSize;
    return LaunchBlocks(queue,
                        dim3(static_cast<unsigned>((columns + l.lanes - 1) / l.lanes),
                             static_cast<unsigned>(l.parts)),
                        static_cast<unsigned>(l.lanes * l.block_rows), SumRowParts<T, pack.kSize>,
                        l);
  });
  if (error != kDone) return error;
  constexpr int kLanes = 32;
  const unsigned rows = l.parts < 2 ? 1 : l.parts < 16 ? 2 : 8;
  return VisitFloating(l.type, [&](auto type) {
    return LaunchBlocks(queue, static_cast<unsigned>((l.size + kLanes - 1) / kLanes), kLanes * rows,
                        JoinRowParts<decltype(type)>, l, kLanes);
  });
}

Error LaunchGroupNorm(const Queue& queue, const GroupNormLaunch& l) {
  const Teams teams = TeamsFor(queue, l.images * l.groups, l.channels * l.space);
  const bool is_packed = FitsPacks(l.type, l.space) && IsAligned(l.x) && IsAligned(l.y);
  return VisitPacks(l.type, is_packed, [&](auto type, auto pack) {
    return LaunchBlocks(queue, teams.blocks, teams.threads, GroupNorm<decltype(type), pack.kSize>,
                        l, teams.are_warps);
  });
}

Error LaunchGroupNormGrad(const Queue& queue, const GroupNormGradLaunch& l) {
  const int64_t channels = l.groups * l.channels;
  const Teams teams = TeamsFor(queue, l.images * channels, l.space);
  const bool is_packed =
      FitsPacks(l.type, l.space) && IsAligned(l.x) && IsAligned(l.dy) && IsAligned(l.dx);
  const Error error = VisitPacks(l.type, is_packed, [&](auto type, auto pack) -> Error {
    using T = decltype(type);
    const Error of_sums = LaunchBlocks(queue, teams.blocks, teams.threads,
                                       SumChannels<T, pack.kSize>, l, teams.are_warps);
    if (of_sums != kDone || l.space == 0) return of_sums;
    return LaunchBlocks(queue, teams.blocks, teams.threads, GroupNormInputGrad<T, pack.kSize>, l,
                        teams.are_warps);
  });
  if (error != kDone || channels == 0) return error;
  return VisitFloating(l.type, [&](auto type) {
    return Launch(queue, BlocksFor(queue, channels), kThreads,
                  GroupNormParameterGrad<decltype(type)>, l);
  });
}

}  // namespace

NormalizationTable MakeNormalizationTable() {
  return {.row_norm = LaunchRowNorm,
          .row_norm_grad = LaunchRowNormGrad,
          .group_norm = LaunchGroupNorm,
          .group_norm_grad = LaunchGroupNormGrad,
          .batch_norm = MakeBatchNormTable()};
}

}  // namespace braid::cuda
