// Calls of a compute task become fewer, where the task's device can do several at once.
#pragma once

#include <vector>

#include "compiler/plan/node_plan.h"
#include "runtime/actions/compute.h"
#include "runtime/kernels/call_fuser.h"

namespace braid {

// `calls` are those of `compute`, with their operands' addresses.
void FuseCalls(const plan::Compute& compute, CallFuser& fuser, std::vector<ComputeCall>& calls);

}  // namespace braid
