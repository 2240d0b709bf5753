// The CUDA kernels by family: one source each for plans (.cc) and for the CUDA compiler (.cu).
#pragma once

#include "absl/status/status.h"
#include "runtime/kernels/cuda/kernel_table.h"
#include "runtime/kernels/kernel.h"

namespace braid::cuda {

// `table` is borrowed as long as the registry and its kernels.
absl::Status RegisterAttentionKernels(const KernelTable& table, KernelRegistry& registry);
absl::Status RegisterConvolutionKernels(const KernelTable& table, KernelRegistry& registry);
absl::Status RegisterGatherKernels(const KernelTable& table, KernelRegistry& registry);
absl::Status RegisterMatmulKernels(const KernelTable& table, KernelRegistry& registry);
absl::Status RegisterNormalizationKernels(const KernelTable& table, KernelRegistry& registry);
absl::Status RegisterPointwiseKernels(const KernelTable& table, KernelRegistry& registry);
absl::Status RegisterPoolingKernels(const KernelTable& table, KernelRegistry& registry);
absl::Status RegisterRandomKernels(const KernelTable& table, KernelRegistry& registry);
absl::Status RegisterRearrangeKernels(const KernelTable& table, KernelRegistry& registry);
absl::Status RegisterRecurrentKernels(const KernelTable& table, KernelRegistry& registry);
absl::Status RegisterReduceKernels(const KernelTable& table, KernelRegistry& registry);
absl::Status RegisterResizeKernels(const KernelTable& table, KernelRegistry& registry);
absl::Status RegisterScatterKernels(const KernelTable& table, KernelRegistry& registry);
absl::Status RegisterSoftmaxKernels(const KernelTable& table, KernelRegistry& registry);
absl::Status RegisterSortKernels(const KernelTable& table, KernelRegistry& registry);
absl::Status RegisterUpdateKernels(const KernelTable& table, KernelRegistry& registry);

// All of them. `table` as above.
KernelRegistry CudaKernels(const KernelTable& table);

}  // namespace braid::cuda
