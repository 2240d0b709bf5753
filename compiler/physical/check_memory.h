// Compares what a plan needs on each device with what there is, before anything is allocated.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "compiler/plan/physical_graph.h"

namespace braid::compiler {

// After PlanMemory. RESOURCE_EXHAUSTED if the registers, scratch and variables of some device need
// more than `bytes_per_device`: names the device that needs most, both values, its largest
// registers and variables with op and line, and what would help.
absl::Status CheckMemory(const PhysicalGraph& graph, int64_t bytes_per_device);

}  // namespace braid::compiler
