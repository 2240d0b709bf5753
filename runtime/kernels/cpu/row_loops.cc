// Sums, extremes and products of rows, of columns, and of two rows.
#include "runtime/kernels/cpu/row_loops.h"

#include "runtime/kernels/cpu/simd/define_loops.h"
#include "runtime/kernels/cpu/simd/row_sums.h"

namespace braid::simd {
namespace BRAID_ISA {

template <class T>
T SumSquareLoop(const T* x, int64_t n) {
  return SumOf<T>(n, [=](int64_t i) { return x[i] * x[i]; });
}
template <class T>
T SumAbsLoop(const T* x, int64_t n) {
  return SumOf<T>(n, [=](int64_t i) { return Abs(x[i]); });
}
template <class T>
T ProductLoop(const T* x, int64_t n) {
  return Reduce<Mul, T>(n, T{1}, [=](int64_t i) { return x[i]; });
}

struct Itself {
  template <class T>
  BRAID_INLINE T F(T x, T) {
    return x;
  }
};

// Columns that the registers hold the sums of.
template <class T>
inline constexpr int kColumns = 2 * kLanes<T>;

// sum[j] += Op's result, row by row, of a row's first `width` elements.
template <class Op, class T>
BRAID_INLINE void AddColumns(const T* x, int64_t rows, int64_t stride, T (&sum)[kColumns<T>],
                             int width) {
  if (width == kColumns<T>) {
    for (int64_t row = 0; row < rows; ++row) {
      for (int j = 0; j < kColumns<T>; ++j) sum[j] += Op::F(x[row * stride + j], T{0});
    }
  } else {
    for (int64_t row = 0; row < rows; ++row) {
      for (int j = 0; j < width; ++j) sum[j] += Op::F(x[row * stride + j], T{0});
    }
  }
}

// The sums over rows of Op's results.
template <class Op, class T>
void SumRowsLoop(const T* x, int64_t rows, int64_t stride, T* out, int64_t n) {
  constexpr int kTile = kColumns<T>;
  for (int64_t column = 0; column < n; column += kTile) {
    const int width = static_cast<int>(n - column < kTile ? n - column : kTile);
    double total[kTile];
    for (int j = 0; j < kTile; ++j) total[j] = 0;
    for (int64_t begin = 0; begin < rows; begin += kSumRowBlock) {
      T sum[kTile];
      for (int j = 0; j < kTile; ++j) sum[j] = 0;
      const int64_t block = rows - begin < kSumRowBlock ? rows - begin : kSumRowBlock;
      AddColumns<Op, T>(x + begin * stride + column, block, stride, sum, width);
      for (int j = 0; j < kTile; ++j) total[j] += static_cast<double>(sum[j]);
    }
    for (int j = 0; j < width; ++j) out[column + j] = static_cast<T>(total[j]);
  }
}

template <class T>
void AddRowsLoop(const T* x, int64_t rows, int64_t stride, T* out, int64_t n) {
  constexpr int kTile = kColumns<T>;
  for (int64_t column = 0; column < n; column += kTile) {
    const int width = static_cast<int>(n - column < kTile ? n - column : kTile);
    T sum[kTile];
    for (int j = 0; j < width; ++j) sum[j] = out[column + j];
    AddColumns<Itself, T>(x + column, rows, stride, sum, width);
    for (int j = 0; j < width; ++j) out[column + j] = sum[j];
  }
}

template <class T>
void AddScaledLoop(const T* x, T factor, T* y, int64_t n) {
  BRAID_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) y[i] += factor * x[i];
}

template <class T>
constexpr RowLoops<T> kRowLoops = {.sum = SumLoop<T>,
                                   .max = MaxLoop<T>,
                                   .min = MinLoop<T>,
                                   .sum_square = SumSquareLoop<T>,
                                   .sum_abs = SumAbsLoop<T>,
                                   .product = ProductLoop<T>,
                                   .sum_rows = SumRowsLoop<Itself, T>,
                                   .sum_square_rows = SumRowsLoop<Square, T>,
                                   .sum_abs_rows = SumRowsLoop<AbsOp, T>,
                                   .add_rows = AddRowsLoop<T>,
                                   .dot = DotLoop<T>,
                                   .add_scaled = AddScaledLoop<T>};

}  // namespace BRAID_ISA

BRAID_DEFINE_LOOPS(RowLoops<float>, BRAID_ISA::kRowLoops<float>)
BRAID_DEFINE_LOOPS(RowLoops<double>, BRAID_ISA::kRowLoops<double>)

}  // namespace braid::simd
