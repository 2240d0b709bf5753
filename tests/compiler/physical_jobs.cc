#include "tests/compiler/physical_jobs.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/boxing/boxing.h"
#include "compiler/logical/infer_placement.h"
#include "compiler/logical/infer_sbp.h"
#include "compiler/logical/micro_batch.h"
#include "compiler/lower.h"
#include "compiler/physical/assign_streams.h"
#include "runtime/base/seeded_choice.h"
#include "runtime/base/status.h"

namespace braid::compiler {

const OpRegistry& JobRegistry() {
  static const OpRegistry& registry = *new OpRegistry(BuiltinOps());
  return registry;
}

Placement CpuDevices(int nodes, int per_node) {
  std::vector<DeviceId> devices;
  for (int node = 0; node < nodes; ++node) {
    for (int device = 0; device < per_node; ++device) devices.push_back({node, device});
  }
  return Placement("cpu", devices);
}

absl::StatusOr<PhysicalGraph> LowerText(const std::string& text, NodeKinds kinds) {
  BRAID_ASSIGN_OR_RETURN(LogicalGraph graph, LogicalGraph::Parse(text, &JobRegistry()));
  BoxingPlanner planner;
  BRAID_ASSIGN_OR_RETURN(PhysicalGraph physical, Lower(graph, planner));
  physical.notes.clear();
  physical.kinds = std::move(kinds);
  return AssignStreams(std::move(physical), JobRegistry());
}

absl::StatusOr<PhysicalGraph> LowerMlp(const MlpText& mlp, const Placement& all_devices) {
  BRAID_ASSIGN_OR_RETURN(LogicalGraph graph, LogicalGraph::Parse(ToText(mlp), &JobRegistry()));
  BoxingPlanner planner;
  BRAID_ASSIGN_OR_RETURN(graph, InferPlacement(std::move(graph), all_devices, CpuDevices(1, 1)));
  BRAID_ASSIGN_OR_RETURN(graph, MicroBatch(std::move(graph)));
  BRAID_ASSIGN_OR_RETURN(graph, InferSbp(std::move(graph), planner));
  BRAID_ASSIGN_OR_RETURN(PhysicalGraph physical, Lower(graph, planner));
  physical.notes.clear();
  return AssignStreams(std::move(physical), JobRegistry());
}

std::string SummaryOf(const PhysicalGraph& graph) {
  constexpr const char* kWorks[] = {"compute", "exchange", "collective", "variable"};
  std::string text = "\n";
  for (const TaskGroup& group : graph.groups()) {
    absl::StrAppend(&text, "g", group.id, " ", kWorks[group.work.index()], " '", group.name, "'");
    if (group.acts_per_step != 1) absl::StrAppend(&text, " x", group.acts_per_step);
    for (const GroupInput& input : group.inputs) {
      const Register& reg = graph.reg(input.reg);
      if (reg.initial_tokens != 0) continue;
      absl::StrAppend(&text, reg.is_control() ? " after g" : " <- g", reg.producer);
      if (reg.parts.size() > 1) absl::StrAppend(&text, " (", reg.parts.size(), ")");
      if (reg.period != 1) absl::StrAppend(&text, " all ", reg.period);
      if (input.period != 1) absl::StrAppend(&text, " for ", input.period);
    }
    absl::StrAppend(&text, "\n");
  }
  return text;
}

namespace {

class RandomGraph {
 public:
  explicit RandomGraph(uint64_t seed) : choose_(seed) {}

  PhysicalGraph Make() {
    const Placement wide = CpuDevices(1, 2);
    placements_ = {wide, wide, Placement("cpu", {{1, 0}, {1, 1}})};
    const int variables = Below(5);
    for (int i = 0; i < variables; ++i) AddVariable(i);
    const int groups = 3 + Below(30);
    for (int i = 0; i < groups; ++i) AddCompute(i);
    AddUpdates(variables);
    const int edges = Below(6);
    for (int i = 0; i < edges; ++i) {
      const auto count = static_cast<int>(graph_.groups().size());
      const GroupId from = Below(count), to = Below(count);
      if (from < to && graph_.group(to).is<Compute>()) {
        graph_.AddControlEdge(from, to, 0);
      }
    }
    graph_.LayOutParts();
    return std::move(graph_);
  }

 private:
  int Below(int n) { return static_cast<int>(choose_.Below(static_cast<uint64_t>(n))); }

  static TensorLayout Whole() { return {{DType::kF32, {6, 3}}, sbp::B}; }

  GroupRegisterId AddOutput(TaskGroup& group, std::string name) {
    Register reg;
    reg.name = name;
    reg.placement = group.placement;
    reg.producer = static_cast<GroupId>(graph_.groups().size());
    reg.parts.emplace_back().layout = Whole();
    reg.parts[0].name = std::move(name);
    group.outputs.push_back(graph_.AddRegister(std::move(reg)).id);
    return group.outputs.back();
  }

  void AddVariable(int i) {
    TaskGroup group;
    group.name = absl::StrCat("v", i);
    group.placement = placements_[Below(3)];
    KernelCall kernel = {.op = "variable", .name = group.name};
    kernel.outputs.push_back({.source = OperandRef::Source::kOutput});
    kernel.output_layouts.push_back(Whole());
    const GroupRegisterId reg = AddOutput(group, group.name);
    graph_.reg(reg).parts[0].variable = group.name;
    group.work = VariableOwner{.kernels = {std::move(kernel)}};
    graph_.AddGroup(std::move(group));
    available_.push_back(reg);
  }

  // Pieces a step.
  int PiecesOf(const Register& reg) const {
    return graph_.group(reg.producer).acts_per_step / reg.period;
  }

  // `reg` on `placement`: itself, or through an exchange or an all_reduce.
  GroupRegisterId Bring(GroupRegisterId id, const Placement& placement) {
    const bool moves = graph_.reg(id).placement != placement;
    if (!moves && (Below(6) != 0 || !graph_.reg(id).parts[0].variable.empty())) return id;
    const auto known = brought_.find({id, placement});
    if (known != brought_.end()) return known->second;
    TaskGroup group;
    group.name = absl::StrCat(graph_.reg(id).name, moves ? ".exchange" : ".all_reduce");
    group.placement = placement;
    group.acts_per_step = PiecesOf(graph_.reg(id));
    group.inputs.push_back({.reg = id});
    const Movement movement = {.source = Whole(), .destination = Whole()};
    if (moves) {
      group.work = Exchange{.movement = movement};
    } else {
      group.work = Collective{.movement = movement};
    }
    const GroupRegisterId out = AddOutput(group, group.name);
    graph_.AddGroup(std::move(group));
    return brought_[{id, placement}] = out;
  }

  void AddCompute(int i) {
    TaskGroup group;
    group.name = absl::StrCat("k", i);
    group.placement = placements_[Below(3)];
    group.acts_per_step = Below(4) == 0 ? 4 : 1;
    KernelCall kernel = {.op = "add", .name = group.name};
    const int inputs = available_.empty() ? 0 : Below(4);
    for (int n = 0; n < inputs; ++n) {
      // Mostly what is near: long paths.
      const auto count = static_cast<int>(available_.size());
      const GroupRegisterId id = available_[std::max(Below(count), Below(count))];
      if (group.acts_per_step % PiecesOf(graph_.reg(id)) != 0) continue;
      Read(Bring(id, group.placement), group, kernel);
    }
    const int outputs = 1 + Below(2);
    for (int n = 0; n < outputs; ++n) {
      const GroupRegisterId reg = AddOutput(group, absl::StrCat(group.name, ":", n));
      if (group.acts_per_step > 1 && Below(2) == 0) graph_.reg(reg).period = group.acts_per_step;
      kernel.outputs.push_back({.source = OperandRef::Source::kOutput, .index = n});
      kernel.output_layouts.push_back(Whole());
      available_.push_back(reg);
    }
    std::get<Compute>(group.work).kernels.push_back(std::move(kernel));
    graph_.AddGroup(std::move(group));
  }

  void Read(GroupRegisterId id, TaskGroup& group, KernelCall& kernel) {
    auto known = std::find_if(group.inputs.begin(), group.inputs.end(),
                              [&](const GroupInput& input) { return input.reg == id; });
    if (known == group.inputs.end()) {
      known = group.inputs.insert(
          known, {.reg = id, .period = group.acts_per_step / PiecesOf(graph_.reg(id))});
    }
    kernel.inputs.push_back({.index = static_cast<int>(known - group.inputs.begin())});
    kernel.input_layouts.push_back(Whole());
  }

  void AddUpdates(int variables) {
    for (GroupId variable = 0; variable < variables; ++variable) {
      const std::vector<std::pair<GroupId, int>> readers =
          graph_.Consumers()[graph_.group(variable).outputs[0]];
      TaskGroup group;
      group.name = absl::StrCat("u", variable);
      group.placement = graph_.group(variable).placement;
      KernelCall kernel = {.op = "assign", .name = group.name};
      Read(graph_.group(variable).outputs[0], group, kernel);
      const GroupRegisterId id = available_[Below(static_cast<int>(available_.size()))];
      if (PiecesOf(graph_.reg(id)) == 1) Read(Bring(id, group.placement), group, kernel);
      std::get<Compute>(group.work).kernels.push_back(std::move(kernel));
      const GroupId update = graph_.AddGroup(std::move(group)).id;
      graph_.AddControlEdge(update, variable, 1);
      for (const auto& [reader, index] : readers) graph_.AddControlEdge(reader, update, 0);
    }
  }

  SeededChoice choose_;
  PhysicalGraph graph_;
  std::vector<Placement> placements_;
  std::vector<GroupRegisterId> available_;
  std::map<std::pair<GroupRegisterId, Placement>, GroupRegisterId> brought_;
};

// Runs a graph with symbols instead of numbers.
struct SymbolicRun {
  std::string error;
  std::map<std::string, size_t> kernels;                 // name -> symbol of what it did
  std::map<std::string, std::pair<GroupId, int>> place;  // name -> group, position in it
  std::vector<std::set<GroupId>> ancestors;              // by group, without initial tokens

  explicit SymbolicRun(const PhysicalGraph& graph) : ancestors(graph.groups().size()) {
    auto order = graph.TopologicalOrder();
    if (!order.ok()) {
      error = std::string(order.status().message());
      return;
    }
    std::map<std::pair<GroupRegisterId, int>, size_t> values;
    for (GroupId id : *order) {
      const TaskGroup& group = graph.group(id);
      for (const GroupInput& input : group.inputs) {
        const Register& reg = graph.reg(input.reg);
        if (reg.initial_tokens != 0) continue;
        ancestors[id].insert(reg.producer);
        ancestors[id].insert(ancestors[reg.producer].begin(), ancestors[reg.producer].end());
      }
      RunGroup(graph, group, values);
    }
  }

  void RunGroup(const PhysicalGraph& graph, const TaskGroup& group,
                std::map<std::pair<GroupRegisterId, int>, size_t>& values) {
    const std::hash<std::string> hash;
    if (const Movement* const movement = group.movement()) {
      const auto parts = static_cast<int>(graph.reg(group.outputs[0]).parts.size());
      if (parts > 1 && parts != static_cast<int>(graph.reg(group.inputs[0].reg).parts.size())) {
        error = absl::StrCat(group.name, ": ", parts, " parts out");
      }
      for (int part = 0; part < parts; ++part) {
        const std::pair<GroupRegisterId, int> from = {group.inputs[0].reg, movement->part + part};
        if (!values.contains(from)) error = absl::StrCat(group.name, " moves nothing");
        values[{group.outputs[0], part}] = hash(
            absl::StrCat(group.work.index(), " ", group.placement.ToString(), " ", values[from]));
      }
      place[group.name] = {group.id, 0};
      return;
    }
    std::map<int, size_t> scratch;
    for (size_t position = 0; position < group.kernels().size(); ++position) {
      const KernelCall& kernel = group.kernels()[position];
      std::string text = absl::StrCat(kernel.name, " ", group.placement.ToString(), " ",
                                      static_cast<int>(group.stream), " ", group.acts_per_step);
      for (const OperandRef& ref : kernel.inputs) {
        size_t value = 0;
        if (ref.source == OperandRef::Source::kScratch) {
          if (!scratch.contains(ref.index)) error = kernel.name + " reads unwritten scratch";
          value = scratch[ref.index];
        } else {
          const bool is_input = ref.source == OperandRef::Source::kInput;
          const std::pair<GroupRegisterId, int> from = {
              is_input ? group.inputs[ref.index].reg : group.outputs[ref.index], ref.part};
          if (!values.contains(from)) error = kernel.name + " reads an unwritten register";
          value = values[from];
          const int period = is_input ? group.inputs[ref.index].period : 1;
          if (period != 1) absl::StrAppend(&text, " for ", period);
        }
        absl::StrAppend(&text, " ", value);
      }
      if (!kernels.emplace(kernel.name, hash(text)).second) error = kernel.name + " runs twice";
      place[kernel.name] = {group.id, static_cast<int>(position)};
      for (size_t i = 0; i < kernel.outputs.size(); ++i) {
        const OperandRef& ref = kernel.outputs[i];
        const size_t value = hash(absl::StrCat(text, " out ", i));
        if (ref.source == OperandRef::Source::kScratch) {
          scratch[ref.index] = value;
        } else {
          values[{group.outputs[ref.index], ref.part}] = value;
        }
      }
    }
  }

  bool IsBefore(const std::string& first, const std::string& second) const {
    const auto a = place.at(first), b = place.at(second);
    return a.first == b.first ? a.second < b.second : ancestors[b.first].contains(a.first);
  }
};

std::string NameOf(const TaskGroup& group) {
  return group.kernels().empty() ? group.name : group.kernels()[0].name;
}

}  // namespace

PhysicalGraph RandomPhysicalGraph(uint64_t seed) { return RandomGraph(seed).Make(); }

std::string CompareRuns(const PhysicalGraph& before, const PhysicalGraph& after) {
  const SymbolicRun a(before), b(after);
  if (!a.error.empty()) return "before: " + a.error;
  if (!b.error.empty()) return "after: " + b.error;
  for (const auto& [name, symbol] : a.kernels) {
    if (!b.kernels.contains(name)) return name + " is gone";
    if (b.kernels.at(name) != symbol) return name + " reads other operands";
  }
  if (a.kernels.size() != b.kernels.size()) return "there are new kernels";
  for (const TaskGroup& group : before.groups()) {
    for (const GroupInput& input : group.inputs) {
      const Register& reg = before.reg(input.reg);
      const TaskGroup& producer = before.group(reg.producer);
      if (!reg.is_control()) continue;
      if (!producer.is<Compute>() || group.is<Exchange>()) continue;
      const std::string from = NameOf(producer), to = NameOf(group);
      if (reg.initial_tokens == 0 && !b.IsBefore(from, to)) {
        return absl::StrCat(from, " is no longer before ", to);
      }
      if (reg.initial_tokens != 0) {
        const GroupId updated = b.place.at(to).first;
        const auto& inputs = after.group(updated).inputs;
        const bool is_kept = std::any_of(inputs.begin(), inputs.end(), [&](const GroupInput& in) {
          return after.reg(in.reg).initial_tokens == reg.initial_tokens &&
                 after.reg(in.reg).producer == b.place.at(from).first;
        });
        if (!is_kept) return absl::StrCat(to, " no longer waits for ", from);
      }
    }
  }
  return "";
}

}  // namespace braid::compiler
