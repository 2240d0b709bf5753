// The CPU kernels by family; a family is one file here and one under graph/ops.
#pragma once

#include "absl/status/status.h"
#include "runtime/kernels/kernel.h"

namespace braid::cpu {

absl::Status RegisterElementwiseKernels(KernelRegistry& registry);
absl::Status RegisterShapeKernels(KernelRegistry& registry);
absl::Status RegisterReduceKernels(KernelRegistry& registry);
absl::Status RegisterMatmulKernels(KernelRegistry& registry);
absl::Status RegisterSoftmaxKernels(KernelRegistry& registry);
absl::Status RegisterCrossEntropyKernels(KernelRegistry& registry);
absl::Status RegisterLayerNormKernels(KernelRegistry& registry);
absl::Status RegisterGatherKernels(KernelRegistry& registry);
absl::Status RegisterRandomKernels(KernelRegistry& registry);
absl::Status RegisterOptimizerKernels(KernelRegistry& registry);
absl::Status RegisterBoxingKernels(KernelRegistry& registry);

}  // namespace braid::cpu
