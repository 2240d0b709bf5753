// Kernels of batch normalization.
#include "runtime/kernels/cuda/batch_norm.h"
#include "runtime/kernels/cuda/device_code.h"
#include "runtime/kernels/cuda/rows.h"

namespace braid::cuda {
namespace {

// What a channel of a group is normalized with.
template <class A>
struct Channel {
  A mean = 0, rstd = 0, factor = 0, addend = 0;  // y = (x - mean) * factor + addend
};
template <class T>
__device__ __forceinline__ Channel<Compute<T>> ChannelOf(const BatchStatistics& s, int64_t in_group,
                                                         int64_t channel) {
  using A = Compute<T>;
  Channel<A> result;
  if (s.mean == nullptr) return result;
  const auto load = [&](const void* numbers, int64_t i) {
    return LoadNumber<T>(s.are_wide, numbers, i);
  };
  result.mean = static_cast<A>(static_cast<double>(load(s.mean, in_group)) / s.divisor);
  if (s.variance == nullptr) return result;
  const double variance = static_cast<double>(load(s.variance, in_group)) / s.divisor;
  result.rstd = static_cast<A>(1 / fn::Sqrt(variance + s.epsilon));
  if (s.gamma != nullptr) result.factor = load(s.gamma, channel) * result.rstd;
  if (s.beta != nullptr) result.addend = load(s.beta, channel);
  return result;
}

template <class A>
struct Pair {
  A first = 0, second = 0;
};

// Adds an element's terms.
template <class A>
__device__ __forceinline__ void AddTerms(const BatchSumsLaunch& l, const Channel<A>& channel, A x,
                                         A dy, Pair<A>& sums) {
  const A centered = x - channel.mean;
  if (l.kind == BatchSum::kGradients) {
    const bool passes = !l.rectifies || centered * channel.factor + channel.addend > A(0);
    const A d = passes ? dy : A(0);
    sums.first += d * centered;
    sums.second += d;
  } else {
    sums.first += l.kind == BatchSum::kSquares ? centered * centered : x;
  }
}

// x and, where it is needed, dy.
template <class T, int kPack>
__device__ __forceinline__ void LoadTerms(const BatchSumsLaunch& l, int64_t at,
                                          Compute<T> (&x)[kPack], Compute<T> (&dy)[kPack]) {
  LoadPack<kPack>(static_cast<const T*>(l.x) + at, x);
  if (l.kind == BatchSum::kGradients) LoadPack<kPack>(static_cast<const T*>(l.dy) + at, dy);
}

// Adds up what threads have for the same column: neighbours in the block have neighbouring columns,
// and the first `columns` threads get the sums. Begins with a meeting of all threads, and ends with
// one if there was anything to add.
template <class A>
__device__ __forceinline__ void JoinRows(A* of_threads, int columns, Pair<A>& sums) {
  __syncthreads();
  of_threads[threadIdx.x] = sums.first;
  of_threads[kThreads + threadIdx.x] = sums.second;
  for (int half = static_cast<int>(blockDim.x) / 2; half >= columns; half /= 2) {
    __syncthreads();
    if (static_cast<int>(threadIdx.x) >= half) continue;
    sums.first += of_threads[threadIdx.x + half];
    sums.second += of_threads[kThreads + threadIdx.x + half];
    of_threads[threadIdx.x] = sums.first;
    of_threads[kThreads + threadIdx.x] = sums.second;
  }
}

// The sums of a part of a group's images: block [channel or elements, part, group].
template <class T, int kPack>
__global__ void __launch_bounds__(kThreads) SumParts(BatchSumsLaunch l) {
  using A = Compute<T>;
  __shared__ A of_threads[2 * kThreads];
  const BatchLayout& layout = l.layout;
  const int lane = static_cast<int>(threadIdx.x) % l.lanes;
  const int row = static_cast<int>(threadIdx.x) / l.lanes;
  const int64_t image_size = layout.channels * layout.space;
  // Of an image, a block has a channel's space, or where this is short, some neighbours.
  const int64_t element = blockIdx.x * int64_t{l.lanes} + lane;
  const bool is_there = !l.is_short || element < image_size;
  const int64_t channel = !is_there ? 0 : l.is_short ? element / layout.space : blockIdx.x;
  const int64_t first = l.is_short ? element : blockIdx.x * layout.space + lane * kPack;
  const int64_t width = l.is_short ? 1 : layout.space - lane * kPack;
  const int64_t begin = blockIdx.y * l.part_images;
  const int64_t end = begin + l.part_images < layout.images ? begin + l.part_images : layout.images;
  for (int64_t group = blockIdx.z; group < layout.groups; group += gridDim.z) {
    Pair<A> sums;
    if (is_there) {
      const Channel<A> numbers =
          ChannelOf<T>(l.statistics, group * layout.channels + channel, channel);
      for (int64_t image = begin + row; image < end; image += l.rows) {
        const int64_t at = (group * layout.images + image) * image_size + first;
        for (int64_t i = 0; i < width; i += int64_t{l.lanes} * kPack) {
          A x[kPack], dy[kPack] = {};
          LoadTerms<T>(l, at + i, x, dy);
          for (int j = 0; j < kPack; ++j) AddTerms(l, numbers, x[j], dy[j], sums);
        }
      }
    }
    const int last = l.is_short ? l.lanes : 1;  // of the threads whose sums are left
    JoinRows(of_threads, last, sums);
    const int64_t columns = l.is_short ? image_size : layout.channels;
    const int64_t column = l.is_short ? element : blockIdx.x;
    if (static_cast<int>(threadIdx.x) < last && is_there) {
      A* to = static_cast<A*>(l.sums) + (group * l.parts + blockIdx.y) * columns + column;
      to[0] = sums.first;
      to[layout.groups * l.parts * columns] = sums.second;
    }
  }
}

// The same where space is 1: a thread has kPack neighbouring channels.
template <class T, int kPack>
__global__ void __launch_bounds__(kThreads) SumColumns(BatchSumsLaunch l) {
  using A = Compute<T>;
  __shared__ A of_threads[2 * kThreads];
  const BatchLayout& layout = l.layout;
  const int lane = static_cast<int>(threadIdx.x) % l.lanes;
  const int row = static_cast<int>(threadIdx.x) / l.lanes;
  const int64_t channel = (blockIdx.x * int64_t{l.lanes} + lane) * kPack;
  const bool is_there = channel < layout.channels;
  const int64_t begin = blockIdx.y * l.part_images;
  const int64_t end = begin + l.part_images < layout.images ? begin + l.part_images : layout.images;
  for (int64_t group = blockIdx.z; group < layout.groups; group += gridDim.z) {
    Pair<A> sums[kPack];
    if (is_there) {
      Channel<A> numbers[kPack];
      for (int j = 0; j < kPack; ++j) {
        numbers[j] = ChannelOf<T>(l.statistics, group * layout.channels + channel + j, channel + j);
      }
      for (int64_t image = begin + row; image < end; image += l.rows) {
        A x[kPack], dy[kPack] = {};
        LoadTerms<T>(l, (group * layout.images + image) * layout.channels + channel, x, dy);
        for (int j = 0; j < kPack; ++j) AddTerms(l, numbers[j], x[j], dy[j], sums[j]);
      }
    }
    A* const to =
        static_cast<A*>(l.sums) + (group * l.parts + blockIdx.y) * layout.channels + channel;
    for (int j = 0; j < kPack; ++j) {
      JoinRows(of_threads, l.lanes, sums[j]);
      if (row != 0 || !is_there) continue;
      to[j] = sums[j].first;
      to[layout.groups * l.parts * layout.channels + j] = sums[j].second;
    }
  }
}

// A warp for each channel of each group.
template <class T>
__global__ void __launch_bounds__(kThreads) JoinParts(BatchSumsLaunch l) {
  using A = Compute<T>;
  const BatchLayout& layout = l.layout;
  const Team team = MyTeam(/*are_warps=*/true);
  const int64_t each = l.is_short ? layout.space : 1, columns = layout.channels * each;
  for (int64_t i = team.row; i < layout.groups * layout.channels; i += team.row_step) {
    const int64_t group = i / layout.channels, channel = i % layout.channels;
    const A* from = static_cast<const A*>(l.sums) + group * l.parts * columns + channel * each;
    const A* second = from + layout.groups * l.parts * columns;
    Pair<double> sums;
    for (int64_t k = team.lane; k < l.parts * each; k += team.size) {
      const int64_t at = k / each * columns + k % each;
      sums.first += static_cast<double>(from[at]);
      sums.second += static_cast<double>(second[at]);
    }
    sums.first = WarpJoin(sums.first, SumOf());
    sums.second = WarpJoin(sums.second, SumOf());
    if (team.lane != 0) continue;
    if (l.kind == BatchSum::kGradients) {
      sums.first *= static_cast<double>(ChannelOf<T>(l.statistics, i, channel).rstd);
      StoreNumber<T>(l.statistics.are_wide, l.out[1], i, static_cast<A>(sums.second));
    }
    StoreNumber<T>(l.statistics.are_wide, l.out[0], i, static_cast<A>(sums.first));
  }
}

unsigned GridGroups(const BatchLayout& layout) {
  return static_cast<unsigned>(layout.groups < 65535 ? layout.groups : 65535);
}

Error LaunchSums(const Queue& queue, const BatchSumsLaunch& l) {
  const BatchLayout& layout = l.layout;
  const int64_t channels = layout.groups * layout.channels;
  if (channels == 0) return kDone;
  const bool has_columns = layout.space == 1 && FitsPacks(l.type, layout.channels);
  const bool is_packed = (has_columns || (!l.is_short && FitsPacks(l.type, layout.space))) &&
                         IsAligned(l.x) && (l.dy == nullptr || IsAligned(l.dy));
  const Error error = VisitPacks(l.type, is_packed, [&](auto type, auto pack) {
    using T = decltype(type);
    const bool sums_columns = has_columns && pack.kSize > 1;
    const int64_t columns = layout.channels * layout.space / (sums_columns ? pack.kSize : 1);
    const auto blocks =
        static_cast<unsigned>(l.is_short ? (columns + l.lanes - 1) / l.lanes : layout.channels);
    const dim3 grid(blocks, static_cast<unsigned>(l.parts), GridGroups(layout));
    const auto threads = static_cast<unsigned>(l.lanes * l.rows);
    return sums_columns ? LaunchBlocks(queue, grid, threads, SumColumns<T, pack.kSize>, l)
                        : LaunchBlocks(queue, grid, threads, SumParts<T, pack.kSize>, l);
  });
  if (error != kDone) return error;
  const Teams teams = TeamsFor(queue, channels, /*size=*/1);
  return VisitFloating(l.type, [&](auto type) {
    return LaunchBlocks(queue, teams.blocks, teams.threads, JoinParts<decltype(type)>, l);
  });
}

// The kBatchNumbers of a channel: out = of_dy * dy + of_x * (x - mean) + addend of the gradient.
template <class A>
struct Numbers {
  A mean, factor, addend, of_x, gradient_addend;
};

template <class T>
__global__ void __launch_bounds__(kThreads) FindNumbers(BatchNormLaunch l) {
  using A = Compute<T>;
  for (int64_t i = FirstIndex(); i < l.layout.groups * l.layout.channels; i += IndexStep()) {
    const Channel<A> channel = ChannelOf<T>(l.statistics, i, i % l.layout.channels);
    Numbers<A> numbers = {channel.mean, channel.factor, channel.addend, A(0), A(0)};
    if (l.dy != nullptr) {
      const double count = l.layout.count;
      const A dgamma = LoadNumber<T>(l.statistics.are_wide, l.dgamma, i);
      const A dbeta = LoadNumber<T>(l.statistics.are_wide, l.dbeta, i);
      numbers.of_x =
          static_cast<A>(static_cast<double>(-channel.factor * channel.rstd * dgamma) / count);
      numbers.gradient_addend =
          static_cast<A>(static_cast<double>(-channel.factor * dbeta) / count);
    }
    static_cast<Numbers<A>*>(l.numbers)[i] = numbers;
  }
}

// kPack neighbours from element `at` on; `numbers_of(j)` are the channel's of the j-th.
template <class T, int kPack, class NumbersOf>
__device__ __forceinline__ void NormalizePack(const BatchNormLaunch& l, int64_t at,
                                              NumbersOf numbers_of) {
  using A = Compute<T>;
  A x[kPack], other[kPack] = {};
  LoadPack<kPack>(static_cast<const T*>(l.x) + at, x);
  const void* of_other = l.dy != nullptr ? l.dy : l.more;
  if (of_other != nullptr) LoadPack<kPack>(static_cast<const T*>(of_other) + at, other);
  for (int j = 0; j < kPack; ++j) {
    const Numbers<A>& n = numbers_of(j);
    const A centered = x[j] - n.mean, y = centered * n.factor + n.addend;
    if (l.dy != nullptr) {
      const A dy = !l.rectifies || y > A(0) ? other[j] : A(0);
      x[j] = n.factor * dy + n.of_x * centered + n.gradient_addend;
    } else {
      x[j] = y + other[j];
      if (l.rectifies) x[j] = fn::Relu::F(x[j], A(0));
    }
  }
  StorePack<kPack>(static_cast<T*>(l.out) + at, x);
}

template <class T, int kPack>
__global__ void __launch_bounds__(kThreads) Normalize(BatchNormLaunch l) {
  using A = Compute<T>;
  const BatchLayout& layout = l.layout;
  const int64_t packs = layout.space / kPack;
  const int64_t rows = layout.groups * layout.images * layout.channels;
  for (int64_t i = FirstIndex(); i < rows * packs; i += IndexStep()) {
    const int64_t row = i / packs;
    const int64_t group = layout.groups == 1 ? 0 : row / (layout.channels * layout.images);
    const Numbers<A> n =
        static_cast<const Numbers<A>*>(l.numbers)[group * layout.channels + row % layout.channels];
    NormalizePack<T, kPack>(l, i * kPack, [&](int) -> const Numbers<A>& { return n; });
  }
}

// The same where space is 1: a thread has kPack neighbouring channels, and keeps their numbers.
template <class T, int kPack>
__global__ void __launch_bounds__(kThreads) NormalizeColumns(BatchNormLaunch l, int lanes) {
  using A = Compute<T>;
  const BatchLayout& layout = l.layout;
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  const int row = static_cast<int>(threadIdx.x) / lanes, rows = kThreads / lanes;
  const int64_t channel = (blockIdx.x * int64_t{lanes} + lane) * kPack;
  if (channel >= layout.channels) return;
  for (int64_t group = blockIdx.z; group < layout.groups; group += gridDim.z) {
    Numbers<A> numbers[kPack];
    for (int j = 0; j < kPack; ++j) {
      numbers[j] = static_cast<const Numbers<A>*>(l.numbers)[group * layout.channels + channel + j];
    }
    for (int64_t image = int64_t{blockIdx.y} * rows + row; image < layout.images;
         image += int64_t{gridDim.y} * rows) {
      NormalizePack<T, kPack>(l, (group * layout.images + image) * layout.channels + channel,
                              [&](int j) -> const Numbers<A>& { return numbers[j]; });
    }
  }
}

template <class T, int kPack>
Error LaunchColumns(const Queue& queue, const BatchNormLaunch& l) {
  const BatchLayout& layout = l.layout;
  const int64_t packs = layout.channels / kPack;
  int lanes = 1;
  while (lanes < packs && lanes < 64) lanes *= 2;
  const int64_t blocks = (packs + lanes - 1) / lanes;
  // About eight images for each thread, and no more blocks than keep the card busy.
  constexpr int64_t kImages = 8;
  const int64_t most = (int64_t{16} * queue.multiprocessors + blocks - 1) / blocks;
  int64_t parts = (layout.images * lanes + kImages * kThreads - 1) / (kImages * kThreads);
  parts = parts < most ? parts : most;
  parts = parts < 65535 ? parts : 65535;
  const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(parts), GridGroups(layout));
  return LaunchBlocks(queue, grid, kThreads, NormalizeColumns<T, kPack>, l, lanes);
}

Error LaunchNorm(const Queue& queue, const BatchNormLaunch& l) {
  const BatchLayout& layout = l.layout;
  const int64_t channels = layout.groups * layout.channels;
  const int64_t elements = channels * layout.images * layout.space;
  if (elements == 0) return kDone;
  const Error error = VisitFloating(l.type, [&](auto type) {
    return Launch(queue, BlocksFor(queue, channels), kThreads, FindNumbers<decltype(type)>, l);
  });
  if (error != kDone) return error;
  const bool has_columns = layout.space == 1 && FitsPacks(l.type, layout.channels);
  const bool is_packed = (has_columns || FitsPacks(l.type, layout.space)) && IsAligned(l.x) &&
                         IsAligned(l.out) && IsAligned(l.dy) && IsAligned(l.more);
  return VisitPacks(l.type, is_packed, [&](auto type, auto pack) {
    if (has_columns && pack.kSize > 1) {
      return LaunchColumns<decltype(type), pack.kSize>(queue, l);
    }
    return Launch(queue, BlocksFor(queue, elements / pack.kSize), kThreads,
                  Normalize<decltype(type), pack.kSize>, l);
  });
}

}  // namespace

BatchNormTable MakeBatchNormTable() { return {.sums = LaunchSums, .norm = LaunchNorm}; }

}  // namespace braid::cuda
