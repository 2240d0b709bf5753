// Kernels of pooling: a thread for each window, and in gradients one for each element of x, which
// adds up what the windows that read it give.
#include <cmath>

#include "runtime/kernels/cuda/device_code.h"
#include "runtime/kernels/cuda/divisor.h"
#include "runtime/kernels/cuda/pooling.h"

namespace braid::cuda {
namespace {

struct Pooling {
  PoolAxis axes[3];
  PoolDivisor divisor;
  int64_t planes;
  LongDivisor channels;                    // that lie beside each other
  LongDivisor x_plane, y_plane;            // elements of a plane
  Divisor x_slice, x_row, y_slice, y_row;  // the inner two axes, and the innermost one
};

Pooling PoolingOf(const PoolLaunch& launch) {
  // Nothing is looked for where there is nothing.
  const auto size_of = [](int64_t size) { return size < 1 ? 1 : size; };
  const auto divisor = [&](int64_t size) { return MakeDivisor(size_of(size)); };
  const PoolAxis* axes = launch.axes;
  Pooling pooling = {.divisor = launch.divisor,
                     .planes = launch.planes,
                     .channels = MakeLongDivisor(launch.channels),
                     .x_plane = MakeLongDivisor(size_of(launch.x_plane())),
                     .y_plane = MakeLongDivisor(size_of(launch.y_plane())),
                     .x_slice = divisor(int64_t{axes[1].size} * axes[2].size),
                     .x_row = divisor(axes[2].size),
                     .y_slice = divisor(int64_t{axes[1].windows} * axes[2].windows),
                     .y_row = divisor(axes[2].windows)};
  for (int i = 0; i < 3; ++i) pooling.axes[i] = axes[i];
  return pooling;
}

// An element of x or of y: of which plane, and where in it.
struct Place {
  int64_t image;    // that its plane is of, or with channels of their own, the plane
  int64_t channel;  // among those beside each other
  int32_t in_plane;
  int32_t at[3];
};
__device__ __forceinline__ Place PlaceOf(int64_t i, const LongDivisor& channels,
                                         const LongDivisor& plane, const Divisor& slice,
                                         const Divisor& row) {
  Place place;
  place.channel = 0;
  if (channels.divisor > 1) {
    const int64_t pixel = Quotient(i, channels);
    place.channel = i - pixel * channels.divisor;
    i = pixel;
  }
  place.image = Quotient(i, plane);
  place.in_plane = static_cast<int32_t>(i - place.image * plane.divisor);
  place.at[0] = Quotient(place.in_plane, slice);
  const int32_t rest = Remainder(place.in_plane, place.at[0], slice);
  place.at[1] = Quotient(rest, row);
  place.at[2] = Remainder(rest, place.at[1], row);
  return place;
}

__device__ __forceinline__ Place ElementOfX(const Pooling& pooling, int64_t i) {
  return PlaceOf(i, pooling.channels, pooling.x_plane, pooling.x_slice, pooling.x_row);
}
__device__ __forceinline__ Place ElementOfY(const Pooling& pooling, int64_t i) {
  return PlaceOf(i, pooling.channels, pooling.y_plane, pooling.y_slice, pooling.y_row);
}

// The plane that a place is in: its element e is at operator[](e).
struct Plane {
  int64_t first, step;
  __device__ __forceinline__ int64_t operator[](int64_t element) const {
    return first + element * step;
  }
};
__device__ __forceinline__ Plane PlaneOf(const Pooling& pooling, const Place& place,
                                         const LongDivisor& plane) {
  return {place.image * plane.divisor * pooling.channels.divisor + place.channel,
          pooling.channels.divisor};
}

// What a window reads on an axis: first, first + step, ..., `count` of them, and what it is divided
// by there.
struct Elements {
  int32_t first, count, step, divisor;
};

__device__ __forceinline__ Elements ElementsOf(const PoolAxis& axis, int32_t window,
                                               PoolDivisor divisor) {
  Elements elements;
  if (axis.is_adaptive) {
    const int64_t size = axis.size;
    elements.first = static_cast<int32_t>(window * size / axis.windows);
    elements.count = static_cast<int32_t>(((window + 1) * size + axis.windows - 1) / axis.windows) -
                     elements.first;
    elements.step = 1;
    elements.divisor = elements.count;
    return elements;
  }
  const int64_t start = static_cast<int64_t>(window) * axis.stride - axis.pad_begin;
  const int64_t step = axis.dilation;
  const auto steps = [step](int64_t distance) { return step == 1 ? distance : distance / step; };
  const int64_t skipped = start >= 0 ? 0 : steps(-start + step - 1);
  const int64_t limit = start >= axis.size ? 0 : steps(axis.size - 1 - start) + 1;
  const int64_t last = limit < axis.kernel ? limit : axis.kernel;
  elements.first = static_cast<int32_t>(start + skipped * step);
  elements.count = last > skipped ? static_cast<int32_t>(last - skipped) : 0;
  elements.step = axis.dilation;
  // Taps on padding count, those that ceil_mode puts beyond it do not.
  int64_t taps = elements.count;
  if (divisor != PoolDivisor::kElements) {
    const int64_t inside = steps(axis.size + axis.pad_end - 1 - start) + 1;
    taps = inside < axis.kernel ? inside : axis.kernel;
  }
  elements.divisor = taps > 1 ? static_cast<int32_t>(taps) : 1;
  return elements;
}

// The windows [first, last] that may read an element of an axis.
struct Windows {
  int32_t first, last;
};
__device__ __forceinline__ Windows WindowsOf(const PoolAxis& axis, int32_t element) {
  Windows windows;
  if (axis.is_adaptive) {
    const int64_t count = axis.windows;
    windows.first = static_cast<int32_t>(element * count / axis.size);
    windows.last = static_cast<int32_t>(((element + 1) * count + axis.size - 1) / axis.size) - 1;
  } else {
    const int64_t end = static_cast<int64_t>(element) + axis.pad_begin;
    const int64_t begin = end - static_cast<int64_t>(axis.kernel - 1) * axis.dilation;
    windows.first = begin <= 0 ? 0 : static_cast<int32_t>((begin + axis.stride - 1) / axis.stride);
    windows.last = static_cast<int32_t>(end / axis.stride);
  }
  if (windows.last > axis.windows - 1) windows.last = axis.windows - 1;
  return windows;
}
// Whether one of these windows does read it: a tap may step over it.
__device__ __forceinline__ bool Reads(const PoolAxis& axis, int32_t window, int32_t element) {
  if (axis.is_adaptive || axis.dilation == 1) return true;
  return (element + static_cast<int64_t>(axis.pad_begin) -
          static_cast<int64_t>(window) * axis.stride) %
             axis.dilation ==
         0;
}

// f(position in the plane) for each element that the window reads, row by row.
template <class F>
__device__ __forceinline__ void ForEachElement(const PoolAxis* axes, const Elements (&of)[3], F f) {
  for (int32_t i = 0; i < of[0].count; ++i) {
    const int32_t slice = (of[0].first + i * of[0].step) * axes[1].size;
    for (int32_t j = 0; j < of[1].count; ++j) {
      int32_t at = (slice + of[1].first + j * of[1].step) * axes[2].size + of[2].first;
      for (int32_t k = 0; k < of[2].count; ++k, at += of[2].step) f(at);
    }
  }
}
// f(window) for each window that may read the element, row by row.
template <class F>
__device__ __forceinline__ void ForEachWindow(const PoolAxis* axes, const Place& element, F f) {
  const Windows outer = WindowsOf(axes[0], element.at[0]);
  const Windows middle = WindowsOf(axes[1], element.at[1]);
  const Windows inner = WindowsOf(axes[2], element.at[2]);
  for (int32_t i = outer.first; i <= outer.last; ++i) {
    if (!Reads(axes[0], i, element.at[0])) continue;
    for (int32_t j = middle.first; j <= middle.last; ++j) {
      if (!Reads(axes[1], j, element.at[1])) continue;
      for (int32_t k = inner.first; k <= inner.last; ++k) {
        if (Reads(axes[2], k, element.at[2])) f(i, j, k);
      }
    }
  }
}

// Of each window the largest element, of equal ones the first, and where it is; a NaN counts as the
// largest. What is null is not wanted.
template <class T>
__global__ void __launch_bounds__(kThreads)
    FindLargest(Pooling pooling, const T* x, T* y, int64_t* indices, int32_t* positions) {
  const int64_t n = pooling.planes * pooling.y_plane.divisor;
  for (int64_t i = FirstIndex(); i < n; i += IndexStep()) {
    const Place window = ElementOfY(pooling, i);
    const Plane plane = PlaneOf(pooling, window, pooling.x_plane);
    Elements elements[3];
    for (int axis = 0; axis < 3; ++axis) {
      elements[axis] = ElementsOf(pooling.axes[axis], window.at[axis], PoolDivisor::kElements);
    }
    Compute<T> most = -static_cast<Compute<T>>(HUGE_VAL);
    int32_t position = -1;
    ForEachElement(pooling.axes, elements, [&](int32_t at) {
      const Compute<T> value = Load(x + plane[at]);
      // The first element is taken even if it is -inf.
      const bool is_more = value > most || (value != value && most == most) || position < 0;
      most = is_more ? value : most;
      position = is_more ? at : position;
    });
    if (y != nullptr) Store(y + i, most);
    if (indices != nullptr) {  // which are plane by plane
      const int64_t at = window.image * pooling.channels.divisor + window.channel;
      indices[at * pooling.y_plane.divisor + window.in_plane] = position;
    }
    if (positions != nullptr) positions[i] = position;
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads, 2)
    MaxGradient(Pooling pooling, const int32_t* positions, const T* dy, T* dx) {
  const int64_t n = pooling.planes * pooling.x_plane.divisor;
  for (int64_t i = FirstIndex(); i < n; i += IndexStep()) {
    const Place element = ElementOfX(pooling, i);
    const Plane plane = PlaneOf(pooling, element, pooling.y_plane);
    Compute<T> sum = 0;
    ForEachWindow(pooling.axes, element, [&](int32_t outer, int32_t middle, int32_t inner) {
      const int64_t window =
          plane[(static_cast<int64_t>(outer) * pooling.axes[1].windows + middle) *
                    pooling.axes[2].windows +
                inner];
      if (positions[window] == element.in_plane) sum += Load(dy + window);
    });
    Store(dx + i, sum);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) Average(Pooling pooling, const T* x, T* y) {
  const int64_t n = pooling.planes * pooling.y_plane.divisor;
  for (int64_t i = FirstIndex(); i < n; i += IndexStep()) {
    const Place window = ElementOfY(pooling, i);
    const Plane plane = PlaneOf(pooling, window, pooling.x_plane);
    Elements elements[3];
    Compute<T> divisor = 1;
    for (int axis = 0; axis < 3; ++axis) {
      elements[axis] = ElementsOf(pooling.axes[axis], window.at[axis], pooling.divisor);
      divisor *= static_cast<Compute<T>>(elements[axis].divisor);
    }
    Compute<T> sum = 0;
    ForEachElement(pooling.axes, elements, [&](int32_t at) { sum += Load(x + plane[at]); });
    Store(y + i, pooling.divisor == PoolDivisor::kOne ? sum : sum / divisor);
  }
}

// The same where windows are large: a warp for each.
template <class T>
__global__ void __launch_bounds__(kThreads) AverageByWarps(Pooling pooling, const T* x, T* y) {
  const int64_t n = pooling.planes * pooling.y_plane.divisor;
  const int lane = threadIdx.x % 32;
  for (int64_t i = FirstIndex() / 32; i < n; i += IndexStep() / 32) {
    const Place window = ElementOfY(pooling, i);
    const Plane plane = PlaneOf(pooling, window, pooling.x_plane);
    Elements elements[3];
    Compute<T> divisor = 1;
    for (int axis = 0; axis < 3; ++axis) {
      elements[axis] = ElementsOf(pooling.axes[axis], window.at[axis], pooling.divisor);
      divisor *= static_cast<Compute<T>>(elements[axis].divisor);
    }
    const int32_t row = elements[2].count, slice = elements[1].count * row;
    const int32_t count = elements[0].count * slice;
    Compute<T> sum = 0;
    for (int32_t e = lane; e < count; e += 32) {
      const int32_t outer = e / slice, middle = e % slice / row, inner = e % row;
      const int32_t line = (elements[0].first + outer * elements[0].step) * pooling.axes[1].size +
                           elements[1].first + middle * elements[1].step;
      const int32_t at = line * pooling.axes[2].size + elements[2].first + inner * elements[2].step;
      sum += Load(x + plane[at]);
    }
    sum = WarpJoin(sum, SumOf());
    if (lane == 0) Store(y + i, pooling.divisor == PoolDivisor::kOne ? sum : sum / divisor);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads, 2)
    AverageGradient(Pooling pooling, const T* dy, T* dx) {
  const int64_t n = pooling.planes * pooling.x_plane.divisor;
  for (int64_t i = FirstIndex(); i < n; i += IndexStep()) {
    const Place element = ElementOfX(pooling, i);
    const Plane plane = PlaneOf(pooling, element, pooling.y_plane);
    Compute<T> sum = 0;
    ForEachWindow(pooling.axes, element, [&](int32_t outer, int32_t middle, int32_t inner) {
      const int32_t at[3] = {outer, middle, inner};
      Compute<T> divisor = 1;
      int32_t window = 0;
      for (int axis = 0; axis < 3; ++axis) {
        window = window * pooling.axes[axis].windows + at[axis];
        if (pooling.divisor == PoolDivisor::kOne) continue;
        divisor *= static_cast<Compute<T>>(
            ElementsOf(pooling.axes[axis], at[axis], pooling.divisor).divisor);
      }
      sum += Load(dy + plane[window]) / divisor;
    });
    Store(dx + i, sum);
  }
}

Error LaunchMax(const Queue& queue, const PoolLaunch& launch) {
  const int64_t n = launch.planes * launch.y_plane();
  if (n == 0) return kDone;
  return VisitFloating(launch.dtype, [&](auto of_type) {
    using T = decltype(of_type);
    return Launch(queue, BlocksFor(queue, n), kThreads, FindLargest<T>, PoolingOf(launch),
                  static_cast<const T*>(launch.x), static_cast<T*>(launch.result), launch.indices,
                  nullptr);
  });
}

// Finds the largest elements again, which saves keeping their positions from the forward pass.
Error LaunchMaxGradient(const Queue& queue, const PoolLaunch& launch) {
  const int64_t windows = launch.planes * launch.y_plane();
  const int64_t elements = launch.planes * launch.x_plane();
  if (elements == 0) return kDone;
  return VisitFloating(launch.dtype, [&](auto of_type) {
    using T = decltype(of_type);
    auto* positions = static_cast<int32_t*>(launch.work);
    const Error error =
        Launch(queue, BlocksFor(queue, windows), kThreads, FindLargest<T>, PoolingOf(launch),
               static_cast<const T*>(launch.x), nullptr, nullptr, positions);
    if (error != kDone) return error;
    return Launch(queue, BlocksFor(queue, elements), kThreads, MaxGradient<T>, PoolingOf(launch),
                  positions, static_cast<const T*>(launch.dy), static_cast<T*>(launch.result));
  });
}

Error LaunchAverage(const Queue& queue, const PoolLaunch& launch) {
  const int64_t n = launch.planes * launch.y_plane();
  if (n == 0) return kDone;
  constexpr int64_t kLarge = 64;  // elements of a window, more or less
  return VisitFloating(launch.dtype, [&](auto of_type) {
    using T = decltype(of_type);
    const auto* x = static_cast<const T*>(launch.x);
    auto* y = static_cast<T*>(launch.result);
    int64_t elements = 1;
    for (const PoolAxis& axis : launch.axes) {
      elements *= axis.is_adaptive ? axis.size / axis.windows : axis.kernel;
    }
    if (elements < kLarge) {
      return Launch(queue, BlocksFor(queue, n), kThreads, Average<T>, PoolingOf(launch), x, y);
    }
    return LaunchBlocks(queue, BlocksFor(queue, 32 * n), kThreads, AverageByWarps<T>,
                        PoolingOf(launch), x, y);
  });
}

Error LaunchAverageGradient(const Queue& queue, const PoolLaunch& launch) {
  const int64_t elements = launch.planes * launch.x_plane();
  if (elements == 0) return kDone;
  return VisitFloating(launch.dtype, [&](auto of_type) {
    using T = decltype(of_type);
    return Launch(queue, BlocksFor(queue, elements), kThreads, AverageGradient<T>,
                  PoolingOf(launch), static_cast<const T*>(launch.dy),
                  static_cast<T*>(launch.result));
  });
}

}  // namespace

PoolingTable MakePoolingTable() {
  return {.max = LaunchMax,
          .max_grad = LaunchMaxGradient,
          .average = LaunchAverage,
          .average_grad = LaunchAverageGradient};
}

}  // namespace braid::cuda
