// Of KernelSpecs: cells of recurrent networks.
#include <cstddef>

#include "runtime/base/status.h"
#include "runtime/kernels/cuda/families.h"
#include "runtime/kernels/cuda/make_kernel.h"

namespace braid::cuda {
namespace {

using KernelOr = absl::StatusOr<std::unique_ptr<Kernel>>;

KernelOr MakeCell(const KernelSpec& spec, Error (*launch)(const Queue&, const CellLaunch&)) {
  const DType dtype = spec.inputs[0].dtype;
  for (const auto* operands : {&spec.inputs, &spec.outputs}) {
    for (const OperandSpec& operand : *operands) {
      if (!IsFloating(dtype) || operand.dtype != dtype) return UnsupportedTypes(spec);
    }
  }
  const Shape& state = spec.inputs[2].shape();
  const CellLaunch cell = {.dtype = dtype, .rows = state[0], .units = state[1]};
  return MakeKernel([=, inputs = spec.inputs.size(), outputs = spec.outputs.size()](
                        const Queue& queue, const KernelRun& run) {
    CellLaunch now = cell;
    for (size_t i = 0; i < inputs; ++i) now.inputs[i] = run.inputs[i];
    for (size_t i = 0; i < outputs; ++i) now.outputs[i] = run.outputs[i];
    return launch(queue, now);
  });
}

}  // namespace

absl::Status RegisterRecurrentKernels(const KernelTable& table, KernelRegistry& registry) {
  const auto add = [&](const char* name, Error (*launch)(const Queue&, const CellLaunch&)) {
    return registry.Register(name,
                             [launch](const KernelSpec& spec) { return MakeCell(spec, launch); });
  };
  BRAID_RETURN_IF_ERROR(add("lstm_cell", table.recurrent.lstm_cell));
  BRAID_RETURN_IF_ERROR(add("lstm_cell_grad", table.recurrent.lstm_cell_grad));
  BRAID_RETURN_IF_ERROR(add("gru_cell", table.recurrent.gru_cell));
  return add("gru_cell_grad", table.recurrent.gru_cell_grad);
}

}  // namespace braid::cuda
