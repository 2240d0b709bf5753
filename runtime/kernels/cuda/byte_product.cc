#include "runtime/kernels/cuda/byte_product.h"

#include "runtime/kernels/cuda/make_kernel.h"

namespace braid::cuda {

ByteProductLaunch ByteOperandsOf(const KernelSpec& spec) {
  ByteProductLaunch launch;
  launch.x_is_signed = spec.inputs[0].dtype == DType::kI8;
  launch.w_is_signed = spec.inputs[1].dtype == DType::kI8;
  launch.has_zero_per_output = spec.inputs.size() > 3 && spec.inputs[3].num_elements() > 1;
  return launch;
}

std::unique_ptr<Kernel> MakeByteProduct(const ByteProductLaunch& launch, const IntegerTable& table,
                                        size_t num_inputs) {
  return MakeKernel([=, multiply = table.multiply](const Queue& queue, const KernelRun& run) {
    ByteProductLaunch now = launch;
    now.x = run.inputs[0];
    now.w = run.inputs[1];
    if (num_inputs > 2) now.zero_of_x = run.inputs[2];
    if (num_inputs > 3) now.zeros_of_w = run.inputs[3];
    now.y = static_cast<int32_t*>(run.outputs[0]);
    return multiply(queue, now);
  });
}

}  // namespace braid::cuda
