// Kernels of updates of variables by optimizers. What an update's factors depend on lies on the
// device: one thread of each block computes them, for powers of doubles are costly.
#include "runtime/kernels/cuda/element_groups.h"
#include "runtime/kernels/cuda/gather.h"
#include "runtime/kernels/cuda/update.h"
#include "runtime/kernels/functions/update_ops.h"

namespace braid::cuda {
namespace {

__device__ __forceinline__ double NumberOf(const ScalarOperand& operand) {
  return LoadScalar(operand.type, operand.data);
}
// Of lars and lamb, whose learning rates have their trust ratios in them.
__device__ __forceinline__ double TrustedRate(const UpdateLaunch& launch) {
  return NumberOf(launch.learning_rate) * NumberOf(launch.ratio);
}
__device__ __forceinline__ simd::AdamParameters AdamNow(const UpdateLaunch& launch) {
  simd::AdamParameters now = launch.adam;
  const double t = NumberOf(launch.step) + 1;
  now.bias_correction1 = 1 - fn::Pow(now.beta1, t);
  now.bias_correction2 = 1 - fn::Pow(now.beta2, t);
  return now;
}

// A rule: Factors, which Now computes, and Step on one element of the variable and the states.
template <class T>
struct Sgd {
  using Element = T;
  using Factors = fn::SgdUpdate<T>;
  static constexpr int kStates = 0;
  __device__ __forceinline__ static Factors Now(const UpdateLaunch& launch) {
    simd::SgdParameters now = launch.sgd;
    now.lr = NumberOf(launch.learning_rate);
    return Factors::Of(now);
  }
  __device__ __forceinline__ static void Step(const Factors& f, T& variable, T gradient, T*, T*,
                                              T*) {
    Factors::Step(f, variable, gradient);
  }
};

template <class T, bool nesterov>
struct Momentum {
  using Element = T;
  using Factors = fn::MomentumUpdate<T, nesterov>;
  static constexpr int kStates = 1;
  __device__ __forceinline__ static Factors Now(const UpdateLaunch& launch) {
    simd::SgdParameters now = launch.sgd;
    now.lr = NumberOf(launch.learning_rate);
    return Factors::Of(now);
  }
  __device__ __forceinline__ static void Step(const Factors& f, T& variable, T gradient,
                                              T* velocity, T*, T*) {
    Factors::Step(f, variable, gradient, *velocity);
  }
};

template <class T, bool lazy>
struct Adam {
  using Element = T;
  using Factors = fn::AdamUpdate<T>;
  static constexpr int kStates = 2;
  __device__ __forceinline__ static Factors Now(const UpdateLaunch& launch) {
    simd::AdamParameters now = AdamNow(launch);
    now.lr = NumberOf(launch.learning_rate);
    return Factors::Of(now);
  }
  __device__ __forceinline__ static void Step(const Factors& f, T& variable, T gradient, T* m, T* v,
                                              T*) {
    if (lazy && gradient == T(0)) return;
    Factors::Step(f, variable, gradient, *m, *v);
  }
};

template <class T, bool centered, bool has_velocity>
struct Rmsprop {
  using Element = T;
  using Factors = fn::RmspropUpdate<T, centered, has_velocity>;
  static constexpr int kStates = 1 + (centered ? 1 : 0) + (has_velocity ? 1 : 0);
  __device__ __forceinline__ static Factors Now(const UpdateLaunch& launch) {
    simd::RmspropParameters now = launch.rmsprop;
    now.lr = NumberOf(launch.learning_rate);
    return Factors::Of(now);
  }
  __device__ __forceinline__ static void Step(const Factors& f, T& variable, T gradient, T* square,
                                              T* second, T* third) {
    Factors::Step(f, variable, gradient, *square, centered ? second : nullptr,
                  has_velocity ? (centered ? third : second) : nullptr);
  }
};

template <class T>
struct Adagrad {
  using Element = T;
  using Factors = fn::AdagradUpdate<T>;
  static constexpr int kStates = 1;
  __device__ __forceinline__ static Factors Now(const UpdateLaunch& launch) {
    simd::AdagradParameters now = launch.adagrad;
    now.lr = NumberOf(launch.learning_rate) / (1 + launch.lr_decay * NumberOf(launch.step));
    return Factors::Of(now);
  }
  __device__ __forceinline__ static void Step(const Factors& f, T& variable, T gradient, T* sum, T*,
                                              T*) {
    Factors::Step(f, variable, gradient, *sum);
  }
};

template <class T>
struct Lars {
  using Element = T;
  using Factors = fn::LarsUpdate<T>;
  static constexpr int kStates = 1;
  __device__ __forceinline__ static Factors Now(const UpdateLaunch& launch) {
    simd::SgdParameters now = launch.sgd;
    now.lr = TrustedRate(launch);
    return Factors::Of(now);
  }
  __device__ __forceinline__ static void Step(const Factors& f, T& variable, T gradient,
                                              T* velocity, T*, T*) {
    Factors::Step(f, variable, gradient, *velocity);
  }
};

template <class T>
struct Lamb {
  using Element = T;
  using Factors = fn::LambUpdate<T>;
  static constexpr int kStates = 2;
  __device__ __forceinline__ static Factors Now(const UpdateLaunch& launch) {
    simd::AdamParameters now = AdamNow(launch);
    now.lr = TrustedRate(launch);
    return Factors::Of(now);
  }
  __device__ __forceinline__ static void Step(const Factors& f, T& variable, T gradient, T* m, T* v,
                                              T*) {
    Factors::Step(f, variable, gradient, *m, *v);
  }
};

// Variables of one launch. Blocks take chunks of kThreads groups in turn, variable after variable.
inline constexpr int kMostParts = 48;
struct PartsLaunch {
  UpdateLaunch update;
  UpdatePart parts[kMostParts];
  int32_t count = 0;
  int32_t first_chunk[kMostParts + 1] = {};
};
static_assert(sizeof(PartsLaunch) <= 4096, "so much comes along with a launch");

template <class Rule>
__global__ void __launch_bounds__(kThreads) UpdateKernel(const PartsLaunch l) {
  using T = typename Rule::Element;
  constexpr int kSize = kGroup<T>, kStates = Rule::kStates;
  const UpdateLaunch& launch = l.update;
  if (launch.applies != nullptr && *launch.applies == 0) return;
  __shared__ typename Rule::Factors shared_factors;
  if (threadIdx.x == 0) shared_factors = Rule::Now(launch);
  __syncthreads();
  // They stay there: beside them the registers do not hold all that some rules take in f64.
  const typename Rule::Factors& factors = shared_factors;
  int at = 0;  // of the parts; chunks ascend
  for (int64_t chunk = blockIdx.x; chunk < l.first_chunk[l.count]; chunk += gridDim.x) {
    while (chunk >= l.first_chunk[at + 1]) ++at;
    const UpdatePart& part = l.parts[at];
    const int64_t g = (chunk - l.first_chunk[at]) * kThreads + threadIdx.x;
    if (g >= part.groups) continue;
    const int64_t i = g * part.group, left = part.elements - i;
    const int count = static_cast<int>(left < part.group ? left : part.group);
    T variable[kSize] = {}, gradient[kSize] = {}, states[kMaxUpdateStates][kSize] = {};
    LoadGroup(launch.types[0], part.variable, i, count, variable);
    LoadGroup(launch.types[1], part.gradient, i, count, gradient);
    for (int s = 0; s < kStates; ++s) {
      LoadGroup(launch.types[2 + s], part.states[s], i, count, states[s]);
    }
    for (int j = 0; j < kSize; ++j) {
      Rule::Step(factors, variable[j], gradient[j], &states[0][j], &states[1][j], &states[2][j]);
    }
    StoreGroup(launch.types[0], part.variable, i, count, variable);
    for (int s = 0; s < kStates; ++s) {
      StoreGroup(launch.types[2 + s], part.states[s], i, count, states[s]);
    }
  }
}

// In groups of `size` elements, or of one where these are not in one piece.
UpdatePart InGroups(UpdatePart part, int size, int states) {
  bool is_whole = IsAligned(part.variable) && IsAligned(part.gradient);
  for (int s = 0; s < states; ++s) is_whole = is_whole && IsAligned(part.states[s]);
  part.group = is_whole ? size : 1;
  part.groups = (part.elements + part.group - 1) / part.group;
  return part;
}

template <class Rule>
Error LaunchRule(const Queue& queue, const UpdateLaunch& launch, const UpdatePart* parts,
                 int64_t count) {
  PartsLaunch now = {.update = launch};
  for (int64_t i = 0; i < count; ++i) {
    if (parts[i].elements > 0) {
      const UpdatePart part = InGroups(parts[i], kGroup<typename Rule::Element>, Rule::kStates);
      now.parts[now.count] = part;
      now.first_chunk[now.count + 1] =
          now.first_chunk[now.count] +
          static_cast<int32_t>((part.groups + kThreads - 1) / kThreads);
      ++now.count;
    }
    if (now.count < kMostParts && i + 1 < count) continue;
    if (now.count == 0) return kDone;
    const Error error =
        LaunchBlocks(queue, BlocksFor(queue, int64_t{now.first_chunk[now.count]} * kThreads),
                     kThreads, UpdateKernel<Rule>, now);
    if (error != kDone) return error;
    now.count = 0;
  }
  return kDone;
}

template <class T>
Error LaunchUpdateOf(const Queue& queue, UpdateRule rule, const UpdateLaunch& launch,
                     const UpdatePart* parts, int64_t count) {
  switch (rule) {
    case UpdateRule::kSgd:
      return LaunchRule<Sgd<T>>(queue, launch, parts, count);
    case UpdateRule::kMomentum:
      return LaunchRule<Momentum<T, false>>(queue, launch, parts, count);
    case UpdateRule::kNesterov:
      return LaunchRule<Momentum<T, true>>(queue, launch, parts, count);
    case UpdateRule::kAdam:
      return LaunchRule<Adam<T, false>>(queue, launch, parts, count);
    case UpdateRule::kLazyAdam:
      return LaunchRule<Adam<T, true>>(queue, launch, parts, count);
    case UpdateRule::kRmsprop:
      return LaunchRule<Rmsprop<T, false, false>>(queue, launch, parts, count);
    case UpdateRule::kRmspropMomentum:
      return LaunchRule<Rmsprop<T, false, true>>(queue, launch, parts, count);
    case UpdateRule::kRmspropCentered:
      return LaunchRule<Rmsprop<T, true, false>>(queue, launch, parts, count);
    case UpdateRule::kRmspropCenteredMomentum:
      return LaunchRule<Rmsprop<T, true, true>>(queue, launch, parts, count);
    case UpdateRule::kAdagrad:
      return LaunchRule<Adagrad<T>>(queue, launch, parts, count);
    case UpdateRule::kLars:
      return LaunchRule<Lars<T>>(queue, launch, parts, count);
    case UpdateRule::kLamb:
      return LaunchRule<Lamb<T>>(queue, launch, parts, count);
  }
  return kNoSuchType;
}

Error LaunchUpdate(const Queue& queue, UpdateRule rule, const UpdateLaunch& launch,
                   const UpdatePart* parts, int64_t count) {
  return launch.is_double ? LaunchUpdateOf<double>(queue, rule, launch, parts, count)
                          : LaunchUpdateOf<float>(queue, rule, launch, parts, count);
}

// A thread for each element of a row, of those entries that are the first of theirs.
template <class Rule>
__global__ void __launch_bounds__(kThreads) RowUpdateKernel(const RowUpdateLaunch launch) {
  using T = typename Rule::Element;
  constexpr int kStates = Rule::kStates;
  const UpdateLaunch& update = launch.update;
  const UpdatePart& part = launch.part;
  if (update.applies != nullptr && *update.applies == 0) return;
  __shared__ typename Rule::Factors shared_factors;
  if (threadIdx.x == 0) shared_factors = Rule::Now(update);
  __syncthreads();
  const typename Rule::Factors& factors = shared_factors;
  for (int64_t i = FirstIndex(); i < launch.count * launch.row; i += IndexStep()) {
    const int64_t first = i / launch.row, column = i % launch.row;
    const uint64_t slot = launch.entries[first] >> 32;
    if (slot == kElsewhere || (first > 0 && launch.entries[first - 1] >> 32 == slot)) continue;
    T sum = 0;
    for (int64_t e = first; e < launch.count && launch.entries[e] >> 32 == slot; ++e) {
      const auto position = static_cast<int64_t>(launch.entries[e] & 0xffffffffu);
      T gradient[1] = {};
      LoadGroup(update.types[1], part.gradient, position * launch.row + column, 1, gradient);
      sum += gradient[0];
    }
    const int64_t at = static_cast<int64_t>(slot) * launch.row + column;
    T variable[1] = {}, states[kMaxUpdateStates][1] = {};
    LoadGroup(update.types[0], part.variable, at, 1, variable);
    for (int s = 0; s < kStates; ++s) {
      LoadGroup(update.types[2 + s], part.states[s], at, 1, states[s]);
    }
    Rule::Step(factors, variable[0], sum, &states[0][0], &states[1][0], &states[2][0]);
    StoreGroup(update.types[0], part.variable, at, 1, variable);
    for (int s = 0; s < kStates; ++s) {
      StoreGroup(update.types[2 + s], part.states[s], at, 1, states[s]);
    }
  }
}

template <class Rule>
Error LaunchRowRule(const Queue& queue, const RowUpdateLaunch& launch) {
  const int64_t elements = launch.count * launch.row;
  if (elements == 0) return kDone;
  return LaunchBlocks(queue, BlocksFor(queue, elements), kThreads, RowUpdateKernel<Rule>, launch);
}

template <class T>
Error LaunchRowUpdateOf(const Queue& queue, UpdateRule rule, const RowUpdateLaunch& launch) {
  if (rule == UpdateRule::kSgd) return LaunchRowRule<Sgd<T>>(queue, launch);
  if (rule == UpdateRule::kLazyAdam) return LaunchRowRule<Adam<T, true>>(queue, launch);
  if (rule == UpdateRule::kAdagrad) return LaunchRowRule<Adagrad<T>>(queue, launch);
  return kNoSuchType;
}

Error LaunchRowUpdate(const Queue& queue, UpdateRule rule, const RowUpdateLaunch& launch) {
  return launch.update.is_double ? LaunchRowUpdateOf<double>(queue, rule, launch)
                                 : LaunchRowUpdateOf<float>(queue, rule, launch);
}

__device__ __forceinline__ void StoreSum(const ScalarOperand& sum, double value) {
  void* to = const_cast<void*>(sum.data);
  if (sum.type == DType::kF64) {
    const double values[] = {value};
    StoreGroup(sum.type, to, 0, 1, values);
  } else {
    const float values[] = {static_cast<float>(value)};
    StoreGroup(sum.type, to, 0, 1, values);
  }
}

// Sums of a block's elements go to `parts`, or to `sum` if there is one block. Its elements depend
// on the size alone.
template <class T>
__global__ void __launch_bounds__(kThreads)
    LambSquareKernel(const UpdateLaunch launch, const UpdatePart part, double* parts,
                     const ScalarOperand sum) {
  constexpr int kSize = kGroup<T>;
  __shared__ fn::LambUpdate<T> shared_factors;
  if (threadIdx.x == 0) {
    simd::AdamParameters now = AdamNow(launch);
    shared_factors = fn::LambUpdate<T>::Of(now);
  }
  __syncthreads();
  const fn::LambUpdate<T> factors = shared_factors;
  double total = 0;
  for (int64_t g = FirstIndex(); g < part.groups; g += IndexStep()) {
    const int64_t i = g * part.group, left = part.elements - i;
    const int count = static_cast<int>(left < part.group ? left : part.group);
    T variable[kSize] = {}, gradient[kSize] = {}, m[kSize] = {}, v[kSize] = {};
    LoadGroup(launch.types[0], part.variable, i, count, variable);
    LoadGroup(launch.types[1], part.gradient, i, count, gradient);
    LoadGroup(launch.types[2], part.states[0], i, count, m);
    LoadGroup(launch.types[3], part.states[1], i, count, v);
    for (int j = 0; j < kSize; ++j) {
      if (j >= count) break;
      total += fn::LambUpdate<T>::Square(factors, variable[j], gradient[j], m[j], v[j]);
    }
  }
  total = BlockJoin(total, SumOf(), 0.0);
  if (threadIdx.x != 0) return;
  if (gridDim.x == 1) {
    StoreSum(sum, total);
  } else {
    parts[blockIdx.x] = total;
  }
}

__global__ void __launch_bounds__(kThreads)
    JoinPartsKernel(const double* parts, int count, const ScalarOperand sum) {
  double total = 0;
  for (int i = threadIdx.x; i < count; i += kThreads) total += parts[i];
  total = BlockJoin(total, SumOf(), 0.0);
  if (threadIdx.x == 0) StoreSum(sum, total);
}

template <class T>
Error LaunchLambSquareOf(const Queue& queue, const UpdateLaunch& launch, const UpdatePart& part,
                         double* parts, ScalarOperand sum) {
  const UpdatePart grouped = InGroups(part, kGroup<T>, 2);
  int64_t blocks = (grouped.groups + kThreads - 1) / kThreads;
  blocks = blocks < 1 ? 1 : (blocks < kLambSquareParts ? blocks : kLambSquareParts);
  const Error error = LaunchBlocks(queue, static_cast<unsigned>(blocks), kThreads,
                                   LambSquareKernel<T>, launch, grouped, parts, sum);
  if (error != kDone || blocks == 1) return error;
  return LaunchBlocks(queue, 1, kThreads, JoinPartsKernel, parts, static_cast<int>(blocks), sum);
}

Error LaunchLambSquare(const Queue& queue, const UpdateLaunch& launch, const UpdatePart& part,
                       double* parts, ScalarOperand sum) {
  return launch.is_double ? LaunchLambSquareOf<double>(queue, launch, part, parts, sum)
                          : LaunchLambSquareOf<float>(queue, launch, part, parts, sum);
}

}  // namespace

UpdateTable MakeUpdateTable() {
  return {.update = LaunchUpdate, .update_rows = LaunchRowUpdate, .lamb_square = LaunchLambSquare};
}

}  // namespace braid::cuda
