// Kernels whose operands come in blocks of channels (compiler/plan/channel_blocks.h).
#pragma once

#include "runtime/kernels/kernel.h"
#include "runtime/kernels/plain_spec.h"

namespace braid::cpu {

// `factory` makes kernels of plain operands: copies blocked ones in before, and out after.
KernelFactory Unblocked(KernelFactory factory);

}  // namespace braid::cpu
