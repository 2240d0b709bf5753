// Loops that multiply and transpose small matrices, for kernels that keep them in cache.
#pragma once

#include <cstdint>

#include "runtime/kernels/cpu/simd/isa.h"

namespace braid::simd {

// c [rows, n] = a b, or c += a b: element (row, k) of a is a[row * a_row + k * a_step], so that a
// may lie transposed; the rows of b and c are dense, b_row and c_row apart.
template <class T>
struct SmallProduct {
  int64_t rows, n, k;
  const T* a;
  int64_t a_row, a_step;
  const T* b;
  int64_t b_row;
  T* c;
  int64_t c_row;
  bool adds;
};

// c [rows, n]: element (row, column) is the product of row `row` of a and row `column` of b, both
// of k elements that lie side by side.
template <class T>
struct RowProducts {
  int64_t rows, n, k;
  const T* a;
  int64_t a_row;
  const T* b;
  int64_t b_row;
  T* c;
  int64_t c_row;
};

template <class T>
struct ProductLoops {
  // For products that stay in cache: nothing is packed. Each element's terms are added in the order
  // of k.
  void (*small_product)(const SmallProduct<T>& product);
  // For few rows: b is read once, and nothing is packed. An element depends on its two rows alone.
  void (*row_products)(const RowProducts<T>& products);
  // y[column * y_row + row] = x[row * x_row + column].
  void (*transpose)(const T* x, int64_t x_row, int64_t rows, int64_t columns, T* y, int64_t y_row);
};

BRAID_DECLARE_LOOPS(ProductLoops<float>)
BRAID_DECLARE_LOOPS(ProductLoops<double>)

}  // namespace braid::simd
