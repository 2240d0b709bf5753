// Kernels of what works element by element, with broadcasting: those of two and more inputs, casts
// and copies.
#include "runtime/kernels/cuda/pointwise.h"
#include "runtime/kernels/cuda/pointwise_map.h"

namespace braid::cuda {
namespace {

using simd::BinaryOp;
using simd::CompareOp;

// Functions of floats, which have to be fast, have kernels of their own.
template <class Op, class Result>
struct FloatBinary : Inputs<2> {
  using In = float;
  using Out = Result;
  static constexpr bool kIsDense = false;
  __device__ __forceinline__ explicit FloatBinary(const PointwiseLaunch& /*launch*/) {}
  __device__ __forceinline__ Out operator()(float a, float b) const { return Op::F(a, b); }
};

#define BRAID_CASE(name, Op) \
  case BinaryOp::k##name:    \
    return fn::Op::F(a, b);
#define BRAID_NO_CASE(name, Op)

// Those of other types choose at run time.
template <class T>
struct AnyBinary : Inputs<2> {
  using In = T;
  using Out = T;
  static constexpr bool kIsDense = false;
  BinaryOp op;
  __device__ __forceinline__ explicit AnyBinary(const PointwiseLaunch& launch)
      : op(static_cast<BinaryOp>(launch.op)) {}
  __device__ __forceinline__ T operator()(T a, T b) const {
    if constexpr (fn::kIsFloat<T>) {
      switch (op) {
        BRAID_BINARY_OPS(BRAID_CASE, BRAID_NO_CASE, BRAID_CASE)
        default:
          return a;
      }
    } else {
      switch (op) {
        BRAID_BINARY_OPS(BRAID_CASE, BRAID_CASE, BRAID_NO_CASE)
        default:
          return a;
      }
    }
  }
};
#undef BRAID_CASE
#undef BRAID_NO_CASE

template <class T>
struct AnyCompare : Inputs<2> {
  using In = T;
  using Out = uint8_t;
  static constexpr bool kIsDense = false;
  CompareOp op;
  __device__ __forceinline__ explicit AnyCompare(const PointwiseLaunch& launch)
      : op(static_cast<CompareOp>(launch.op)) {}
  __device__ __forceinline__ uint8_t operator()(T a, T b) const {
#define BRAID_CASE(name, Op) \
  case CompareOp::k##name:   \
    return fn::Op::F(a, b);
    switch (op) {
      BRAID_COMPARE_OPS(BRAID_CASE)
      default:
        return 0;
    }
#undef BRAID_CASE
  }
};

#define BRAID_KERNEL(name, Op) LaunchMap<FloatBinary<fn::Op, float>>,
#define BRAID_NO_KERNEL(name, Op) nullptr,
constexpr PointwiseFn kFloatBinaries[] = {
    BRAID_BINARY_OPS(BRAID_KERNEL, BRAID_NO_KERNEL, BRAID_KERNEL)};
#undef BRAID_KERNEL
#undef BRAID_NO_KERNEL

Error LaunchBinary(const Queue& queue, const PointwiseLaunch& launch) {
  switch (launch.compute) {
    case DType::kF32:
      return kFloatBinaries[launch.op](queue, launch);
    case DType::kF64:
      return LaunchMap<AnyBinary<double>>(queue, launch);
    case DType::kI32:
      return LaunchMap<AnyBinary<int32_t>>(queue, launch);
    case DType::kI64:
      return LaunchMap<AnyBinary<int64_t>>(queue, launch);
    default:
      return LaunchMap<AnyBinary<uint8_t>>(queue, launch);
  }
}

Error LaunchCompare(const Queue& queue, const PointwiseLaunch& launch) {
  switch (launch.compute) {
    case DType::kF32:
      return LaunchMap<AnyCompare<float>>(queue, launch);
    case DType::kF64:
      return LaunchMap<AnyCompare<double>>(queue, launch);
    case DType::kI32:
      return LaunchMap<AnyCompare<int32_t>>(queue, launch);
    case DType::kI64:
      return LaunchMap<AnyCompare<int64_t>>(queue, launch);
    default:
      return LaunchMap<AnyCompare<uint8_t>>(queue, launch);
  }
}

struct Logic : Inputs<2> {
  using In = uint8_t;
  using Out = uint8_t;
  static constexpr bool kIsDense = false;
  LogicOp op;
  __device__ __forceinline__ explicit Logic(const PointwiseLaunch& launch)
      : op(static_cast<LogicOp>(launch.op)) {}
  __device__ __forceinline__ uint8_t operator()(uint8_t a_byte, uint8_t b_byte) const {
    const bool a = a_byte != 0, b = b_byte != 0;
    return op == LogicOp::kAnd ? a && b : (op == LogicOp::kOr ? a || b : a != b);
  }
};
struct Not : Inputs<1> {
  using In = uint8_t;
  using Out = uint8_t;
  static constexpr bool kIsDense = true;
  __device__ __forceinline__ explicit Not(const PointwiseLaunch& /*launch*/) {}
  __device__ __forceinline__ uint8_t operator()(uint8_t x) const { return x == 0; }
};

Error LaunchLogic(const Queue& queue, const PointwiseLaunch& launch) {
  return static_cast<LogicOp>(launch.op) == LogicOp::kNot ? LaunchMap<Not>(queue, launch)
                                                          : LaunchMap<Logic>(queue, launch);
}

template <class Bits>
__global__ void __launch_bounds__(kThreads) WhereKernel(const PointwiseLaunch launch) {
  constexpr int kSize = kGroup<Bits>;
  for (int64_t g = FirstIndex(); g < launch.groups; g += IndexStep()) {
    const int64_t i = g * launch.group, left = launch.walk.elements - i;
    const int count = static_cast<int>(left < launch.group ? left : launch.group);
    const GroupPlace<3> place = PlaceOf<3>(launch.walk, i);
    uint8_t condition[kSize] = {};
    Bits a[kSize] = {}, b[kSize] = {};
    LoadPlaced(DType::kBool, launch.inputs[0], place.at[1], place.stride[1], count, condition);
    LoadPlaced(launch.compute, launch.inputs[1], place.at[2], place.stride[2], count, a);
    LoadPlaced(launch.compute, launch.inputs[2], place.at[3], place.stride[3], count, b);
    for (int j = 0; j < kSize; ++j) a[j] = condition[j] != 0 ? a[j] : b[j];
    StoreGroup(launch.out_type, launch.output, i, count, a);
  }
}

template <class Bits>
Error LaunchWhereOf(const Queue& queue, const PointwiseLaunch& launch) {
  if (launch.walk.elements == 0) return kDone;
  const PointwiseLaunch grouped = InGroups(launch, kGroup<Bits>, 3);
  return Launch(queue, BlocksFor(queue, grouped.groups), kThreads, WhereKernel<Bits>, grouped);
}

Error LaunchWhere(const Queue& queue, const PointwiseLaunch& launch) {
  switch (launch.compute) {
    case DType::kU8:
      return LaunchWhereOf<uint8_t>(queue, launch);
    case DType::kF16:
      return LaunchWhereOf<uint16_t>(queue, launch);
    case DType::kI32:
      return LaunchWhereOf<uint32_t>(queue, launch);
    default:
      return LaunchWhereOf<uint64_t>(queue, launch);
  }
}

template <class Stored, class C, int n>
__device__ __forceinline__ void StoreConverted(void* data, int64_t at, int count,
                                               const C (&values)[n]) {
  Compute<Stored> converted[n];
  for (int j = 0; j < n; ++j) converted[j] = Converted<Compute<Stored>>(values[j]);
  StoreStored<Stored>(data, at, count, converted);
}

inline constexpr int kCastGroup = 8;

// C holds what is read without loss: float what is stored as floats of at most 32 bits and coded
// numbers, double, int64_t and uint64_t the integers.
template <class C, int n>
__device__ __forceinline__ void LoadFrom(DType type, const void* data, int64_t at, int count,
                                         C (&values)[n]) {
  if constexpr (fn::kIsFloat<C>) {
    LoadGroup(type, data, at, count, values);
  } else {
    switch (type) {
      case DType::kI64:
      case DType::kU64:
        return LoadStored<C>(data, at, count, values);
      case DType::kI32:
        return LoadStored<int32_t>(data, at, count, values);
      case DType::kI8:
        return LoadStored<int8_t>(data, at, count, values);
      case DType::kI16:
        return LoadStored<int16_t>(data, at, count, values);
      case DType::kU16:
        return LoadStored<uint16_t>(data, at, count, values);
      case DType::kU32:
        return LoadStored<uint32_t>(data, at, count, values);
      default:
        break;
    }
    LoadStored<uint8_t>(data, at, count, values);
    if (type != DType::kBool) return;
    for (int j = 0; j < n; ++j) values[j] = values[j] != 0;
  }
}

template <class C, int n>
__device__ __forceinline__ void StoreTo(DType type, void* out, int64_t at, int count,
                                        const C (&values)[n]) {
  switch (type) {
    case DType::kF32:
      return StoreConverted<float>(out, at, count, values);
    case DType::kF64:
      return StoreConverted<double>(out, at, count, values);
    case DType::kBF16:
      return StoreConverted<BFloat16>(out, at, count, values);
    case DType::kF16:
      return StoreConverted<Float16>(out, at, count, values);
    case DType::kI32:
      return StoreConverted<int32_t>(out, at, count, values);
    case DType::kI64:
      return StoreConverted<int64_t>(out, at, count, values);
    case DType::kU8:
      return StoreConverted<uint8_t>(out, at, count, values);
    case DType::kI8:
      return StoreConverted<int8_t>(out, at, count, values);
    case DType::kI16:
      return StoreConverted<int16_t>(out, at, count, values);
    case DType::kU16:
      return StoreConverted<uint16_t>(out, at, count, values);
    case DType::kU32:
      return StoreConverted<uint32_t>(out, at, count, values);
    case DType::kU64:
      return StoreConverted<uint64_t>(out, at, count, values);
    default:  // bool
      break;
  }
  uint8_t is_set[n];
  for (int j = 0; j < n; ++j) is_set[j] = values[j] != C{0};
  StoreStored<uint8_t>(out, at, count, is_set);
}

template <class C>
__global__ void __launch_bounds__(kThreads) CastKernel(const PointwiseLaunch launch) {
  for (int64_t g = FirstIndex(); g < launch.groups; g += IndexStep()) {
    const int64_t i = g * launch.group, left = launch.walk.elements - i;
    const int count = static_cast<int>(left < launch.group ? left : launch.group);
    C x[kCastGroup] = {};
    LoadFrom(launch.types[0], launch.inputs[0], i, count, x);
    StoreTo(launch.out_type, launch.output, i, count, x);
  }
}

template <class C>
__device__ __forceinline__ uint8_t CodeOf(const PointwiseLaunch& launch, C value) {
  if constexpr (!fn::kIsFloat<C>) {
    if (launch.out_type >= DType::kI4) {
      return EncodeWhole(launch.out_type, static_cast<int64_t>(value));
    }
  }
  return EncodeElement(launch.out_type, static_cast<float>(value), launch.encoding);
}

// From coded numbers, to them, or both, an element at a time: coding is a loop's worth of
// instructions, and a loop over a group would keep the group in memory.
template <class C>
__global__ void __launch_bounds__(kThreads) CodedCastKernel(const PointwiseLaunch launch) {
  for (int64_t i = FirstIndex(); i < launch.walk.elements; i += IndexStep()) {
    C x[1] = {};
    if (IsCoded(launch.types[0])) {
      x[0] = DecodeElement(launch.types[0], static_cast<const uint8_t*>(launch.inputs[0])[i]);
    } else {
      LoadFrom(launch.types[0], launch.inputs[0], i, 1, x);
    }
    if (IsCoded(launch.out_type)) {
      static_cast<uint8_t*>(launch.output)[i] = CodeOf(launch, x[0]);
    } else {
      StoreTo(launch.out_type, launch.output, i, 1, x);
    }
  }
}

template <class C>
Error LaunchCastOf(const Queue& queue, const PointwiseLaunch& launch) {
  if (launch.walk.elements == 0) return kDone;
  if (IsCoded(launch.types[0]) || IsCoded(launch.out_type)) {
    return Launch(queue, BlocksFor(queue, launch.walk.elements), kThreads, CodedCastKernel<C>,
                  launch);
  }
  const PointwiseLaunch grouped = InGroups(launch, kCastGroup, 1);
  return Launch(queue, BlocksFor(queue, grouped.groups), kThreads, CastKernel<C>, grouped);
}

Error LaunchCast(const Queue& queue, const PointwiseLaunch& launch) {
  switch (launch.types[0]) {
    case DType::kF32:
    case DType::kBF16:
    case DType::kF16:
      return LaunchCastOf<float>(queue, launch);
    case DType::kF64:
      return LaunchCastOf<double>(queue, launch);
    case DType::kU64:
      return LaunchCastOf<uint64_t>(queue, launch);
    default:
      return IsCoded(launch.types[0]) ? LaunchCastOf<float>(queue, launch)
                                      : LaunchCastOf<int64_t>(queue, launch);
  }
}

__global__ void __launch_bounds__(kThreads) CopyKernel(const BytesLaunch launch, bool is_aligned) {
  if (launch.applies != nullptr && *launch.applies == 0) return;
  using Sixteen = Pack<uint32_t>;
  const int64_t packs = is_aligned ? launch.bytes / 16 : 0;
  const auto* from = static_cast<const Sixteen*>(launch.from);
  auto* to = static_cast<Sixteen*>(launch.to);
  for (int64_t i = FirstIndex(); i < packs; i += IndexStep()) to[i] = from[i];
  for (int64_t i = packs * 16 + FirstIndex(); i < launch.bytes; i += IndexStep()) {
    static_cast<uint8_t*>(launch.to)[i] = static_cast<const uint8_t*>(launch.from)[i];
  }
}

Error LaunchCopy(const Queue& queue, const BytesLaunch& launch) {
  if (launch.bytes == 0 || launch.from == launch.to) return kDone;
  const bool is_aligned = IsAligned(launch.from) && IsAligned(launch.to);
  const int64_t items = is_aligned ? launch.bytes / 16 + launch.bytes % 16 : launch.bytes;
  return Launch(queue, BlocksFor(queue, items), kThreads, CopyKernel, launch, is_aligned);
}

}  // namespace

PointwiseTable MakePointwiseTable() {
  PointwiseTable table = {.binary = LaunchBinary,
                          .compare = LaunchCompare,
                          .logic = LaunchLogic,
                          .where = LaunchWhere,
                          .cast = LaunchCast,
                          .copy = LaunchCopy};
  AddUnaryLaunches(table);
  return table;
}

}  // namespace braid::cuda
