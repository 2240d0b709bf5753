// Kernels of softmax, cross entropies, negative log-likelihoods.
#include "runtime/kernels/cuda/device_code.h"
#include "runtime/kernels/cuda/rows.h"
#include "runtime/kernels/cuda/softmax.h"

namespace braid::cuda {
namespace {

template <class A>
__device__ __forceinline__ A MinusInfinity() {
  return static_cast<A>(-__builtin_inf());
}

// Columns that the row sees.
__device__ __forceinline__ int64_t SeenBy(const SoftmaxLaunch& l, int64_t row) {
  if (!l.is_causal) return l.size;
  const int64_t seen = l.first_row + row % l.matrix_rows + 1;
  return seen < l.size ? seen : l.size;
}

// The maximum of what a thread has met, and the sum of exp(value - maximum).
template <class A>
struct RunningSum {
  A max = MinusInfinity<A>(), sum = 0;

  // What is subtracted: a number also where all values are -infinity, which add nothing.
  __device__ __forceinline__ static A Reference(A max) {
    return max == MinusInfinity<A>() ? A(0) : max;
  }
  __device__ __forceinline__ void MoveTo(A new_max) {
    if (new_max == max) return;
    sum *= FastExp(max - Reference(new_max));
    max = new_max;
  }
  // Only the first `count` of them are there.
  template <int kPack>
  __device__ __forceinline__ void Add(const A (&values)[kPack], int64_t count) {
    A new_max = max;
    for (int j = 0; j < kPack; ++j) {
      if (j < count) new_max = MaxOf()(new_max, values[j]);
    }
    MoveTo(new_max);
    for (int j = 0; j < kPack; ++j) {
      if (j < count) sum += FastExp(values[j] - Reference(max));
    }
  }
  // That of all threads.
  __device__ __forceinline__ void JoinTeam(const Team& team) {
    MoveTo(TeamJoin(team, max, MaxOf(), MinusInfinity<A>()));
    sum = TeamSum(team, sum);
  }
};

template <class T, int kPack>
__global__ void __launch_bounds__(kThreads) Softmax(SoftmaxLaunch l, bool are_warps) {
  using A = Compute<T>;
  const Team team = MyTeam(are_warps);
  const A scale = static_cast<A>(l.scale);
  const int64_t step = int64_t{team.size} * kPack;
  for (int64_t row = team.row; row < l.rows; row += team.row_step) {
    const T* x = static_cast<const T*>(l.x) + row * l.size;
    T* y = static_cast<T*>(l.y) + row * l.size;
    const int64_t seen = SeenBy(l, row);
    RunningSum<A> all;
    A values[kPack] = {};
    for (int64_t i = team.lane * kPack; i < seen; i += step) {
      LoadPack<kPack>(x + i, values);
      for (int j = 0; j < kPack; ++j) values[j] *= scale;
      all.Add(values, seen - i);
    }
    all.JoinTeam(team);
    const A factor = A(1) / all.sum, log_sum = l.is_log ? fn::Log(all.sum) : A(0);
    for (int64_t i = team.lane * kPack; i < l.size; i += step) {
      if (i < seen) LoadPack<kPack>(x + i, values);
      for (int j = 0; j < kPack; ++j) {
        const A value = values[j] * scale - all.max;
        const A result = l.is_log ? value - log_sum : FastExp(value) * factor;
        values[j] = i + j < seen ? result : A(0);
      }
      StorePack<kPack>(y + i, values);
    }
  }
}

template <class T, int kPack>
__global__ void __launch_bounds__(kThreads) SoftmaxGrad(SoftmaxLaunch l, bool are_warps) {
  using A = Compute<T>;
  const Team team = MyTeam(are_warps);
  const A scale = static_cast<A>(l.scale);
  const int64_t step = int64_t{team.size} * kPack;
  for (int64_t row = team.row; row < l.rows; row += team.row_step) {
    const T* y = static_cast<const T*>(l.y) + row * l.size;
    const T* dy = static_cast<const T*>(l.dy) + row * l.size;
    T* dx = static_cast<T*>(l.dx) + row * l.size;
    const int64_t seen = SeenBy(l, row);
    A ys[kPack] = {}, dys[kPack] = {}, sum = 0;
    for (int64_t i = team.lane * kPack; i < seen; i += step) {
      LoadPack<kPack>(dy + i, dys);
      if (!l.is_log) LoadPack<kPack>(y + i, ys);
      for (int j = 0; j < kPack; ++j) {
        if (i + j < seen) sum += l.is_log ? dys[j] : ys[j] * dys[j];
      }
    }
    sum = TeamSum(team, sum);
    for (int64_t i = team.lane * kPack; i < l.size; i += step) {
      if (i < seen) {
        LoadPack<kPack>(dy + i, dys);
        LoadPack<kPack>(y + i, ys);
      }
      for (int j = 0; j < kPack; ++j) {
        const A result = l.is_log ? dys[j] - FastExp(ys[j]) * sum : scale * ys[j] * (dys[j] - sum);
        dys[j] = i + j < seen ? result : A(0);
      }
      StorePack<kPack>(dx + i, dys);
    }
  }
}

template <class T, int kPack>
__global__ void __launch_bounds__(kThreads) SumExp(SumExpLaunch l, bool are_warps) {
  using A = Compute<T>;
  const Team team = MyTeam(are_warps);
  for (int64_t row = team.row; row < l.rows; row += team.row_step) {
    const T* x = static_cast<const T*>(l.x) + row * l.size;
    const A max = LoadNumber<T>(l.are_wide, l.max, row);
    A values[kPack], sum = 0;
    for (int64_t i = team.lane * kPack; i < l.size; i += int64_t{team.size} * kPack) {
      LoadPack<kPack>(x + i, values);
      for (int j = 0; j < kPack; ++j) sum += FastExp(values[j] - max);
    }
    sum = TeamSum(team, sum);
    if (team.lane == 0) StoreNumber<T>(l.are_wide, l.sum, row, sum);
  }
}

// A row's label: which class here, -1 if it is elsewhere. `counts`: it is neither ignored nor
// wrong, which the thread with `notes` says.
struct Label {
  bool counts;
  int64_t local;
};
__device__ __forceinline__ Label LabelOf(const Queue& queue, const Labels& labels, int64_t row,
                                         bool notes) {
  const int64_t value = IndexReader{labels.data, labels.is_i64}[row];
  if (labels.has_ignored && value == labels.ignored) return {false, -1};
  if (value < 0 || value >= labels.all) {
    if (notes) NoteIndex(queue, IndexName::kLabel, value, row, 0, labels.all);
    return {false, -1};
  }
  const int64_t local = value - labels.first;
  return {true, local >= 0 && local < labels.here ? local : -1};
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    SparseCrossEntropy(Queue queue, CrossEntropyLaunch l, bool are_warps) {
  using A = Compute<T>;
  const Team team = MyTeam(are_warps);
  for (int64_t row = team.row; row < l.labels.rows; row += team.row_step) {
    const T* logits = static_cast<const T*>(l.logits) + row * l.labels.here;
    const Label label = LabelOf(queue, l.labels, row, team.lane == 0);
    const A max = LoadNumber<T>(l.are_wide, l.max, row);
    A below = 0;
    if (l.on_each != 0) {
      for (int64_t i = team.lane; i < l.labels.here; i += team.size)
        below += max - Load(logits + i);
      below = TeamSum(team, below);
    }
    if (team.lane != 0) continue;
    // log(sum), which belongs to no class, is added by the shard with the first ones.
    double value = 0;
    if (label.counts) {
      if (l.labels.first == 0 && l.labels.here > 0) {
        value = static_cast<double>(fn::Log(LoadNumber<T>(l.are_wide, l.sum, row)));
      }
      if (label.local >= 0)
        value += l.on_label * static_cast<double>(max - Load(logits + label.local));
      value += l.on_each * static_cast<double>(below);
    }
    StoreNumber<T>(l.are_wide, l.out, row, static_cast<A>(value));
  }
}

template <class T, int kPack>
__global__ void __launch_bounds__(kThreads)
    SparseCrossEntropyGrad(Queue queue, CrossEntropyLaunch l, bool are_warps) {
  using A = Compute<T>;
  const Team team = MyTeam(are_warps);
  const int64_t size = l.labels.here;
  for (int64_t row = team.row; row < l.labels.rows; row += team.row_step) {
    const T* logits = static_cast<const T*>(l.logits) + row * size;
    T* out = static_cast<T*>(l.out) + row * size;
    const Label label = LabelOf(queue, l.labels, row, team.lane == 0);
    const A max = LoadNumber<T>(l.are_wide, l.max, row);
    const A dloss = LoadNumber<T>(l.are_wide, l.dloss, row);
    const A factor = dloss / LoadNumber<T>(l.are_wide, l.sum, row);
    const A each = static_cast<A>(l.on_each * static_cast<double>(dloss));
    const A on_label = static_cast<A>(l.on_label * static_cast<double>(dloss));
    for (int64_t i = team.lane * kPack; i < size; i += int64_t{team.size} * kPack) {
      A values[kPack];
      LoadPack<kPack>(logits + i, values);
      for (int j = 0; j < kPack; ++j) {
        A result = factor * FastExp(values[j] - max) - each;
        if (i + j == label.local) result -= on_label;
        values[j] = label.counts ? result : A(0);
      }
      StorePack<kPack>(out + i, values);
    }
  }
}

template <class T, int kPack>
__global__ void __launch_bounds__(kThreads) CrossEntropy(CrossEntropyLaunch l, bool are_warps) {
  using A = Compute<T>;
  const Team team = MyTeam(are_warps);
  const int64_t size = l.labels.here;
  for (int64_t row = team.row; row < l.labels.rows; row += team.row_step) {
    const T* logits = static_cast<const T*>(l.logits) + row * size;
    const T* probabilities = static_cast<const T*>(l.probabilities) + row * size;
    const A max = Load(static_cast<const T*>(l.max) + row);
    const A log_sum = fn::Log(Load(static_cast<const T*>(l.sum) + row));
    A sum = 0;
    for (int64_t i = team.lane * kPack; i < size; i += int64_t{team.size} * kPack) {
      A values[kPack], shares[kPack];
      LoadPack<kPack>(logits + i, values);
      LoadPack<kPack>(probabilities + i, shares);
      for (int j = 0; j < kPack; ++j) sum += shares[j] * (log_sum + (max - values[j]));
    }
    sum = TeamSum(team, sum);
    if (team.lane == 0) Store(static_cast<T*>(l.out) + row, sum);
  }
}

template <class T, int kPack>
__global__ void __launch_bounds__(kThreads) CrossEntropyGrad(CrossEntropyLaunch l, bool are_warps) {
  using A = Compute<T>;
  const Team team = MyTeam(are_warps);
  const int64_t size = l.labels.here;
  for (int64_t row = team.row; row < l.labels.rows; row += team.row_step) {
    const int64_t at = row * size;
    const A max = Load(static_cast<const T*>(l.max) + row);
    const A dloss = Load(static_cast<const T*>(l.dloss) + row);
    const A factor = dloss / Load(static_cast<const T*>(l.sum) + row);
    for (int64_t i = team.lane * kPack; i < size; i += int64_t{team.size} * kPack) {
      A values[kPack], shares[kPack];
      LoadPack<kPack>(static_cast<const T*>(l.logits) + at + i, values);
      LoadPack<kPack>(static_cast<const T*>(l.probabilities) + at + i, shares);
      for (int j = 0; j < kPack; ++j) {
        values[j] = factor * FastExp(values[j] - max) - shares[j] * dloss;
      }
      StorePack<kPack>(static_cast<T*>(l.out) + at + i, values);
    }
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) Nll(Queue queue, NllLaunch l) {
  for (int64_t row = FirstIndex(); row < l.labels.rows; row += IndexStep()) {
    const Label label = LabelOf(queue, l.labels, row, /*notes=*/true);
    Compute<T> value = 0;
    if (label.local >= 0)
      value = -Load(static_cast<const T*>(l.x) + row * l.labels.here + label.local);
    Store(static_cast<T*>(l.out) + row, value);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) NllGrad(Queue queue, NllLaunch l, bool are_warps) {
  const Team team = MyTeam(are_warps);
  for (int64_t row = team.row; row < l.labels.rows; row += team.row_step) {
    const Label label = LabelOf(queue, l.labels, row, team.lane == 0);
    const Compute<T> value = -Load(static_cast<const T*>(l.x) + row);
    T* out = static_cast<T*>(l.out) + row * l.labels.here;
    for (int64_t i = team.lane; i < l.labels.here; i += team.size) {
      Store(out + i, i == label.local ? value : Compute<T>(0));
    }
  }
}

Error LaunchSoftmax(const Queue& queue, const SoftmaxLaunch& l) {
  const Teams teams = TeamsFor(queue, l.rows, l.size);
  const bool is_packed = FitsPacks(l.type, l.size) && IsAligned(l.x) && IsAligned(l.y);
  return VisitPacks(l.type, is_packed, [&](auto type, auto pack) {
    return LaunchBlocks(queue, teams.blocks, teams.threads, Softmax<decltype(type), pack.kSize>, l,
                        teams.are_warps);
  });
}

Error LaunchSoftmaxGrad(const Queue& queue, const SoftmaxLaunch& l) {
  const Teams teams = TeamsFor(queue, l.rows, l.size);
  const bool is_packed =
      FitsPacks(l.type, l.size) && IsAligned(l.y) && IsAligned(l.dy) && IsAligned(l.dx);
  return VisitPacks(l.type, is_packed, [&](auto type, auto pack) {
    return LaunchBlocks(queue, teams.blocks, teams.threads, SoftmaxGrad<decltype(type), pack.kSize>,
                        l, teams.are_warps);
  });
}

Error LaunchSumExp(const Queue& queue, const SumExpLaunch& l) {
  const Teams teams = TeamsFor(queue, l.rows, l.size);
  return VisitPacks(l.type, FitsPacks(l.type, l.size) && IsAligned(l.x), [&](auto type, auto pack) {
    return LaunchBlocks(queue, teams.blocks, teams.threads, SumExp<decltype(type), pack.kSize>, l,
                        teams.are_warps);
  });
}

Error LaunchCrossEntropy(const Queue& queue, const CrossEntropyLaunch& l) {
  const Teams teams = TeamsFor(queue, l.labels.rows, l.labels.here);
  if (l.labels.data != nullptr) {
    return VisitFloating(l.type, [&](auto type) {
      return LaunchBlocks(queue, teams.blocks, teams.threads, SparseCrossEntropy<decltype(type)>,
                          queue, l, teams.are_warps);
    });
  }
  const bool is_packed =
      FitsPacks(l.type, l.labels.here) && IsAligned(l.logits) && IsAligned(l.probabilities);
  return VisitPacks(l.type, is_packed, [&](auto type, auto pack) {
    return LaunchBlocks(queue, teams.blocks, teams.threads,
                        CrossEntropy<decltype(type), pack.kSize>, l, teams.are_warps);
  });
}

Error LaunchCrossEntropyGrad(const Queue& queue, const CrossEntropyLaunch& l) {
  const Teams teams = TeamsFor(queue, l.labels.rows, l.labels.here);
  const bool is_packed = FitsPacks(l.type, l.labels.here) && IsAligned(l.logits) &&
                         IsAligned(l.out) && IsAligned(l.probabilities);
  return VisitPacks(l.type, is_packed, [&](auto type, auto pack) {
    using T = decltype(type);
    if (l.labels.data == nullptr) {
      return LaunchBlocks(queue, teams.blocks, teams.threads, CrossEntropyGrad<T, pack.kSize>, l,
                          teams.are_warps);
    }
    return LaunchBlocks(queue, teams.blocks, teams.threads, SparseCrossEntropyGrad<T, pack.kSize>,
                        queue, l, teams.are_warps);
  });
}

Error LaunchNll(const Queue& queue, const NllLaunch& l) {
  return VisitFloating(l.type, [&](auto type) {
    return Launch(queue, BlocksFor(queue, l.labels.rows), kThreads, Nll<decltype(type)>, queue, l);
  });
}

Error LaunchNllGrad(const Queue& queue, const NllLaunch& l) {
  const Teams teams = TeamsFor(queue, l.labels.rows, l.labels.here);
  return VisitFloating(l.type, [&](auto type) {
    return Launch(queue, teams.blocks, teams.threads, NllGrad<decltype(type)>, queue, l,
                  teams.are_warps);
  });
}

}  // namespace

SoftmaxTable MakeSoftmaxTable() {
  return {.softmax = LaunchSoftmax,
          .softmax_grad = LaunchSoftmaxGrad,
          .sum_exp = LaunchSumExp,
          .cross_entropy = LaunchCrossEntropy,
          .cross_entropy_grad = LaunchCrossEntropyGrad,
          .nll = LaunchNll,
          .nll_grad = LaunchNllGrad};
}

}  // namespace braid::cuda
