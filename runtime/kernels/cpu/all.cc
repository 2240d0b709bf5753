// The list of the CPU kernels.
#include <glog/logging.h>

#include <memory>

#include "compiler/plan/channel_layouts.h"
#include "graph/op_registry.h"
#include "runtime/kernels/cpu/families.h"
#include "runtime/kernels/cpu/gemm.h"

namespace braid {

KernelRegistry CpuKernels() {
  // Read by all, so made once.
  static const auto& operators = *new std::shared_ptr<const OpRegistry>(
      std::make_shared<const OpRegistry>(compiler::WithChannelLayouts(BuiltinOps())));
  KernelRegistry registry(operators);
  for (auto* add : {cpu::RegisterElementwiseKernels, cpu::RegisterActivationKernels,
                    cpu::RegisterShapeKernels,       cpu::RegisterReduceKernels,
                    cpu::RegisterScanKernels,        cpu::RegisterMatmulKernels,
                    cpu::RegisterSoftmaxKernels,     cpu::RegisterCrossEntropyKernels,
                    cpu::RegisterNllKernels,         cpu::RegisterLayerNormKernels,
                    cpu::RegisterGatherKernels,      cpu::RegisterRandomKernels,
                    cpu::RegisterOptimizerKernels,   cpu::RegisterBoxingKernels,
                    cpu::RegisterConvolutionKernels, cpu::RegisterPoolingKernels,
                    cpu::RegisterBatchNormKernels,   cpu::RegisterGroupNormKernels,
                    cpu::RegisterAttentionKernels,   cpu::RegisterAttentionGradKernels,
                    cpu::RegisterRmsNormKernels,     cpu::RegisterRotaryKernels,
                    cpu::RegisterRecurrentKernels,   cpu::RegisterInterpolateKernels,
                    cpu::RegisterRearrangeKernels,   cpu::RegisterScatterKernels,
                    cpu::RegisterSortKernels,        cpu::RegisterKeyValueCacheKernels,
                    cpu::RegisterCastKernels}) {
    const absl::Status status = add(registry);
    CHECK(status.ok()) << status.ToString();
  }
  return registry;
}

int64_t CpuChannelBlock() {
  return cpu::HasWideVectors() ? compiler::kWideBlock : compiler::kNarrowBlock;
}

}  // namespace braid
