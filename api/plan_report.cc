#include "api/plan_report.h"

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace braid {
namespace {

using compiler::GroupKind;
using compiler::TaskGroup;

std::string Bytes(double bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  int unit = 0;
  while (bytes >= 1024 && unit < 4) {
    bytes /= 1024;
    ++unit;
  }
  if (unit == 0) return absl::StrFormat("%.0f %s", bytes, kUnits[unit]);
  return absl::StrFormat("%.2f %s", bytes, kUnits[unit]);
}

std::string Quoted(std::string text) {
  for (char& c : text) {
    if (c == '"' || c == '\\') c = '\'';
  }
  return text;
}

}  // namespace

std::string SummarizePlan(const compiler::Compiled& compiled, const std::vector<plan::Plan>& slices,
                          const std::vector<DeviceMemory>& memory) {
  size_t kernels = 0;
  for (const TaskGroup& group : compiled.physical.groups()) kernels += group.kernels.size();
  size_t tasks = 0, devices = 0;
  for (const plan::Plan& slice : slices) {
    tasks += slice.tasks_size();
    devices += slice.arenas_size();
  }
  std::string text = absl::StrFormat(
      "job '%s': %d ops, %d kernels in %d task groups, %d tasks on %d devices of %d nodes\n",
      compiled.physical.job, compiled.logical.ops().size(), kernels,
      compiled.physical.groups().size(), tasks, devices, slices.size());
  for (const plan::Plan& slice : slices) {
    for (const DeviceMemory& device : memory) {
      if (device.node != static_cast<int>(slice.node())) continue;
      absl::StrAppendFormat(&text,
                            "  node %d %s %d: activations %s, variables %s, kernels %s, "
                            "collectives %s, data %s\n",
                            device.node, device.type, device.device, Bytes(device.activations),
                            Bytes(device.variables), Bytes(device.kernels),
                            Bytes(device.collectives), Bytes(device.data));
    }
    for (const auto& link : slice.links()) {
      absl::StrAppendFormat(&text, "  link %d -> %d: %s per step\n", slice.node(), link.peer(),
                            Bytes(link.bytes()));
    }
    absl::StrAppendFormat(&text, "  node %d: plan slice %s\n", slice.node(),
                          Bytes(slice.ByteSizeLong()));
  }
  const compiler::StepEstimate& estimate = compiled.estimate;
  absl::StrAppendFormat(&text,
                        "  estimated step: compute %.3g ms, boxing %.3g ms (%s between devices)\n",
                        estimate.compute_seconds * 1e3, estimate.boxing_seconds * 1e3,
                        Bytes(static_cast<double>(estimate.boxing_bytes)));
  return text;
}

std::string ExplainPlan(const compiler::Compiled& compiled, const std::string& summary) {
  return absl::StrFormat(
      "%s\n# Ops with placements, rates and SBP\n%s\n# Choices of SBP\n%s\n\n# Boxing\n%s\n"
      "# Task groups and registers\n%s\n# Notes\n%s\n",
      summary, compiled.logical.ToString(), absl::StrJoin(compiled.explanations, "\n"),
      compiled.estimate.summary, compiled.physical.ToString(),
      absl::StrJoin(compiled.physical.notes, "\n"));
}

std::string PlanAsDot(const compiler::Compiled& compiled) {
  std::string dot = "digraph plan {\n  rankdir=LR;\n  node [shape=box, fontname=monospace];\n";
  for (const TaskGroup& group : compiled.physical.groups()) {
    const char* style = group.kind == GroupKind::kCompute      ? "solid"
                        : group.kind == GroupKind::kVariable   ? "bold"
                        : group.kind == GroupKind::kCollective ? "rounded"
                                                               : "dashed";
    absl::StrAppendFormat(&dot, "  g%d [label=\"%s\\n%s x%d\", style=%s];\n", group.id,
                          Quoted(group.name), Quoted(group.placement.ToString()), group.rate,
                          style);
  }
  const auto consumers = compiled.physical.Consumers();
  for (const compiler::Register& reg : compiled.physical.registers()) {
    for (const auto& [consumer, input] : consumers[reg.id]) {
      std::string label = reg.is_control() ? "" : Bytes(static_cast<double>(reg.slot_bytes));
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
