// Whether a node's part of a plan can be run here at all: every number in it that is later an
// address, an index or a size. What passes names no byte outside its arenas, scratch areas and
// variables, and in memory that its side, the host's or the device's, can touch.
#pragma once

#include "absl/status/status.h"
#include "compiler/plan/node_plan.h"
#include "runtime/device/device.h"

namespace braid {

// `devices`: of this node. INVALID_ARGUMENT or RESOURCE_EXHAUSTED with the task, both values and
// what was expected. Left to others: the node and the version (Executor::Load), that both ends of
// an edge agree (MessageBus::Start), what kernels ask of their operands (KernelRegistry::Check).
absl::Status CheckPlan(const plan::NodePlan& plan, const Devices& devices);

}  // namespace braid
