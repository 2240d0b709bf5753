#include "compiler/lower.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "compiler/boxing/edge.h"
#include "compiler/boxing/rules.h"
#include "compiler/lower_servers.h"
#include "glog/logging.h"
#include "graph/op_roles.h"
#include "runtime/base/status.h"

namespace braid::compiler {
namespace {

std::string Describe(const Op& op) {
  const std::string where = op.location.ToString();
  return absl::StrCat(op.type, " '", op.name, "'",
                      where.empty() ? "" : absl::StrCat(" (", where, ")"));
}

// One layout in which a tensor exists.
struct Held {
  GroupRegisterId reg;
  int part;
  Placement placement;
  NdSbp sbp;
};

// What is common to all layouts of a tensor.
struct Lowered {
  std::string name;
  Sbp micro_batch_sbp = sbp::B;
  int micro_batches = 1;
  int acts_per_step = 1;   // slots that are filled in a step
  std::vector<Held> held;  // the first is its producer's; empty: the producer was not lowered yet
};

// A variable's owner, and the group that overwrites it.
struct Owner {
  GroupId group = kNone;
  GroupRegisterId reg = kNone;
  GroupId update = kNone;
  OpId update_op = kNone;
};

class Lowering {
 public:
  Lowering(const LogicalGraph& graph, BoxingPlanner& planner)
      : graph_(graph),
        planner_(planner),
        tensors_(graph.tensors().size()),
        servers_(&graph, &result_) {}

  absl::StatusOr<PhysicalGraph> Run() {
    for (const Op& op : graph_.ops()) {
      BRAID_RETURN_IF_ERROR(CheckOp(op));
      BRAID_RETURN_IF_ERROR(LowerOp(op));
      result_.micro_batches = std::max(result_.micro_batches, op.acts_per_step);
      for (const DeviceId& device : op.placement->devices()) {
        result_.num_nodes = std::max(result_.num_nodes, device.node + 1);
      }
    }
    OrderUpdates();
    BRAID_RETURN_IF_ERROR(servers_.Finish());
    result_.LayOutParts();
    return std::move(result_);
  }

 private:
  absl::Status CheckOp(const Op& op) const {
    if (!op.placement) return absl::InternalError(absl::StrCat(Describe(op), " has no placement"));
    const bool cut = op.acts_per_step > 1;
    if (op.input_sbp.size() != op.inputs.size() || op.output_sbp.size() != op.outputs.size() ||
        (cut && (op.input_micro_batch_sbp.size() != op.inputs.size() ||
                 op.output_micro_batch_sbp.size() != op.outputs.size()))) {
      return absl::InternalError(absl::StrCat(
          Describe(op), ": not every operand has a layout over devices and micro-batches"));
    }
    for (const auto* layouts : {&op.input_sbp, &op.output_sbp}) {
      for (const NdSbp& sbp : *layouts) BRAID_RETURN_IF_ERROR(CheckLayout(op, sbp));
    }
    return absl::OkStatus();
  }

  absl::Status CheckLayout(const Op& op, const NdSbp& sbp) const {
    if (static_cast<size_t>(sbp.rank()) != op.placement->hierarchy().size()) {
      return absl::InternalError(absl::StrCat(Describe(op), ": layout ", sbp.ToString(), " on ",
                                              op.placement->ToString()));
    }
    std::optional<Sbp> partial;
    for (const Sbp& kind : sbp.dims()) {
      if (!kind.is_partial()) continue;
      if (partial && *partial != kind) {
        return absl::InvalidArgumentError(
            absl::StrCat(Describe(op), ": layout ", sbp.ToString(),
                         " mixes two kinds of partial values; make one of them B"));
      }
      partial = kind;
    }
    return absl::OkStatus();
  }

  // The bytes of its input are its output.
  absl::Status LowerMirroring(const Op& op) {
    BRAID_ASSIGN_OR_RETURN(Held held, Read(op, 0, /*overwrites=*/false));
    const Lowered& input = tensors_[op.inputs[0]];
    Lowered& output = tensors_[op.outputs[0]];
    output.name = op.name;
    output.micro_batch_sbp = input.micro_batch_sbp;
    output.micro_batches = input.micro_batches;
    output.acts_per_step = input.acts_per_step;
    held.sbp = op.output_sbp[0];
    output.held.push_back(held);
    return absl::OkStatus();
  }

  // Adds what the op reads to its group and kernel.
  absl::Status TakeInputs(const Op& op, TaskGroup& group, KernelCall& kernel,
                          std::vector<ServedVariable>& served) {
    const std::vector<int>& mutated = DefOf(graph_, op).mutates();
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      const bool overwrites = std::find(mutated.begin(), mutated.end(), i) != mutated.end();
      BRAID_ASSIGN_OR_RETURN(Held held, Read(op, static_cast<int>(i), overwrites));
      if (overwrites && MaxStaleness(op) > 0) {
        kernel.inputs.push_back(
            {.source = OperandRef::Source::kServed, .index = static_cast<int>(served.size())});
        kernel.input_layouts.push_back(LayoutOf(op.inputs[i], op.input_sbp[i]));
        served.push_back(
            {.name = graph_.producer(op.inputs[i]).name, .layout = kernel.input_layouts.back()});
        continue;
      }
      BRAID_ASSIGN_OR_RETURN(GroupInput input, InputOf(op, static_cast<int>(i), held.reg));
      auto known = std::find_if(group.inputs.begin(), group.inputs.end(),
                                [&](const GroupInput& other) { return other.reg == input.reg; });
      if (known == group.inputs.end()) known = group.inputs.insert(known, input);
      kernel.inputs.push_back({.source = OperandRef::Source::kInput,
                               .index = static_cast<int>(known - group.inputs.begin()),
                               .part = held.part});
      kernel.input_layouts.push_back(LayoutOf(op.inputs[i], op.input_sbp[i]));
    }
    return absl::OkStatus();
  }

  absl::Status LowerOp(const Op& op) {
    const OpDef& def = DefOf(graph_, op);
    if (def.mirrors().has_value()) return LowerMirroring(op);
    TaskGroup group;
    group.name = op.name;
    group.placement = *op.placement;
    group.acts_per_step = op.acts_per_step;
    group.location = op.location;
    if (!IsVariable(graph_, op) && def.external()) group.stream = StreamKind::kInput;
    KernelCall kernel = {
        .op = op.type, .name = op.name, .attrs = op.attrs, .location = op.location};
    Mirroring::Clear(kernel.attrs);  // layouts say it
    kernel.attrs.Remove("max_staleness");
    Compute compute;
    BRAID_RETURN_IF_ERROR(TakeInputs(op, group, kernel, compute.served));
    const GroupId id = static_cast<GroupId>(result_.groups().size());
    if (MaxStaleness(op) > 0) {
      compute.lanes =
          servers_.AddServer(op.inputs[PushedInput(graph_, op)], group.inputs[0].reg, id);
      group.acts_per_step = compute.lanes;
      for (GroupInput& input : group.inputs) input.period = compute.lanes;
    }
    for (size_t i = 0; i < op.outputs.size(); ++i) {
      const TensorId tensor = op.outputs[i];
      Lowered& lowered = tensors_[tensor];
      lowered.name = op.outputs.size() == 1 ? op.name : absl::StrCat(op.name, ":", i);
      const bool per_act = op.acts_per_step > 1 && !op.output_micro_batch_sbp[i].is_broadcast();
      if (per_act) {
        lowered.micro_batch_sbp = op.output_micro_batch_sbp[i];
        lowered.micro_batches = lowered.acts_per_step = op.acts_per_step;
      }
      Register reg;
      reg.name = lowered.name;
      reg.placement = *op.placement;
      reg.producer = id;
      reg.period = per_act ? 1 : group.acts_per_step;
      Part& part = reg.parts.emplace_back();
      part.layout = LayoutOf(tensor, op.output_sbp[i]);
      part.name = lowered.name;
      if (IsVariable(graph_, op)) part.variable = op.name;
      kernel.output_layouts.push_back(part.layout);
      kernel.outputs.push_back(
          {.source = OperandRef::Source::kOutput, .index = static_cast<int>(i), .part = 0});
      const GroupRegisterId reg_id = result_.AddRegister(std::move(reg)).id;
      group.outputs.push_back(reg_id);
      lowered.held.push_back({reg_id, 0, *op.placement, op.output_sbp[i]});
    }
    if (IsVariable(graph_, op)) {
      group.work = VariableOwner{.kernels = {std::move(kernel)}};
      owners_[op.id] = {.group = id, .reg = group.outputs.at(0)};
      if (servers_.IsServed(op.id)) {
        result_.reg(group.outputs[0]).least_slots = servers_.BoundOf(op.id);
      }
    } else {
      compute.kernels.push_back(std::move(kernel));
      group.work = std::move(compute);
    }
    for (int input : def.mutates()) {
      if (MaxStaleness(op) > 0) continue;  // it overwrites what is being read
      owners_.at(graph_.tensor(op.inputs[input]).producer).update = id;
    }
    CHECK_EQ(result_.AddGroup(std::move(group)).id, id);
    return absl::OkStatus();
  }

  TensorLayout LayoutOf(TensorId tensor, const NdSbp& sbp) const {
    return {graph_.type(tensor), sbp, tensors_[tensor].micro_batch_sbp,
            tensors_[tensor].micro_batches};
  }

  // The register in which `op` finds its input as it wants it.
  absl::StatusOr<Held> Read(const Op& op, int input, bool overwrites) {
    const TensorId tensor = op.inputs[input];
    const Op& producer = graph_.producer(tensor);
    Lowered& lowered = tensors_[tensor];
    if (lowered.held.empty()) {
      return absl::InternalError(
          absl::StrCat(Describe(op), " stands before ", Describe(producer), ", which it reads"));
    }
    const NdSbp& wanted = op.input_sbp[input];
    if (overwrites) {
      BRAID_RETURN_IF_ERROR(CheckOverwrites(op, input));
      owners_.at(producer.id).update_op = op.id;
      return lowered.held[0];
    }
    auto is_wanted = [&](const Held& held) {
      return held.sbp == wanted && held.placement == *op.placement;
    };
    if (MaxStaleness(op) > 0 && input == PushedInput(graph_, op)) return Push(op, input);
    auto found = std::find_if(lowered.held.begin(), lowered.held.end(), is_wanted);
    if (servers_.IsServed(producer.id) &&
        (found == lowered.held.end() || found == lowered.held.begin())) {
      return Pull(op, input);
    }
    if (found == lowered.held.end()) {
      Box(tensor, *op.placement, wanted);
      found = std::find_if(lowered.held.begin(), lowered.held.end(), is_wanted);
    }
    return *found;
  }

  // Of an asynchronous server.
  absl::StatusOr<Held> Push(const Op& op, int input) {
    const TensorId tensor = op.inputs[input];
    const Held& held = tensors_[tensor].held[0];
    BRAID_ASSIGN_OR_RETURN(
        const GroupRegisterId reg,
        servers_.Push(op, input,
                      {.reg = held.reg, .part = held.part, .layout = LayoutOf(tensor, held.sbp)},
                      LayoutOf(tensor, op.input_sbp[input])));
    return Held{reg, 0, *op.placement, op.input_sbp[input]};
  }
  absl::StatusOr<Held> Pull(const Op& reader, int input) {
    const TensorId tensor = reader.inputs[input];
    Lowered& lowered = tensors_[tensor];
    const Held& owned = lowered.held[0];
    const NdSbp& wanted = reader.input_sbp[input];
    BRAID_ASSIGN_OR_RETURN(
        const GroupRegisterId reg,
        servers_.Pull(reader, tensor,
                      {.reg = owned.reg, .part = owned.part, .layout = LayoutOf(tensor, owned.sbp)},
                      wanted));
    lowered.held.push_back({reg, 0, *reader.placement, wanted});
    return lowered.held.back();
  }

  absl::Status CheckOverwrites(const Op& op, int input) const {
    const Op& variable = graph_.producer(op.inputs[input]);
    auto owner = owners_.find(variable.id);
    if (owner == owners_.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat(Describe(op), " overwrites ", Describe(variable), ", which is no variable"));
    }
    if (owner->second.update_op != kNone) {
      return absl::InvalidArgumentError(absl::StrCat(
          Describe(op), " and ", Describe(graph_.op(owner->second.update_op)), " both overwrite ",
          Describe(variable), "; a variable may be updated once in a job"));
    }
    if (*op.placement != *variable.placement || op.input_sbp[input] != variable.output_sbp[0] ||
        op.acts_per_step != variable.acts_per_step) {
      return absl::InvalidArgumentError(
          absl::StrCat(Describe(op), " overwrites ", Describe(variable), ", which is ",
                       variable.output_sbp[0].ToString(), " on ", variable.placement->ToString(),
                       ", as ", op.input_sbp[input].ToString(), " on ", op.placement->ToString(),
                       "; an update runs where its variable is, and as it is laid out"));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<GroupInput> InputOf(const Op& op, int input, GroupRegisterId reg) const {
    const Lowered& lowered = tensors_[op.inputs[input]];
    const Sbp wanted = op.acts_per_step > 1 ? op.input_micro_batch_sbp[input] : sbp::B;
    if (op.acts_per_step % lowered.acts_per_step != 0 ||
        (lowered.acts_per_step > 1 && wanted != lowered.micro_batch_sbp) ||
        (lowered.acts_per_step == 1 && !wanted.is_broadcast())) {
      return absl::InternalError(absl::StrCat(
          Describe(op), " acts ", op.acts_per_step, " times a step and reads '", lowered.name,
          "' as ", wanted.ToString(), " over micro-batches, which is made ", lowered.acts_per_step,
          " times a step, as ", lowered.micro_batch_sbp.ToString()));
    }
    return GroupInput{.reg = reg, .period = op.acts_per_step / lowered.acts_per_step};
  }

  // Adds the tensor's layout `sbp` on `placement`, by the cheapest route from one that it has.
  // What the route passes through is there for later consumers.
  void Box(TensorId tensor, const Placement& placement, const NdSbp& sbp) {
    Lowered& lowered = tensors_[tensor];
    const std::vector<BoxingStep>* best = nullptr;
    int64_t least = 0;
    Held from;
    std::deque<std::vector<BoxingStep>> direct;
    for (const Held& held : lowered.held) {
      const BoxingEdge edge = {.type = graph_.type(tensor),
                               .micro_batch_sbp = lowered.micro_batch_sbp,
                               .micro_batches = lowered.micro_batches,
                               .source = held.placement,
                               .destination = placement,
                               .source_sbp = held.sbp,
                               .destination_sbp = sbp};
      if (servers_.GoesDirectly(edge))
        direct.push_back({{.rule = SliceExchangeRule().name, .edge = edge}});
      const std::vector<BoxingStep>& route =
          servers_.GoesDirectly(edge) ? direct.back() : planner_.Route(edge);
      int64_t ticks = 0;
      for (const BoxingStep& step : route) ticks += step.ticks;
      const bool better =
          best == nullptr || ticks < least || (ticks == least && route.size() < best->size());
      if (!better) continue;
      best = &route;
      least = ticks;
      from = held;
    }
    if (!best->empty()) Explain(lowered.name, from, *best);
    Held at = from;
    for (const BoxingStep& step : *best) {
      std::tie(at.reg, at.part) = BuildRoute({&step, 1},
                                             {.reg = at.reg,
                                              .part = at.part,
                                              .acts_per_step = lowered.acts_per_step,
                                              .name = lowered.name,
                                              .location = graph_.producer(tensor).location},
                                             result_);
      at.placement = step.edge.destination;
      at.sbp = step.edge.destination_sbp;
      lowered.held.push_back(at);
    }
    // The route's end has the wanted bytes; it may name them otherwise.
    if (at.placement != placement || at.sbp != sbp) {
      lowered.held.push_back({at.reg, at.part, placement, sbp});
    }
  }

  void Explain(std::string_view name, const Held& from, const std::vector<BoxingStep>& route) {
    int64_t total_bytes = 0, busiest_bytes = 0, ticks = 0;
    for (const BoxingStep& step : route) {
      ticks += step.ticks;
      total_bytes += step.cost.total_bytes;
      busiest_bytes += step.cost.busiest_bytes;
    }
    std::string note =
        absl::StrCat("boxing ", std::string(name), " from ", from.sbp.ToString(), ": ",
                     absl::StrJoin(route, ", ",
                                   [](std::string* out, const BoxingStep& step) {
                                     absl::StrAppend(out, std::string(step.rule), " to ",
                                                     step.edge.destination_sbp.ToString());
                                   }),
                     "; ", total_bytes, " bytes, ", busiest_bytes, " of the busiest device");
    if (ticks > 0) absl::StrAppendFormat(&note, ", %.3g us", static_cast<double>(ticks) * 1e-4);
    result_.notes.push_back(std::move(note));
  }

  // Every read of a variable before its update, and its update before the next step.
  void OrderUpdates() {
    const std::vector<std::vector<std::pair<GroupId, int>>> consumers = result_.Consumers();
    // By data, before any control edge is added.
    std::vector<std::vector<GroupId>> producers(result_.groups().size());
    for (const TaskGroup& group : result_.groups()) {
      for (const GroupInput& input : group.inputs) {
        producers[group.id].push_back(result_.reg(input.reg).producer);
      }
    }
    GroupId of = kNone;  // whose ancestors are known
    std::vector<GroupId> seen(result_.groups().size(), kNone);
    auto is_ancestor = [&](GroupId group, GroupId update) {
      if (of != update) {
        of = update;
        std::vector<GroupId> stack = {update};
        while (!stack.empty()) {
          GroupId next = stack.back();
          stack.pop_back();
          for (GroupId producer : producers[next]) {
            if (std::exchange(seen[producer], update) != update) stack.push_back(producer);
          }
        }
      }
      return seen[group] == update;
    };
    for (const auto& [variable, owner] : owners_) {
      if (owner.update == kNone) continue;
      result_.AddControlEdge(owner.update, owner.group, /*initial_tokens=*/1);
      for (auto [reader, input] : consumers[owner.reg]) {
        if (reader == owner.update || is_ancestor(reader, owner.update)) continue;
        result_.AddControlEdge(reader, owner.update, /*initial_tokens=*/0);
      }
    }
  }

  const LogicalGraph& graph_;
  BoxingPlanner& planner_;
  std::vector<Lowered> tensors_;
  std::map<OpId, Owner> owners_;
  PhysicalGraph result_;
  ServerLowering servers_;
};

}  // namespace

absl::StatusOr<PhysicalGraph> Lower(const LogicalGraph& graph, BoxingPlanner& planner) {
  return Lowering(graph, planner).Run();
}

}  // namespace braid::compiler
