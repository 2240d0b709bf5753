// What --dry_run and --explain say of a compiled job.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "compiler/compile.h"
#include "runtime/reports/node_summary.h"

namespace braid {

// "1.50 MiB".
std::string BytesText(double bytes);

// Ops, devices, memory per device, bytes per link per step, the plan's bytes, an estimate of the
// step.
std::string SummarizePlan(const compiler::Compiled& compiled, const std::vector<NodeSummary>& nodes,
                          size_t plan_bytes);
// Everything, each thing once: the summary, a table of the layers, logical ops with their layouts
// and the alternatives, boxing with bytes, groups and registers with slots and memory.
std::string ExplainPlan(const compiler::Compiled& compiled, const std::string& summary);
// The physical graph for Graphviz.
std::string PlanAsDot(const compiler::Compiled& compiled);

}  // namespace braid
