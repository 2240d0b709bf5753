// The scans of the family of reductions.
#pragma once

#include "absl/status/status.h"
#include "runtime/kernels/cuda/scan.h"
#include "runtime/kernels/kernel.h"

namespace braid::cuda {

// `table` is borrowed as long as the registry and its kernels.
absl::Status RegisterScanKernels(const ScanTable& table, KernelRegistry& registry);

}  // namespace braid::cuda
