// Cells of recurrent layers and their gradients, a row at a time.
#include "runtime/kernels/cpu/recurrent_loops.h"

#include "runtime/kernels/cpu/simd/define_loops.h"
#include "runtime/kernels/functions/element_ops.h"

namespace braid::simd {
namespace BRAID_ISA {

template <class T>
void LstmCellLoop(const T* x, const T* r, const T* last_c, T* h, T* c, int64_t n) {
  BRAID_INDEPENDENT
  for (int64_t k = 0; k < n; ++k) {
    const T i = Sigmoid(x[k] + r[k]), f = Sigmoid(x[n + k] + r[n + k]);
    const T g = Tanh(x[2 * n + k] + r[2 * n + k]), o = Sigmoid(x[3 * n + k] + r[3 * n + k]);
    const T cell = f * last_c[k] + i * g;
    c[k] = cell;
    h[k] = o * Tanh(cell);
  }
}

template <class T>
void LstmCellGradLoop(const LstmRow<T>& row, T* dgates, T* dlast_c, int64_t n) {
  const T *x = row.x, *r = row.r, *last_c = row.last_c, *c = row.c, *dh = row.dh, *dc = row.dc;
  BRAID_INDEPENDENT
  for (int64_t k = 0; k < n; ++k) {
    const T i = Sigmoid(x[k] + r[k]), f = Sigmoid(x[n + k] + r[n + k]);
    const T g = Tanh(x[2 * n + k] + r[2 * n + k]), o = Sigmoid(x[3 * n + k] + r[3 * n + k]);
    const T t = Tanh(c[k]);
    const T dcell = dc[k] + dh[k] * o * (T{1} - t * t);
    dgates[k] = dcell * g * i * (T{1} - i);
    dgates[n + k] = dcell * last_c[k] * f * (T{1} - f);
    dgates[2 * n + k] = dcell * i * (T{1} - g * g);
    dgates[3 * n + k] = dh[k] * t * o * (T{1} - o);
    dlast_c[k] = dcell * f;
  }
}

template <class T>
void GruCellLoop(const T* x, const T* r, const T* last_h, T* h, int64_t n) {
  BRAID_INDEPENDENT
  for (int64_t k = 0; k < n; ++k) {
    const T reset = Sigmoid(x[k] + r[k]), keep = Sigmoid(x[n + k] + r[n + k]);
    const T fresh = Tanh(x[2 * n + k] + reset * r[2 * n + k]);
    h[k] = fresh + keep * (last_h[k] - fresh);
  }
}

template <class T>
void GruCellGradLoop(const GruRow<T>& row, T* dx, T* dr, T* dlast_h, int64_t n) {
  const T *x = row.x, *r = row.r, *last_h = row.last_h, *dh = row.dh;
  BRAID_INDEPENDENT
  for (int64_t k = 0; k < n; ++k) {
    const T reset = Sigmoid(x[k] + r[k]), keep = Sigmoid(x[n + k] + r[n + k]);
    const T fresh = Tanh(x[2 * n + k] + reset * r[2 * n + k]);
    const T d = dh[k];
    const T dfresh = d * (T{1} - keep) * (T{1} - fresh * fresh);
    const T dkeep = d * (last_h[k] - fresh) * keep * (T{1} - keep);
    const T dreset = dfresh * r[2 * n + k] * reset * (T{1} - reset);
    dx[k] = dreset;
    dr[k] = dreset;
    dx[n + k] = dkeep;
    dr[n + k] = dkeep;
    dx[2 * n + k] = dfresh;
    dr[2 * n + k] = dfresh * reset;
    dlast_h[k] = d * keep;
  }
}

template <class T>
constexpr RecurrentLoops<T> kRecurrentLoops = {.lstm_cell = LstmCellLoop<T>,
                                               .lstm_cell_grad = LstmCellGradLoop<T>,
                                               .gru_cell = GruCellLoop<T>,
                                               .gru_cell_grad = GruCellGradLoop<T>};

}  // namespace BRAID_ISA

BRAID_DEFINE_LOOPS(RecurrentLoops<float>, BRAID_ISA::kRecurrentLoops<float>)
BRAID_DEFINE_LOOPS(RecurrentLoops<double>, BRAID_ISA::kRecurrentLoops<double>)

}  // namespace braid::simd
