// Kernels of resize_axis: one makes a table of taps, the next sums by it.
#include "runtime/kernels/cuda/device_code.h"
#include "runtime/kernels/cuda/divisor.h"
#include "runtime/kernels/cuda/resize.h"

namespace braid::cuda {
namespace {

// In the work memory, by tap: those of an element of y stand side by side. An index is ~index where
// the element is outside of x.
struct TapTable {
  double* weight;
  int32_t* index;
  int32_t* range;  // by element of x: the elements of y [first, end) that it is a tap of
  int32_t per_element;

  __device__ __forceinline__ int32_t Index(int64_t tap) const {
    return index[tap] < 0 ? ~index[tap] : index[tap];
  }
};

TapTable TableOf(const ResizeLaunch& launch) {
  TapTable table;
  table.weight = static_cast<double*>(launch.work);
  table.index = reinterpret_cast<int32_t*>(table.weight + launch.num_taps());
  table.range = table.index + launch.num_taps();
  table.per_element = NumResizeTaps(launch.attrs);
  return table;
}

__global__ void __launch_bounds__(kThreads)
    MakeTaps(ResizeAttrs attrs, int64_t in, int64_t out, TapTable table) {
  for (int64_t at = FirstIndex(); at < out; at += IndexStep()) {
    const ResizeTaps<double> taps = TapsOfElement<double>(attrs, at, in, out);
    for (int i = 0; i < table.per_element; ++i) {
      const int64_t tap = at * table.per_element + i;
      const auto index = static_cast<int32_t>(taps.index[i]);
      table.weight[tap] = taps.weight[i];
      table.index[tap] = taps.is_outside ? ~index : index;
    }
  }
}

// The first element of y for which `is_reached` holds; it holds for all behind it.
template <class F>
__device__ __forceinline__ int32_t FindFirst(int32_t count, F is_reached) {
  int32_t begin = 0, end = count;
  while (begin < end) {
    const int32_t middle = begin + (end - begin) / 2;
    if (is_reached(middle)) {
      end = middle;
    } else {
      begin = middle + 1;
    }
  }
  return begin;
}

// Indices grow with y's elements, or fall where a region is cropped from its end to its beginning.
__global__ void __launch_bounds__(kThreads)
    FindRanges(int32_t in, int32_t out, bool falls, TapTable table) {
  for (int64_t i = FirstIndex(); i < in; i += IndexStep()) {
    const auto element = static_cast<int32_t>(i);
    const int64_t taps = table.per_element;
    const auto least = [&](int64_t at) { return table.Index(at * taps); };
    const auto most = [&](int64_t at) { return table.Index(at * taps + taps - 1); };
    table.range[2 * i] = FindFirst(
        out, [&](int32_t at) { return falls ? least(at) <= element : most(at) >= element; });
    table.range[2 * i + 1] = FindFirst(
        out, [&](int32_t at) { return falls ? most(at) < element : least(at) > element; });
  }
}

// Of elements of [outer, size, inner].
struct AxisDivisors {
  LongDivisor inner, size;
};
struct AxisPlace {
  int64_t outer, at, inner;
};
__device__ __forceinline__ AxisPlace PlaceOf(int64_t i, const AxisDivisors& by) {
  const int64_t line = Quotient(i, by.inner);
  const int64_t outer = Quotient(line, by.size);
  return {outer, line - outer * by.size.divisor, i - line * by.inner.divisor};
}

template <class Word>
__global__ void __launch_bounds__(kThreads)
    CopyElements(AxisDivisors y_divisors, int64_t n, int64_t in, TapTable table, const Word* x,
                 Word* y) {
  const int64_t inner = y_divisors.inner.divisor;
  for (int64_t i = FirstIndex(); i < n; i += IndexStep()) {
    const AxisPlace place = PlaceOf(i, y_divisors);
    y[i] = x[(place.outer * in + table.index[place.at]) * inner + place.inner];
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    SumTaps(AxisDivisors y_divisors, int64_t n, int64_t in, double outside, TapTable table,
            const T* x, T* y) {
  const int64_t inner = y_divisors.inner.divisor;
  for (int64_t i = FirstIndex(); i < n; i += IndexStep()) {
    const AxisPlace place = PlaceOf(i, y_divisors);
    const T* line = x + place.outer * in * inner + place.inner;
    const int64_t first = place.at * table.per_element;
    if (table.index[first] < 0) {
      Store(y + i, static_cast<Compute<T>>(outside));
      continue;
    }
    Compute<T> sum = 0;
    for (int64_t tap = first; tap < first + table.per_element; ++tap) {
      const auto weight = static_cast<Compute<T>>(table.weight[tap]);
      if (weight != 0) sum += weight * Load(line + table.index[tap] * inner);
    }
    Store(y + i, sum);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    SumGradients(AxisDivisors x_divisors, int64_t n, int64_t out, TapTable table, const T* dy,
                 T* dx) {
  const int64_t inner = x_divisors.inner.divisor;
  for (int64_t i = FirstIndex(); i < n; i += IndexStep()) {
    const AxisPlace place = PlaceOf(i, x_divisors);
    const T* line = dy + place.outer * out * inner + place.inner;
    Compute<T> sum = 0;
    for (int64_t at = table.range[2 * place.at]; at < table.range[2 * place.at + 1]; ++at) {
      const int64_t first = at * table.per_element;
      for (int64_t tap = first; tap < first + table.per_element; ++tap) {
        const auto weight = static_cast<Compute<T>>(table.weight[tap]);
        if (table.Index(tap) != place.at || weight == 0) continue;
        sum += weight * Load(line + at * inner);
      }
    }
    Store(dx + i, sum);
  }
}

AxisDivisors DivisorsOf(int64_t size, int64_t inner) {
  return {MakeLongDivisor(inner), MakeLongDivisor(size)};
}

Error LaunchTaps(const Queue& queue, const ResizeLaunch& launch) {
  return Launch(queue, BlocksFor(queue, launch.out), kThreads, MakeTaps, launch.attrs, launch.in,
                launch.out, TableOf(launch));
}

Error Resize(const Queue& queue, const ResizeLaunch& launch) {
  const int64_t n = launch.outer * launch.out * launch.inner;
  if (n == 0) return kDone;
  const Error error = LaunchTaps(queue, launch);
  if (error != kDone) return error;
  const AxisDivisors divisors = DivisorsOf(launch.out, launch.inner);
  if (launch.only_copies()) {
    return VisitBytes(launch.element_bytes, [&](auto of_size) {
      using Word = decltype(of_size);
      return Launch(queue, BlocksFor(queue, n), kThreads, CopyElements<Word>, divisors, n,
                    launch.in, TableOf(launch), static_cast<const Word*>(launch.from),
                    static_cast<Word*>(launch.to));
    });
  }
  return VisitFloating(launch.dtype, [&](auto of_type) {
    using T = decltype(of_type);
    return Launch(queue, BlocksFor(queue, n), kThreads, SumTaps<T>, divisors, n, launch.in,
                  launch.attrs.outside, TableOf(launch), static_cast<const T*>(launch.from),
                  static_cast<T*>(launch.to));
  });
}

Error ResizeGradient(const Queue& queue, const ResizeLaunch& launch) {
  const int64_t n = launch.outer * launch.in * launch.inner;
  if (n == 0) return kDone;
  if (launch.out > 0) {
    const Error error = LaunchTaps(queue, launch);
    if (error != kDone) return error;
  }
  const bool falls =
      launch.attrs.coordinates == ResizeCoordinates::kCrop && launch.attrs.end < launch.attrs.begin;
  const Error error = Launch(queue, BlocksFor(queue, launch.in), kThreads, FindRanges, launch.in,
                             launch.out, falls, TableOf(launch));
  if (error != kDone) return error;
  return VisitFloating(launch.dtype, [&](auto of_type) {
    using T = decltype(of_type);
    return Launch(queue, BlocksFor(queue, n), kThreads, SumGradients<T>,
                  DivisorsOf(launch.in, launch.inner), n, launch.out, TableOf(launch),
                  static_cast<const T*>(launch.from), static_cast<T*>(launch.to));
  });
}

}  // namespace

ResizeTable MakeResizeTable() { return {.resize = Resize, .gradient = ResizeGradient}; }

}  // namespace braid::cuda
