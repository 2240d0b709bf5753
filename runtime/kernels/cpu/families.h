// The CPU kernels by family; a family is one file here and one under graph/ops.
#pragma once

#include "absl/status/status.h"
#include "runtime/kernels/kernel.h"

namespace braid::cpu {

absl::Status RegisterElementwiseKernels(KernelRegistry& registry);
absl::Status RegisterCastKernels(KernelRegistry& registry);
absl::Status RegisterActivationKernels(KernelRegistry& registry);
absl::Status RegisterShapeKernels(KernelRegistry& registry);
absl::Status RegisterReduceKernels(KernelRegistry& registry);
absl::Status RegisterScanKernels(KernelRegistry& registry);
absl::Status RegisterMatmulKernels(KernelRegistry& registry);
absl::Status RegisterSoftmaxKernels(KernelRegistry& registry);
absl::Status RegisterCrossEntropyKernels(KernelRegistry& registry);
absl::Status RegisterNllKernels(KernelRegistry& registry);
absl::Status RegisterLayerNormKernels(KernelRegistry& registry);
absl::Status RegisterAttentionKernels(KernelRegistry& registry);
absl::Status RegisterAttentionGradKernels(KernelRegistry& registry);
absl::Status RegisterKeyValueCacheKernels(KernelRegistry& registry);
absl::Status RegisterRmsNormKernels(KernelRegistry& registry);
absl::Status RegisterRotaryKernels(KernelRegistry& registry);
absl::Status RegisterRecurrentKernels(KernelRegistry& registry);
absl::Status RegisterGatherKernels(KernelRegistry& registry);
absl::Status RegisterRandomKernels(KernelRegistry& registry);
absl::Status RegisterOptimizerKernels(KernelRegistry& registry);
absl::Status RegisterBoxingKernels(KernelRegistry& registry);
absl::Status RegisterConvolutionKernels(KernelRegistry& registry);
absl::Status RegisterPoolingKernels(KernelRegistry& registry);
absl::Status RegisterBatchNormKernels(KernelRegistry& registry);
absl::Status RegisterGroupNormKernels(KernelRegistry& registry);
absl::Status RegisterInterpolateKernels(KernelRegistry& registry);
absl::Status RegisterRearrangeKernels(KernelRegistry& registry);
absl::Status RegisterScatterKernels(KernelRegistry& registry);
absl::Status RegisterSortKernels(KernelRegistry& registry);

}  // namespace braid::cpu
