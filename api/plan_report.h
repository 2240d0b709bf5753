// What --dry_run and --explain say of a compiled job.
#pragma once

#include <string>
#include <vector>

#include "api/device_memory.h"
#include "compiler/compile.h"
#include "compiler/plan.pb.h"

namespace braid {

// Ops, devices, memory per device, bytes per link per step, an estimate of the step.
std::string SummarizePlan(const compiler::Compiled& compiled, const std::vector<plan::Plan>& slices,
                          const std::vector<DeviceMemory>& memory);
// Everything: the summary, logical ops with their layouts and the alternatives, boxing with bytes,
// groups and registers with slots and memory.
std::string ExplainPlan(const compiler::Compiled& compiled, const std::string& summary);
// The physical graph for Graphviz.
std::string PlanAsDot(const compiler::Compiled& compiled);

}  // namespace braid
