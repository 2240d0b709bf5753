#include "api/plan_report.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "api/layer_table.h"
#include "compiler/plan/plan_text.h"

namespace braid {
namespace {

using compiler::TaskGroup;

std::string Quoted(std::string text) {
  for (char& c : text) {
    if (c == '"' || c == '\\') c = '\'';
  }
  return text;
}

std::string CountOf(size_t count, const char* what) {
  return absl::StrFormat("%d %s%s", count, what, count == 1 ? "" : "s");
}

using Parts = std::array<std::pair<const char*, int64_t>, 5>;

Parts PartsOf(const DeviceMemory& device) {
  return {{{"variables and optimizer states", device.variables},
           {"activations and gradients", device.activations},
           {"datasets", device.data},
           {"buffers of transfers", device.collectives},
           {"kernels' own", device.kernels}}};
}

// "node 0 cpu 0 to 3 need 17.81 MiB each: ...": devices that take the same.
std::string MemoryText(const DeviceMemory& first, const DeviceMemory& last) {
  const bool are_several = first.device != last.device;
  std::vector<std::string> parts;
  for (const auto& [name, bytes] : PartsOf(first)) {
    if (bytes == 0) continue;
    parts.push_back(absl::StrFormat("%s %s", name, BytesText(static_cast<double>(bytes))));
  }
  return absl::StrCat(absl::StrFormat("node %d %s %d", first.node, first.type, first.device),
                      are_several ? absl::StrFormat(" to %d need ", last.device) : " needs ",
                      BytesText(static_cast<double>(first.total())), are_several ? " each" : "",
                      parts.empty() ? "" : ": ", absl::StrJoin(parts, ", "));
}

// Where most groups are.
std::string UsualPlace(const compiler::PhysicalGraph& graph) {
  std::map<std::string, int> counts;
  for (const TaskGroup& group : graph.groups()) ++counts[group.placement.ToString()];
  const auto most =
      std::max_element(counts.begin(), counts.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == counts.end() ? "" : most->first;
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
  std::vector<DeviceMemory> devices;
  for (const NodeSummary& node : nodes) {
    tasks += node.tasks;
    devices.insert(devices.end(), node.devices.begin(), node.devices.end());
  }
  std::string text = absl::StrFormat(
      "job '%s' on %s of %s: %s, which %s in %s carry out; a plan of %s\n", compiled.physical.job,
      CountOf(devices.size(), "device"), CountOf(nodes.size(), "node"),
      CountOf(compiled.logical.ops().size(), "operator"), CountOf(kernels, "kernel"),
      CountOf(static_cast<size_t>(tasks), "task"), BytesText(static_cast<double>(plan_bytes)));
  for (size_t first = 0; first < devices.size();) {
    size_t end = first + 1;
    while (end < devices.size() && devices[end].node == devices[first].node &&
           PartsOf(devices[end]) == PartsOf(devices[first])) {
      ++end;
    }
    absl::StrAppend(&text, "  ", MemoryText(devices[first], devices[end - 1]), "\n");
    first = end;
  }
  for (const NodeSummary& node : nodes) {
    for (const auto& [peer, bytes] : node.link_bytes) {
      absl::StrAppendFormat(&text, "  node %d sends node %d %s a step\n", node.node, peer,
                            BytesText(static_cast<double>(bytes)));
    }
  }
  const compiler::StepEstimate& estimate = compiled.estimate;
  absl::StrAppendFormat(&text,
                        "  a step is estimated to compute for %.3g ms, and to move %s between "
                        "devices in %.3g ms (rates: %s)\n",
                        estimate.compute_seconds * 1e3,
                        BytesText(static_cast<double>(estimate.boxing_bytes)),
                        estimate.boxing_seconds * 1e3, estimate.origin);
  return text;
}

std::string ExplainPlan(const compiler::Compiled& compiled, const std::string& summary) {
  std::string text = absl::StrCat(
      summary, LayerTable(compiled.logical),
      "\n# Operators: types, attributes, devices, acts a step, layouts, lines; below each what its "
      "layout costs, and what others would\n");
  size_t op = 0;
  const std::string ops = compiled.logical.ToString();
  for (const absl::string_view line : absl::StrSplit(ops, '\n', absl::SkipEmpty())) {
    absl::StrAppend(&text, line, "\n");
    if (op == compiled.logical.ops().size()) continue;  // what follows them
    const auto choice = compiled.explanations.find(compiled.logical.op(op++).name);
    if (choice != compiled.explanations.end()) absl::StrAppend(&text, "#   ", choice->second, "\n");
  }
  absl::StrAppend(&text, "\n# Transfers between layouts\n",
                  absl::StrJoin(compiled.physical.notes, "\n"),
                  compiled.physical.notes.empty() ? "" : "\n", compiled.estimate.summary,
                  "\n# Task groups with their operators, and registers\n",
                  compiler::ToText(compiled.physical, compiler::PlanText::kStructure), "\n");
  return text;
}

std::string PlanAsDot(const compiler::Compiled& compiled) {
  const std::string usual = UsualPlace(compiled.physical);
  // Simple lines and few iterations: a plan of thousands of edges is to be drawn in seconds, and
  // its groups one below the other are narrower than beside each other.
  std::string dot = absl::StrFormat(
      "digraph plan {\n  graph [label=\"job %s; on %s where nothing else is said\", ranksep=0.25, "
      "nodesep=0.15, splines=line, nslimit=1, nslimit1=1, mclimit=0.1];\n"
      "  node [shape=box, fontname=monospace, fontsize=10, margin=\"0.05,0.03\"];\n"
      "  edge [fontsize=8, arrowsize=0.5];\n",
      Quoted(compiled.physical.job), Quoted(usual));
  for (const TaskGroup& group : compiled.physical.groups()) {
    const char* style = group.is<compiler::Compute>()         ? "solid"
                        : group.is<compiler::VariableOwner>() ? "bold"
                        : group.is<compiler::Collective>()    ? "rounded"
                                                              : "dashed";
    std::string label = absl::StrReplaceAll(Quoted(group.name), {{"..", "..\\n"}});
    if (const std::string place = group.placement.ToString(); place != usual) {
      absl::StrAppend(&label, "\\n", Quoted(place));
    }
    if (group.acts_per_step != 1) absl::StrAppend(&label, " x", group.acts_per_step);
    absl::StrAppendFormat(&dot, "  g%d [label=\"%s\", style=%s];\n", group.id, label, style);
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
                            reg.is_control() ? ", style=dotted, constraint=false" : "");
    }
  }
  return dot + "}\n";
}

}  // namespace braid
