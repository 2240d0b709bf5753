// Batch normalization, of the family of normalizations.
#pragma once

#include "absl/status/status.h"
#include "runtime/kernels/cuda/batch_norm.h"
#include "runtime/kernels/kernel.h"

namespace braid::cuda {

// `table` is borrowed as long as the registry and its kernels.
absl::Status RegisterBatchNormKernels(const BatchNormTable& table, KernelRegistry& registry);

}  // namespace braid::cuda
