// Rows that windows read with a stride.
#include "runtime/kernels/cpu/window_loops.h"

#include "runtime/kernels/cpu/simd/define_loops.h"
#include "runtime/kernels/functions/element_ops.h"

namespace braid::simd {
namespace BRAID_ISA {

// Calls f(i, i * stride) for i < n; the usual strides are constants there.
template <class F>
BRAID_INLINE void ForEachStrided(int64_t n, int64_t stride, F f) {
  if (stride == 1) {
    BRAID_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) f(i, i);
  } else if (stride == 2) {
    BRAID_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) f(i, 2 * i);
  } else {
    BRAID_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) f(i, i * stride);
  }
}

template <class T>
void AddStridedLoop(const T* x, int64_t stride, T* y, int64_t n) {
  ForEachStrided(
      n, stride, [=](int64_t i, int64_t at) __attribute__((always_inline)) { y[i] += x[at]; });
}

template <class T>
void MaxStridedLoop(const T* x, int64_t stride, T* y, int64_t n) {
  ForEachStrided(
      n, stride, [=](int64_t i, int64_t at) __attribute__((always_inline)) {
        y[i] = Maximum::F(y[i], x[at]);
      });
}

// A NaN counts as the largest.
template <class T>
BRAID_INLINE bool IsMore(T value, T most) {
  return (value > most) | ((value != value) & (most == most));
}

template <class T>
void ArgMaxStridedLoop(const T* x, int64_t stride, int32_t first, T* best, int32_t* index,
                       int64_t n) {
  ForEachStrided(
      n, stride, [=](int64_t i, int64_t at) __attribute__((always_inline)) {
        const T value = x[at], most = best[i];
        const int32_t before = index[i];
        // The first element is taken even if it is -inf.
        const bool is_more = IsMore(value, most) | (before < 0);
        best[i] = is_more ? value : most;
        index[i] = is_more ? first + static_cast<int32_t>(at) : before;
      });
}

// Max2x2 and its gradient join rows by twos, then neighbours: rows are short, and neighbours of all
// of them stand in one.
template <class T>
void Max2x2Loop(const T* x, int64_t rows, int64_t width, T* scratch, T* y) {
  for (int64_t row = 0; row < rows; ++row) {
    const T* upper = x + 2 * row * width;
    const T* lower = upper + width;
    T* joined = scratch + row * width;
    BRAID_INDEPENDENT
    for (int64_t i = 0; i < width; ++i) joined[i] = Maximum::F(upper[i], lower[i]);
  }
  const int64_t n = rows * width / 2;
  BRAID_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) y[i] = Maximum::F(scratch[2 * i], scratch[2 * i + 1]);
}

template <class T>
void Max2x2GradLoop(const T* x, const T* dy, int64_t rows, int64_t width, T* scratch, T* dx) {
  T* const joined = scratch;
  T* const is_lower = scratch + rows * width;
  for (int64_t row = 0; row < rows; ++row) {
    const T* upper = x + 2 * row * width;
    const T* lower = upper + width;
    T* most = joined + row * width;
    T* flags = is_lower + row * width;
    BRAID_INDEPENDENT
    for (int64_t i = 0; i < width; ++i) {
      const T a = upper[i], b = lower[i];
      const bool is_more = IsMore(b, a);
      most[i] = is_more ? b : a;
      flags[i] = is_more ? T{1} : T{0};
    }
  }
  // The gradient takes the place of the larger neighbour. Of equal ones the first in the window
  // counts, so the left one unless only that is from the lower row.
  const int64_t n = rows * width / 2;
  BRAID_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) {
    const T left = joined[2 * i], right = joined[2 * i + 1], grad = dy[i];
    const bool are_equal = (left == right) | ((left != left) & (right != right));
    const bool is_right =
        IsMore(right, left) | (are_equal & (is_lower[2 * i] > is_lower[2 * i + 1]));
    joined[2 * i] = is_right ? T{0} : grad;
    joined[2 * i + 1] = is_right ? grad : T{0};
  }
  for (int64_t row = 0; row < rows; ++row) {
    T* upper = dx + 2 * row * width;
    T* lower = upper + width;
    const T* grads = joined + row * width;
    const T* flags = is_lower + row * width;
    BRAID_INDEPENDENT
    for (int64_t i = 0; i < width; ++i) {
      upper[i] = flags[i] > 0 ? T{0} : grads[i];
      lower[i] = flags[i] > 0 ? grads[i] : T{0};
    }
  }
}

template <class T>
void ScatterStridedLoop(const T* x, T* y, int64_t stride, int64_t n) {
  ForEachStrided(
      n, stride, [=](int64_t i, int64_t at) __attribute__((always_inline)) { y[at] += x[i]; });
}

template <class T>
constexpr WindowLoops<T> kWindowLoops = {.add_strided = AddStridedLoop<T>,
                                         .max_strided = MaxStridedLoop<T>,
                                         .arg_max_strided = ArgMaxStridedLoop<T>,
                                         .scatter_strided = ScatterStridedLoop<T>,
                                         .max_2x2 = Max2x2Loop<T>,
                                         .max_2x2_grad = Max2x2GradLoop<T>};

}  // namespace BRAID_ISA

BRAID_DEFINE_LOOPS(WindowLoops<float>, BRAID_ISA::kWindowLoops<float>)
BRAID_DEFINE_LOOPS(WindowLoops<double>, BRAID_ISA::kWindowLoops<double>)

}  // namespace braid::simd
