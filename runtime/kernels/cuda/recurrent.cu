// Kernels of cells of recurrent networks: a thread has some units of a row with all their gates.
#include "runtime/kernels/cuda/device_code.h"
#include "runtime/kernels/cuda/recurrent.h"

namespace braid::cuda {
namespace {

// Of kSize units that lie side by side.
template <class T, int kSize>
struct alignas(kSize * sizeof(T)) Units {
  T values[kSize];
};

// What a cell does to one unit. `x` and `r` are the gates' terms, `state` the other inputs.
template <class C>
struct Unit {
  const C *x, *r, *state;
  C* out;  // gates first, as the outputs are
};

struct LstmCell {
  static constexpr int kGates = 4, kStates = 1, kGateOutputs = 0, kStateOutputs = 2;
  template <class C>
  __device__ static void Compute(const Unit<C>& unit) {
    const C *x = unit.x, *r = unit.r;
    const C i = fn::Sigmoid(x[0] + r[0]), f = fn::Sigmoid(x[1] + r[1]);
    const C g = fn::Tanh(x[2] + r[2]), o = fn::Sigmoid(x[3] + r[3]);
    const C cell = f * unit.state[0] + i * g;
    unit.out[0] = o * fn::Tanh(cell);
    unit.out[1] = cell;
  }
};

// States: last_c, c, dh, dc.
struct LstmCellGrad {
  static constexpr int kGates = 4, kStates = 4, kGateOutputs = 1, kStateOutputs = 1;
  template <class C>
  __device__ static void Compute(const Unit<C>& unit) {
    const C *x = unit.x, *r = unit.r;
    const C last_c = unit.state[0], c = unit.state[1], dh = unit.state[2], dc = unit.state[3];
    const C i = fn::Sigmoid(x[0] + r[0]), f = fn::Sigmoid(x[1] + r[1]);
    const C g = fn::Tanh(x[2] + r[2]), o = fn::Sigmoid(x[3] + r[3]);
    const C t = fn::Tanh(c);
    const C dcell = dc + dh * o * (C{1} - t * t);
    unit.out[0] = dcell * g * i * (C{1} - i);
    unit.out[1] = dcell * last_c * f * (C{1} - f);
    unit.out[2] = dcell * i * (C{1} - g * g);
    unit.out[3] = dh * t * o * (C{1} - o);
    unit.out[4] = dcell * f;
  }
};

struct GruCell {
  static constexpr int kGates = 3, kStates = 1, kGateOutputs = 0, kStateOutputs = 1;
  template <class C>
  __device__ static void Compute(const Unit<C>& unit) {
    const C *x = unit.x, *r = unit.r;
    const C reset = fn::Sigmoid(x[0] + r[0]), keep = fn::Sigmoid(x[1] + r[1]);
    const C fresh = fn::Tanh(x[2] + reset * r[2]);
    unit.out[0] = fresh + keep * (unit.state[0] - fresh);
  }
};

// States: last_h, dh.
struct GruCellGrad {
  static constexpr int kGates = 3, kStates = 2, kGateOutputs = 2, kStateOutputs = 1;
  template <class C>
  __device__ static void Compute(const Unit<C>& unit) {
    const C *x = unit.x, *r = unit.r;
    const C last_h = unit.state[0], d = unit.state[1];
    const C reset = fn::Sigmoid(x[0] + r[0]), keep = fn::Sigmoid(x[1] + r[1]);
    const C fresh = fn::Tanh(x[2] + reset * r[2]);
    const C dfresh = d * (C{1} - keep) * (C{1} - fresh * fresh);
    const C dkeep = d * (last_h - fresh) * keep * (C{1} - keep);
    const C dreset = dfresh * r[2] * reset * (C{1} - reset);
    unit.out[0] = unit.out[kGates + 0] = dreset;
    unit.out[1] = unit.out[kGates + 1] = dkeep;
    unit.out[2] = dfresh;
    unit.out[kGates + 2] = dfresh * reset;
    unit.out[2 * kGates] = d * keep;
  }
};

// kSize divides the units, which are aligned for that.
template <class Cell, class T, int kSize>
__global__ void __launch_bounds__(kThreads) CellKernel(CellLaunch launch) {
  using C = Compute<T>;
  using Several = Units<T, kSize>;
  constexpr int kGates = Cell::kGates, kOutputGates = kGates * Cell::kGateOutputs;
  const int64_t steps = launch.units / kSize, all = launch.rows * steps;
  for (int64_t index = FirstIndex(); index < all; index += IndexStep()) {
    const int64_t row = index / steps;
    // Of the unit's first gate in an array of gates, counted in Several.
    const int64_t gate = row * (kGates - 1) * steps + index;
    Several x[kGates], r[kGates], state[Cell::kStates];
    for (int g = 0; g < kGates; ++g) {
      x[g] = static_cast<const Several*>(launch.inputs[0])[gate + g * steps];
      r[g] = static_cast<const Several*>(launch.inputs[1])[gate + g * steps];
    }
    for (int s = 0; s < Cell::kStates; ++s) {
      state[s] = static_cast<const Several*>(launch.inputs[2 + s])[index];
    }
    Several out[kOutputGates + Cell::kStateOutputs];
    BRAID_UNROLL
    for (int e = 0; e < kSize; ++e) {
      C x_of[kGates], r_of[kGates], state_of[Cell::kStates];
      C out_of[kOutputGates + Cell::kStateOutputs];
      for (int g = 0; g < kGates; ++g) x_of[g] = Load(&x[g].values[e]);
      for (int g = 0; g < kGates; ++g) r_of[g] = Load(&r[g].values[e]);
      for (int s = 0; s < Cell::kStates; ++s) state_of[s] = Load(&state[s].values[e]);
      Cell::Compute(Unit<C>{x_of, r_of, state_of, out_of});
      for (int k = 0; k < kOutputGates + Cell::kStateOutputs; ++k) {
        Store(&out[k].values[e], out_of[k]);
      }
    }
    for (int k = 0; k < kOutputGates; ++k) {
      static_cast<Several*>(launch.outputs[k / kGates])[gate + k % kGates * steps] = out[k];
    }
    for (int s = 0; s < Cell::kStateOutputs; ++s) {
      static_cast<Several*>(launch.outputs[Cell::kGateOutputs + s])[index] = out[kOutputGates + s];
    }
  }
}

// So many units at a time are as many as registers hold.
template <class T>
constexpr int kUnits = sizeof(T) == sizeof(double) ? 1 : 4;

template <class Cell>
Error LaunchCell(const Queue& queue, const CellLaunch& launch) {
  return VisitFloating(launch.dtype, [&](auto type) -> Error {
    using T = decltype(type);
    bool is_aligned = launch.units % kUnits<T> == 0;
    for (const void* input : launch.inputs) is_aligned = is_aligned && IsAligned(input);
    for (const void* output : launch.outputs) is_aligned = is_aligned && IsAligned(output);
    const int64_t units = launch.rows * launch.units;
    if (is_aligned) {
      return Launch(queue, BlocksFor(queue, units / kUnits<T>), kThreads,
                    CellKernel<Cell, T, kUnits<T>>, launch);
    }
    return Launch(queue, BlocksFor(queue, units), kThreads, CellKernel<Cell, T, 1>, launch);
  });
}

}  // namespace

RecurrentTable MakeRecurrentTable() {
  return {.lstm_cell = LaunchCell<LstmCell>,
          .lstm_cell_grad = LaunchCell<LstmCellGrad>,
          .gru_cell = LaunchCell<GruCell>,
          .gru_cell_grad = LaunchCell<GruCellGrad>};
}

}  // namespace braid::cuda
