// The list of the CUDA kernels.
#include <glog/logging.h>

#include <memory>

#include "compiler/plan/channel_layouts.h"
#include "graph/op_registry.h"
#include "runtime/kernels/cuda/families.h"

namespace braid::cuda {

KernelRegistry CudaKernels(const KernelTable& table) {
  KernelRegistry registry(
      std::make_shared<const OpRegistry>(compiler::WithChannelLayouts(BuiltinOps())));
  for (auto* add : {RegisterAttentionKernels, RegisterConvolutionKernels, RegisterGatherKernels,
                    RegisterMatmulKernels, RegisterNormalizationKernels, RegisterPointwiseKernels,
                    RegisterPoolingKernels, RegisterRandomKernels, RegisterRearrangeKernels,
                    RegisterRecurrentKernels, RegisterReduceKernels, RegisterResizeKernels,
                    RegisterScatterKernels, RegisterSoftmaxKernels, RegisterSortKernels,
                    RegisterUpdateKernels}) {
    const absl::Status status = add(table, registry);
    CHECK(status.ok()) << status.ToString();
  }
  return registry;
}

}  // namespace braid::cuda
