// Products of small matrices, for kernels that keep them in cache.
//
// A block of rows by a few vectors of columns of the result stays in registers while k runs; its
// terms are added one by one, so that an element depends on its row and column alone.
#include "runtime/kernels/cpu/product_loops.h"

#include "runtime/kernels/cpu/simd/define_loops.h"
#include "runtime/kernels/cpu/simd/registers.h"
#include "runtime/kernels/functions/element_ops.h"

namespace braid::simd {
namespace BRAID_ISA {

inline constexpr int kBlockRows = kVectorBytes == 64 ? 8 : 4;  // there are 32 registers, or 16
inline constexpr int kBlockVectors = 2;
inline constexpr int kMostVectors = kVectorBytes == 64 ? 3 : 2;  // where they divide the columns

template <class T, int rows, int vectors>
BRAID_INLINE void ProductBlock(const SmallProduct<T>& p, int64_t row, int64_t column) {
  using Vector = typename VectorOf<T>::Type;
  const T* a = p.a + row * p.a_row;
  const T* b = p.b + column;
  T* c = p.c + row * p.c_row + column;
  Vector sum[rows][vectors];
  for (int r = 0; r < rows; ++r) {
    for (int v = 0; v < vectors; ++v) {
      sum[r][v] = Vector{};
      if (p.adds) __builtin_memcpy(&sum[r][v], c + r * p.c_row + v * kVectorSize<T>, kVectorBytes);
    }
  }
  for (int64_t k = 0; k < p.k; ++k) {
    Vector y[vectors];
    for (int v = 0; v < vectors; ++v) {
      __builtin_memcpy(&y[v], b + v * kVectorSize<T>, kVectorBytes);
    }
    for (int r = 0; r < rows; ++r) {
      const Vector x = a[r * p.a_row] - Vector{};
      for (int v = 0; v < vectors; ++v) sum[r][v] += x * y[v];
    }
    a += p.a_step;
    b += p.b_row;
  }
  for (int r = 0; r < rows; ++r) {
    for (int v = 0; v < vectors; ++v) {
      __builtin_memcpy(c + r * p.c_row + v * kVectorSize<T>, &sum[r][v], kVectorBytes);
    }
  }
}

// The columns from `column` on, fewer than a vector.
template <class T>
inline void ProductRest(const SmallProduct<T>& p, int64_t row, int64_t column) {
  const int width = static_cast<int>(p.n - column);
  const T* a = p.a + row * p.a_row;
  const T* b = p.b + column;
  T* c = p.c + row * p.c_row + column;
  T sum[kVectorSize<T>];
  for (int j = 0; j < width; ++j) sum[j] = p.adds ? c[j] : T{0};
  for (int64_t k = 0; k < p.k; ++k) {
    BRAID_INDEPENDENT
    for (int j = 0; j < width; ++j) sum[j] += a[k * p.a_step] * b[k * p.b_row + j];
  }
  for (int j = 0; j < width; ++j) c[j] = sum[j];
}

template <class T, int rows>
BRAID_INLINE void ProductRows(const SmallProduct<T>& p, int64_t row) {
  constexpr int64_t kWide = kBlockVectors * kVectorSize<T>;
  int64_t column = 0;
  if constexpr (rows == kBlockRows && kMostVectors > kBlockVectors) {
    constexpr int64_t kWidest = kMostVectors * kVectorSize<T>;
    if (p.n % kWidest == 0) {
      for (; column < p.n; column += kWidest) ProductBlock<T, rows, kMostVectors>(p, row, column);
      return;
    }
  }
  for (; column + kWide <= p.n; column += kWide) {
    ProductBlock<T, rows, kBlockVectors>(p, row, column);
  }
  for (; column + kVectorSize<T> <= p.n; column += kVectorSize<T>) {
    ProductBlock<T, rows, 1>(p, row, column);
  }
  if (column == p.n) return;
  for (int r = 0; r < rows; ++r) ProductRest(p, row + r, column);
}

// The rows that are left, fewer than a block, half a block at a time.
template <class T, int rows>
BRAID_INLINE void ProductLastRows(const SmallProduct<T>& p, int64_t row) {
  if constexpr (rows > 0) {
    if (p.rows - row >= rows) {
      ProductRows<T, rows>(p, row);
      row += rows;
    }
    ProductLastRows<T, rows / 2>(p, row);
  }
}

template <class T>
void SmallProductLoop(const SmallProduct<T>& p) {
  int64_t row = 0;
  for (; row + kBlockRows <= p.rows; row += kBlockRows) ProductRows<T, kBlockRows>(p, row);
  ProductLastRows<T, kBlockRows / 2>(p, row);
}

// Some rows of a with some of b: a vector of sums for each pair stays in registers while k runs.
template <class T, int rows, int columns>
BRAID_INLINE void RowProductBlock(const RowProducts<T>& p, int64_t row, int64_t column) {
  using Vector = typename VectorOf<T>::Type;
  const T* a = p.a + row * p.a_row;
  const T* b = p.b + column * p.b_row;
  Vector sum[rows][columns];
  for (int r = 0; r < rows; ++r) {
    for (int j = 0; j < columns; ++j) sum[r][j] = Vector{};
  }
  int64_t k = 0;
  for (; k + kVectorSize<T> <= p.k; k += kVectorSize<T>) {
    Vector y[columns];
    for (int j = 0; j < columns; ++j) __builtin_memcpy(&y[j], b + j * p.b_row + k, kVectorBytes);
    for (int r = 0; r < rows; ++r) {
      Vector x;
      __builtin_memcpy(&x, a + r * p.a_row + k, kVectorBytes);
      for (int j = 0; j < columns; ++j) sum[r][j] += x * y[j];
    }
  }
  for (int r = 0; r < rows; ++r) {
    for (int j = 0; j < columns; ++j) {
      T total = 0;
      for (int64_t i = 0; i < kVectorSize<T>; ++i) total += sum[r][j][i];
      for (int64_t i = k; i < p.k; ++i) total += a[r * p.a_row + i] * b[j * p.b_row + i];
      p.c[(row + r) * p.c_row + column + j] = total;
    }
  }
}

template <class T, int rows>
BRAID_INLINE void RowProductRows(const RowProducts<T>& p, int64_t row) {
  constexpr int kColumns = kVectorBytes == 64 ? 3 : 2;
  int64_t column = 0;
  for (; column + kColumns <= p.n; column += kColumns) {
    RowProductBlock<T, rows, kColumns>(p, row, column);
  }
  for (; column < p.n; ++column) RowProductBlock<T, rows, 1>(p, row, column);
}

// Fewer than twice `rows` are left.
template <class T, int rows>
BRAID_INLINE void RowProductLastRows(const RowProducts<T>& p, int64_t row) {
  if constexpr (rows > 0) {
    if (p.rows - row >= rows) {
      RowProductRows<T, rows>(p, row);
      row += rows;
    }
    RowProductLastRows<T, rows / 2>(p, row);
  }
}

template <class T>
void RowProductLoop(const RowProducts<T>& p) {
  int64_t row = 0;
  for (; row + kBlockRows <= p.rows; row += kBlockRows) RowProductRows<T, kBlockRows>(p, row);
  RowProductLastRows<T, kBlockRows / 2>(p, row);
}

template <class T>
struct FourOf;
template <>
struct FourOf<float> {
  typedef float Type __attribute__((vector_size(16)));
};
template <>
struct FourOf<double> {
  typedef double Type __attribute__((vector_size(32)));
};

// A square of four by four.
template <class T>
BRAID_INLINE void TransposeSquare(const T* x, int64_t x_row, T* y, int64_t y_row) {
  using Four = typename FourOf<T>::Type;
  Four a, b, c, d;
  __builtin_memcpy(&a, x, sizeof(Four));
  __builtin_memcpy(&b, x + x_row, sizeof(Four));
  __builtin_memcpy(&c, x + 2 * x_row, sizeof(Four));
  __builtin_memcpy(&d, x + 3 * x_row, sizeof(Four));
  const Four low_ab = __builtin_shufflevector(a, b, 0, 4, 1, 5);
  const Four low_cd = __builtin_shufflevector(c, d, 0, 4, 1, 5);
  const Four high_ab = __builtin_shufflevector(a, b, 2, 6, 3, 7);
  const Four high_cd = __builtin_shufflevector(c, d, 2, 6, 3, 7);
  a = __builtin_shufflevector(low_ab, low_cd, 0, 1, 4, 5);
  b = __builtin_shufflevector(low_ab, low_cd, 2, 3, 6, 7);
  c = __builtin_shufflevector(high_ab, high_cd, 0, 1, 4, 5);
  d = __builtin_shufflevector(high_ab, high_cd, 2, 3, 6, 7);
  __builtin_memcpy(y, &a, sizeof(Four));
  __builtin_memcpy(y + y_row, &b, sizeof(Four));
  __builtin_memcpy(y + 2 * y_row, &c, sizeof(Four));
  __builtin_memcpy(y + 3 * y_row, &d, sizeof(Four));
}

// y[column * y_row + row] = x[row * x_row + column]. So many rows at a time that whole cache lines
// are written.
template <class T>
void TransposeLoop(const T* x, int64_t x_row, int64_t rows, int64_t columns, T* y, int64_t y_row) {
  constexpr int64_t kLine = 64 / sizeof(T);
  const int64_t square_rows = rows - rows % 4, square_columns = columns - columns % 4;
  for (int64_t begin = 0; begin < square_rows; begin += kLine) {
    const int64_t end = begin + kLine < square_rows ? begin + kLine : square_rows;
    for (int64_t column = 0; column < square_columns; column += 4) {
      for (int64_t row = begin; row < end; row += 4) {
        TransposeSquare(x + row * x_row + column, x_row, y + column * y_row + row, y_row);
      }
    }
  }
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = row < square_rows ? square_columns : 0; column < columns; ++column) {
      y[column * y_row + row] = x[row * x_row + column];
    }
  }
}

template <class T>
constexpr ProductLoops<T> kProductLoops = {.small_product = SmallProductLoop<T>,
                                           .row_products = RowProductLoop<T>,
                                           .transpose = TransposeLoop<T>};

}  // namespace BRAID_ISA

BRAID_DEFINE_LOOPS(ProductLoops<float>, BRAID_ISA::kProductLoops<float>)
BRAID_DEFINE_LOOPS(ProductLoops<double>, BRAID_ISA::kProductLoops<double>)

}  // namespace braid::simd
