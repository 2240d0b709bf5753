// lstm_cell, gru_cell and their gradients, one fused loop per row of the batch.
#include <utility>

#include "runtime/base/status.h"
#include "runtime/kernels/cpu/families.h"
#include "runtime/kernels/cpu/make_kernel.h"
#include "runtime/kernels/cpu/recurrent_loops.h"
#include "runtime/kernels/cpu/simd/isa.h"

namespace braid::cpu {
namespace {

using KernelOr = absl::StatusOr<std::unique_ptr<Kernel>>;

constexpr int64_t kLstmGates = 4, kGruGates = 3;

struct Rows {
  int64_t count, units;
  explicit Rows(const KernelSpec& spec)
      : count(spec.inputs[2].shape()[0]), units(spec.inputs[2].shape()[1]) {}
};

template <class T>
KernelOr MakeLstmCell(const KernelSpec& spec, ElementType<T>) {
  return MakeKernel(
      [rows = Rows(spec),
       loop = simd::BestLoops<simd::RecurrentLoops<T>>().lstm_cell](const KernelRun& run) {
        for (int64_t row = 0; row < rows.count; ++row) {
          const int64_t unit = row * rows.units, gate = kLstmGates * unit;
          loop(Input<T>(run, 0) + gate, Input<T>(run, 1) + gate, Input<T>(run, 2) + unit,
               Output<T>(run, 0) + unit, Output<T>(run, 1) + unit, rows.units);
        }
      });
}

template <class T>
KernelOr MakeLstmCellGrad(const KernelSpec& spec, ElementType<T>) {
  return MakeKernel(
      [rows = Rows(spec),
       loop = simd::BestLoops<simd::RecurrentLoops<T>>().lstm_cell_grad](const KernelRun& run) {
        for (int64_t row = 0; row < rows.count; ++row) {
          const int64_t unit = row * rows.units, gate = kLstmGates * unit;
          loop({.x = Input<T>(run, 0) + gate,
                .r = Input<T>(run, 1) + gate,
                .last_c = Input<T>(run, 2) + unit,
                .c = Input<T>(run, 3) + unit,
                .dh = Input<T>(run, 4) + unit,
                .dc = Input<T>(run, 5) + unit},
               Output<T>(run, 0) + gate, Output<T>(run, 1) + unit, rows.units);
        }
      });
}

template <class T>
KernelOr MakeGruCell(const KernelSpec& spec, ElementType<T>) {
  return MakeKernel([rows = Rows(spec), loop = simd::BestLoops<simd::RecurrentLoops<T>>().gru_cell](
                        const KernelRun& run) {
    for (int64_t row = 0; row < rows.count; ++row) {
      const int64_t unit = row * rows.units, gate = kGruGates * unit;
      loop(Input<T>(run, 0) + gate, Input<T>(run, 1) + gate, Input<T>(run, 2) + unit,
           Output<T>(run, 0) + unit, rows.units);
    }
  });
}

template <class T>
KernelOr MakeGruCellGrad(const KernelSpec& spec, ElementType<T>) {
  return MakeKernel(
      [rows = Rows(spec),
       loop = simd::BestLoops<simd::RecurrentLoops<T>>().gru_cell_grad](const KernelRun& run) {
        for (int64_t row = 0; row < rows.count; ++row) {
          const int64_t unit = row * rows.units, gate = kGruGates * unit;
          loop({.x = Input<T>(run, 0) + gate,
                .r = Input<T>(run, 1) + gate,
                .last_h = Input<T>(run, 2) + unit,
                .dh = Input<T>(run, 3) + unit},
               Output<T>(run, 0) + gate, Output<T>(run, 1) + gate, Output<T>(run, 2) + unit,
               rows.units);
        }
      });
}

}  // namespace

absl::Status RegisterRecurrentKernels(KernelRegistry& registry) {
  const auto add = [&](const char* name, auto make) {
    return registry.Register(name, Widened(ForFloats(make)));
  };
  BRAID_RETURN_IF_ERROR(
      add("lstm_cell", [](const auto& s, auto type) { return MakeLstmCell(s, type); }));
  BRAID_RETURN_IF_ERROR(
      add("lstm_cell_grad", [](const auto& s, auto type) { return MakeLstmCellGrad(s, type); }));
  BRAID_RETURN_IF_ERROR(
      add("gru_cell", [](const auto& s, auto type) { return MakeGruCell(s, type); }));
  return add("gru_cell_grad", [](const auto& s, auto type) { return MakeGruCellGrad(s, type); });
}

}  // namespace braid::cpu
