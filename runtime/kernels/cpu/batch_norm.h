// Batch normalization of tensors in blocks of channels.
#pragma once

#include "absl/status/statusor.h"
#include "runtime/kernels/kernel.h"

namespace braid::cpu {

// The operators channel_sum, batch_moment, batch_norm, batch_norm_sums and batch_norm_dx.
enum class BatchNormPart { kSum, kMoment, kNorm, kSums, kInputGradient };

// UNIMPLEMENTED unless all operands with space are blocked and all are f32, or all f64.
absl::StatusOr<PlannedKernel> PlanBlockedBatchNorm(BatchNormPart part, const KernelSpec& spec);

// With attribute groups: `factory`'s kernel of one group, run for each of those that are here.
KernelFactory ForEachGroup(BatchNormPart part, KernelFactory factory);

}  // namespace braid::cpu
