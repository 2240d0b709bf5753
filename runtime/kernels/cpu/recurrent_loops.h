// Loops over one row of a recurrent cell.
#pragma once

#include <cstdint>

#include "runtime/kernels/cpu/simd/isa.h"

namespace braid::simd {

// What the gradients of one row of a recurrent cell are computed from.
template <class T>
struct LstmRow {
  const T *x, *r, *last_c, *c, *dh, *dc;
};
template <class T>
struct GruRow {
  const T *x, *r, *last_h, *dh;
};

template <class T>
struct RecurrentLoops {
  // One row of a recurrent cell of n units: x and r are the gates' terms from the input and from
  // the last state, [4, n] in the order i, f, g, o, and [3, n] in the order r, z, n.
  void (*lstm_cell)(const T* x, const T* r, const T* last_c, T* h, T* c, int64_t n);
  // dgates [4, n] is that of x and of r.
  void (*lstm_cell_grad)(const LstmRow<T>& row, T* dgates, T* dlast_c, int64_t n);
  void (*gru_cell)(const T* x, const T* r, const T* last_h, T* h, int64_t n);
  void (*gru_cell_grad)(const GruRow<T>& row, T* dx, T* dr, T* dlast_h, int64_t n);
};

BRAID_DECLARE_LOOPS(RecurrentLoops<float>)
BRAID_DECLARE_LOOPS(RecurrentLoops<double>)

}  // namespace braid::simd
