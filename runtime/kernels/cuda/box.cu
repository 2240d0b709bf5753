// Kernels that copy and combine boxes of dense tensors.
#include "runtime/kernels/cuda/box.h"
#include "runtime/kernels/cuda/device_code.h"

namespace braid::cuda {
namespace {

template <class T>
__global__ void __launch_bounds__(kThreads) CopyBox(Walk walk, const T* from, T* to) {
  for (int64_t i = FirstIndex(); i < walk.elements; i += IndexStep()) {
    const Offsets<2> offsets = OffsetsOf<2>(walk, i);
    to[offsets.at[0]] = from[offsets.at[1]];
  }
}

template <class T, class Join>
__global__ void __launch_bounds__(kThreads) CombineBox(Walk walk, const T* from, T* to, Join join) {
  for (int64_t i = FirstIndex(); i < walk.elements; i += IndexStep()) {
    const Offsets<2> offsets = OffsetsOf<2>(walk, i);
    T* const at = to + offsets.at[0];
    Store(at, join(Load(at), Load(from + offsets.at[1])));
  }
}

Error Copy(const Queue& queue, const BoxLaunch& box) {
  return VisitBytes(box.element_bytes, [&](auto type) {
    using T = decltype(type);
    return Launch(queue, BlocksFor(queue, box.walk.elements), kThreads, CopyBox<T>, box.walk,
                  static_cast<const T*>(box.from), static_cast<T*>(box.to));
  });
}

Error Combine(const Queue& queue, const BoxLaunch& box) {
  return VisitStored(box.dtype, [&](auto type) {
    using T = decltype(type);
    return VisitJoin(box.kind, [&](auto join) {
      return Launch(queue, BlocksFor(queue, box.walk.elements), kThreads,
                    CombineBox<T, decltype(join)>, box.walk, static_cast<const T*>(box.from),
                    static_cast<T*>(box.to), join);
    });
  });
}

}  // namespace

BoxTable MakeBoxTable() { return {.copy = Copy, .combine = Combine}; }

}  // namespace braid::cuda
