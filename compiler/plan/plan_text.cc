#include "compiler/plan/plan_text.h"

#include <set>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace braid::compiler {
namespace {

std::string_view NameOf(const Compute&) { return "compute"; }
std::string_view NameOf(const Exchange&) { return "exchange"; }
std::string_view NameOf(const Collective& collective) {
  return CollectiveKindName(collective.kind);
}
std::string_view NameOf(const VariableOwner&) { return "variable"; }
std::string_view NameOf(const Staging&) { return "staging"; }

std::string MethodName(const CollectiveMethod& method) {
  std::string name(CollectiveAlgorithmName(method.algorithm));
  if (SendsChunks(method.algorithm)) absl::StrAppend(&name, "/", method.chunk_bytes);
  return name;
}

// "direct" or "ring/262144"; several where members may be on one node, on several or on several
// hosts.
std::string MethodNames(const Collective& collective, const Placement& placement,
                        const PhysicalGraph& graph) {
  const int nodes = placement.num_nodes();
  if (nodes == 1) return MethodName(collective.on_one_node);
  const bool is_on_several = collective.hierarchy_dim < 0 || nodes == placement.size();
  std::set<uint32_t> hosts;
  for (const DeviceId& device : placement.devices()) hosts.insert(graph.HostOf(device.node));
  const int num_hosts = static_cast<int>(hosts.size());
  const bool is_by_host = num_hosts > 1 && num_hosts < placement.size();
  return absl::StrCat(is_on_several ? "" : MethodName(collective.on_one_node) + "|",
                      MethodName(collective.between_nodes),
                      is_by_host ? "|" + MethodName(collective.between_hosts) : "");
}

std::string OperandName(const OperandRef& ref) {
  constexpr char kSourceLetters[] = {'i', 'o', 's', 'v'};
  std::string name(1, kSourceLetters[static_cast<int>(ref.source)]);
  absl::StrAppend(&name, ref.index);
  if (ref.part != 0) absl::StrAppend(&name, ".", ref.part);
  return name;
}

std::string OperandNames(const std::vector<OperandRef>& refs) {
  return absl::StrCat(
      "(",
      absl::StrJoin(refs, ", ",
                    [](std::string* out, const OperandRef& ref) { out->append(OperandName(ref)); }),
      ")");
}

std::string LayoutNames(const std::vector<TensorLayout>& layouts) {
  return absl::StrCat("(",
                      absl::StrJoin(layouts, ", ",
                                    [](std::string* out, const TensorLayout& layout) {
                                      out->append(layout.ToString());
                                    }),
                      ")");
}

std::string ScratchToString(const Compute& compute, PlanText text) {
  std::string lines;
  if (text == PlanText::kStructure) {
    // Their types are those of the operators that write them.
    if (compute.scratch.empty()) return lines;
    return absl::StrCat(
        "\n  scratch s0.. @",
        absl::StrJoin(compute.scratch, " @", [](std::string* out, const Scratch& s) {
          absl::StrAppend(out, s.offset, s.is_kept ? " kept" : "");
        }));
  }
  for (const Scratch& scratch : compute.scratch) {
    absl::StrAppend(&lines, "\n  scratch ", scratch.layout.ToString(),
                    scratch.is_kept ? " kept" : "");
    if (scratch.offset >= 0) absl::StrAppend(&lines, " @", scratch.offset);
  }
  return lines;
}

// What follows the ends of the group in its line, and the lines of its kernels.
std::string WorkToString(const TaskGroup& group, const PhysicalGraph& graph, PlanText detail) {
  std::string text;
  const auto* const collective = std::get_if<Collective>(&group.work);
  if (const Movement* const movement = group.movement()) {
    absl::StrAppend(&text, " ", movement->source.ToString(), " -> ",
                    movement->destination.ToString());
    constexpr const char* kLanes[] = {"", " pull", " push"};
    absl::StrAppend(&text, kLanes[static_cast<int>(group.exchange_lanes())]);
    if (movement->part != 0) absl::StrAppend(&text, " part=", movement->part);
    if (collective != nullptr && collective->hierarchy_dim != -1) {
      absl::StrAppend(&text, " dim=", collective->hierarchy_dim);
    }
    if (movement->reduction != Sbp::Kind::kPartialSum) {
      absl::StrAppend(&text, " reduction=", Sbp{movement->reduction}.ToString());
    }
  }
  if (collective != nullptr) {
    absl::StrAppend(&text, " by=", MethodNames(*collective, group.placement, graph));
  }
  for (const KernelCall& kernel : group.kernels()) {
    absl::StrAppend(&text, "\n  ", kernel.op, " \"", kernel.name, "\" ",
                    OperandNames(kernel.inputs), "->", OperandNames(kernel.outputs));
    if (detail == PlanText::kStructure) continue;
    if (!kernel.attrs.values().empty()) {
      absl::StrAppend(&text, " {", kernel.attrs.ToString(), "}");
    }
    absl::StrAppend(&text, " ", LayoutNames(kernel.input_layouts), "->",
                    LayoutNames(kernel.output_layouts));
  }
  const auto* const compute = std::get_if<Compute>(&group.work);
  if (compute == nullptr) return text;
  for (const ServedVariable& variable : compute->served) {
    absl::StrAppend(&text, "\n  served ", variable.name);
    if (detail != PlanText::kStructure) {
      absl::StrAppend(&text, " ", variable.layout.ToString());
    }
  }
  absl::StrAppend(&text, ScratchToString(*compute, detail));
  for (const Turns& turns : compute->turns) {
    absl::StrAppend(&text, "\n  turns of ", compute->kernels[turns.begin].name, " to ",
                    compute->kernels[turns.end - 1].name, ", part=", turns.part);
    if (turns.staying.empty()) continue;
    absl::StrAppend(&text, ", staying s", absl::StrJoin(turns.staying, ", s"));
  }
  return text;
}

std::string GroupToString(const TaskGroup& group, const PhysicalGraph& graph, PlanText detail) {
  const std::string_view kind =
      std::visit([](const auto& work) { return NameOf(work); }, group.work);
  std::string text = absl::StrCat("g", group.id, " ", std::string(kind), " \"", group.name,
                                  "\" on=", group.placement.ToString());
  constexpr const char* kStreamNames[kNumStreams] = {"compute", "input",    "transfer",
                                                     "copy_in", "copy_out", "collective"};
  if (group.stream != StreamKind::kCompute) {
    absl::StrAppend(&text, " stream=", kStreamNames[static_cast<int>(group.stream)]);
  }
  if (group.acts_per_step != 1) absl::StrAppend(&text, " acts_per_step=", group.acts_per_step);
  if (group.lanes() != 0) absl::StrAppend(&text, " lanes=", group.lanes());
  if (group.is_deferrable) absl::StrAppend(&text, " deferrable");
  auto append_input = [](std::string* out, const GroupInput& input) {
    absl::StrAppend(out, "r", input.reg);
    if (input.period != 1) absl::StrAppend(out, "/", input.period);
  };
  auto append_output = [](std::string* out, GroupRegisterId reg) {
    absl::StrAppend(out, "r", reg);
  };
  absl::StrAppend(&text, " (", absl::StrJoin(group.inputs, ", ", append_input), ")->(",
                  absl::StrJoin(group.outputs, ", ", append_output), ")");
  return text + WorkToString(group, graph, detail);
}

std::string RegisterToString(const Register& reg) {
  std::string text = absl::StrCat("r", reg.id, " \"", reg.name, "\"");
  if (reg.producer != kNone) absl::StrAppend(&text, " of=g", reg.producer);
  if (reg.slots != 1) absl::StrAppend(&text, " slots=", reg.slots);
  if (reg.period != 1) absl::StrAppend(&text, " period=", reg.period);
  if (reg.is_by_lane) absl::StrAppend(&text, " by_lane");
  if (reg.initial_tokens != 0) absl::StrAppend(&text, " tokens=", reg.initial_tokens);
  if (reg.slot_bytes != 0) absl::StrAppend(&text, " bytes=", reg.slot_bytes);
  if (reg.stride != reg.slot_bytes) absl::StrAppend(&text, " stride=", reg.stride);
  if (reg.memory == MemoryKind::kPinned) absl::StrAppend(&text, " pinned");
  if (reg.offset >= 0) absl::StrAppend(&text, " @", reg.offset);
  if (reg.is_control()) return text + " control";
  absl::StrAppend(&text, " ",
                  absl::StrJoin(reg.parts, "; ", [](std::string* out, const Part& part) {
                    absl::StrAppend(out, part.layout.ToString());
                    if (part.offset != 0) absl::StrAppend(out, " +", part.offset);
                    if (!part.variable.empty()) absl::StrAppend(out, " variable=", part.variable);
                  }));
  return text;
}

}  // namespace

std::string ToText(const PhysicalGraph& graph, PlanText detail) {
  std::string text = absl::StrCat("job \"", graph.job, "\" nodes=", graph.num_nodes,
                                  " micro_batches=", graph.micro_batches, "\n");
  for (const TaskGroup& group : graph.groups()) {
    absl::StrAppend(&text, GroupToString(group, graph, detail), "\n");
  }
  for (const Register& reg : graph.registers()) absl::StrAppend(&text, RegisterToString(reg), "\n");
  if (detail == PlanText::kStructure) return text;
  for (const std::string& note : graph.notes) absl::StrAppend(&text, "# ", note, "\n");
  return text;
}

std::string PhysicalGraph::ToString() const { return ToText(*this, PlanText::kWhole); }

}  // namespace braid::compiler
