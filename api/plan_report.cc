#include "api/plan_report.h"

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "api/layer_table.h"

namespace braid {
namespace {

using compiler::TaskGroup;

std::string Quoted(std::string text) {
  for (char& c : text) {
    if (c == '"' || c == '\\') c = '\'';
  }
  return text;
}

}  // namespace

std::string BytesText(double bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  int unit = 0;
  while (bytes >= 1024 && unit < 4) {
    bytes /= 1024;
    ++unit;
  }
  if (unit == 0) return absl::StrFormat("%.0f %s", bytes, kUnits[unit]);
  return absl::StrFormat("%.2f %s", bytes, kUnits[unit]);
}

std::string SummarizePlan(const compiler::Compiled& compiled, const std::vector<NodeSummary>& nodes,
                          size_t plan_bytes) {
  size_t kernels = 0;
  for (const TaskGroup& group : compiled.physical.groups()) kernels += group.kernels().size();
  int64_t tasks = 0;
  size_t devices = 0;
  for (const NodeSummary& node : nodes) {
    tasks += node.tasks;
    devices += node.devices.size();
  }
  std::string text = absl::StrFormat(
      "job '%s': %d ops, %d kernels in %d task groups, %d tasks on %d devices of %d nodes, plan "
      "%s\n",
      compiled.physical.job, compiled.logical.ops().size(), kernels,
      compiled.physical.groups().size(), tasks, devices, nodes.size(),
      BytesText(static_cast<double>(plan_bytes)));
  for (const NodeSummary& node : nodes) {
    for (const DeviceMemory& device : node.devices) {
      absl::StrAppendFormat(&text,
                            "  node %d %s %d: activations %s, variables %s, kernels %s, "
                            "collectives %s, data %s\n",
                            device.node, device.type, device.device, BytesText(device.activations),
                            BytesText(device.variables), BytesText(device.kernels),
                            BytesText(device.collectives), BytesText(device.data));
    }
    for (const auto& [peer, bytes] : node.link_bytes) {
      absl::StrAppendFormat(&text, "  link %d -> %d: %s per step\n", node.node, peer,
                            BytesText(bytes));
    }
  }
  const compiler::StepEstimate& estimate = compiled.estimate;
  absl::StrAppendFormat(
      &text,
      "  estimated step: compute %.3g ms, boxing %.3g ms (%s between devices), by "
      "rates: %s\n",
      estimate.compute_seconds * 1e3, estimate.boxing_seconds * 1e3,
      BytesText(static_cast<double>(estimate.boxing_bytes)), estimate.origin);
  return text;
}

std::string ExplainPlan(const compiler::Compiled& compiled, const std::string& summary) {
  return absl::StrFormat(
      "%s%s\n# Ops with placements, acts per step and SBP\n%s\n# Choices of SBP\n%s\n\n# "
      "Boxing\n%s\n"
      "# Task groups and registers\n%s\n# Notes\n%s\n",
      summary, LayerTable(compiled.logical), compiled.logical.ToString(),
      absl::StrJoin(compiled.explanations, "\n"), compiled.estimate.summary,
      compiled.physical.ToString(), absl::StrJoin(compiled.physical.notes, "\n"));
}

std::string PlanAsDot(const compiler::Compiled& compiled) {
  std::string dot = "digraph plan {\n  rankdir=LR;\n  node [shape=box, fontname=monospace];\n";
  for (const TaskGroup& group : compiled.physical.groups()) {
    const char* style = group.is<compiler::Compute>()         ? "solid"
                        : group.is<compiler::VariableOwner>() ? "bold"
                        : group.is<compiler::Collective>()    ? "rounded"
                                                              : "dashed";
    absl::StrAppendFormat(&dot, "  g%d [label=\"%s\\n%s x%d\", style=%s];\n", group.id,
                          Quoted(group.name), Quoted(group.placement.ToString()),
                          group.acts_per_step, style);
  }
  const auto consumers = compiled.physical.Consumers();
  for (const compiler::Register& reg : compiled.physical.registers()) {
    for (const auto& [consumer, input] : consumers[reg.id]) {
      std::string label = reg.is_control() ? "" : BytesText(static_cast<double>(reg.slot_bytes));
      for (const compiler::Part& part : reg.parts) {
        if (reg.parts.size() <= 2) label += "\\n" + Quoted(part.layout.ToString());
      }
      absl::StrAppendFormat(&dot, "  g%d -> g%d [label=\"%s%s\"%s];\n", reg.producer, consumer,
                            label, reg.slots > 1 ? absl::StrFormat(" x%d", reg.slots) : "",
                            reg.is_control() ? ", style=dotted" : "");
    }
  }
  return dot + "}\n";
}

}  // namespace braid
