#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "compiler/plan/plan.pb.h"
#include "compiler/plan/plan_codec.h"
#include "runtime/base/philox.h"

namespace braid::compiler {
namespace {

uint32_t Number(const Sbp& sbp) {
  return 8 * static_cast<uint32_t>(sbp.axis) + static_cast<uint32_t>(sbp.kind);
}

// 0 for what is mostly one.
uint32_t OneIsZero(int n) { return n == 1 ? 0 : static_cast<uint32_t>(n); }

class Encoder {
 public:
  explicit Encoder(const PhysicalGraph& graph) : graph_(graph) { Text(""); }

  std::string Encode() {
    plan_.set_version(kPlanVersion);
    plan_.set_job(graph_.job);
    plan_.set_num_nodes(static_cast<uint32_t>(graph_.num_nodes));
    plan_.set_seed(graph_.seed);
    plan_.set_micro_batches(static_cast<uint32_t>(graph_.micro_batches));
    AddKinds();
    const bool is_one_host = std::ranges::all_of(
        graph_.hosts, [&](uint32_t host) { return host == graph_.hosts.front(); });
    if (!is_one_host) plan_.mutable_hosts()->Assign(graph_.hosts.begin(), graph_.hosts.end());
    for (const TaskGroup& group : graph_.groups()) AddGroup(group, *plan_.add_groups());
    for (const Register& reg : graph_.registers()) AddRegister(reg, *plan_.add_registers());
    return plan_.SerializeAsString();
  }

 private:
  uint32_t Text(std::string_view text) {
    const auto found = texts_.find(text);
    if (found != texts_.end()) return found->second;
    plan_.add_texts(std::string(text));
    return texts_.emplace(text, static_cast<uint32_t>(texts_.size())).first->second;
  }

  uint32_t PlacementNumber(const Placement& placement) {
    const auto [found, is_new] =
        placements_.try_emplace(placement, static_cast<uint32_t>(placements_.size()));
    if (!is_new) return found->second;
    plan::PlacementEntry& entry = *plan_.add_placements();
    entry.set_device_type(Text(placement.device_type()));
    for (int rank = 0; rank < placement.size(); ++rank) {
      const DeviceId& device = placement.device(rank);
      const bool continues = rank > 0 && placement.device(rank - 1).node == device.node &&
                             placement.device(rank - 1).device + 1 == device.device;
      if (continues) {
        entry.set_runs(entry.runs_size() - 1, entry.runs(entry.runs_size() - 1) + 1);
      } else {
        entry.add_runs(static_cast<uint32_t>(device.node));
        entry.add_runs(static_cast<uint32_t>(device.device));
        entry.add_runs(1);
      }
    }
    for (int64_t size : placement.hierarchy()) entry.add_hierarchy(static_cast<uint32_t>(size));
    return found->second;
  }

  uint32_t LayoutNumber(const TensorLayout& layout) {
    plan::LayoutEntry entry;
    entry.set_dtype(static_cast<uint32_t>(layout.type.dtype));
    for (int64_t size : layout.type.shape) entry.add_shape(size);
    for (const Sbp& sbp : layout.sbp.dims()) entry.add_sbp(Number(sbp));
    if (layout.micro_batches != 1) {
      entry.set_micro_batch_sbp(Number(layout.micro_batch_sbp));
      entry.set_micro_batches(static_cast<uint32_t>(layout.micro_batches));
    }
    const auto [found, is_new] =
        layouts_.try_emplace(entry.SerializeAsString(), static_cast<uint32_t>(layouts_.size()));
    if (is_new) *plan_.add_layouts() = std::move(entry);
    return found->second;
  }

  void AddKinds() {
    const std::vector<DeviceKind>& kinds = graph_.kinds.of_nodes();
    for (size_t node = 0; node < kinds.size(); ++node) {
      if (node > 0 && kinds[node] == kinds[node - 1]) {
        plan::KindEntry& entry = *plan_.mutable_kinds(plan_.kinds_size() - 1);
        entry.set_nodes(entry.nodes() + 1);
        continue;
      }
      plan::KindEntry& entry = *plan_.add_kinds();
      entry.set_name(Text(kinds[node].name));
      entry.set_is_queueing(!kinds[node].is_host);
      entry.set_does_collectives(kinds[node].does_collectives);
      entry.set_collects_in_any_order(kinds[node].collects_in_any_order);
      entry.set_nodes(1);
    }
  }

  void SetLocation(const SourceLocation& location, plan::Location* entry) {
    entry->set_file(Text(location.file));
    entry->set_line(static_cast<uint32_t>(location.line));
  }

  void AddOperands(const std::vector<OperandRef>& refs, const std::vector<TensorLayout>& layouts,
                   google::protobuf::RepeatedField<uint32_t>& numbers) {
    for (size_t i = 0; i < refs.size(); ++i) {
      numbers.Add(4 * static_cast<uint32_t>(refs[i].index) + static_cast<uint32_t>(refs[i].source));
      numbers.Add(static_cast<uint32_t>(refs[i].part));
      numbers.Add(LayoutNumber(layouts[i]));
    }
  }

  void AddGroup(const TaskGroup& group, plan::Group& entry) {
    entry.set_name(Text(group.name));
    entry.set_kind(static_cast<uint32_t>(group.work.index()));
    entry.set_placement(PlacementNumber(group.placement));
    entry.set_stream(static_cast<uint32_t>(group.stream));
    entry.set_acts_per_step(OneIsZero(group.acts_per_step));
    entry.set_deferrable(group.is_deferrable);
    for (const GroupInput& input : group.inputs) {
      entry.add_inputs(static_cast<uint32_t>(input.reg));
      entry.add_inputs(OneIsZero(input.period));
    }
    for (GroupRegisterId output : group.outputs) {
      entry.add_outputs(static_cast<uint32_t>(output));
    }
    for (const KernelCall& call : group.kernels()) {
      plan::KernelCall& kernel = *entry.add_kernels();
      kernel.set_op(Text(call.op));
      kernel.set_name(Text(call.name));
      kernel.set_attrs(Text(call.attrs.ToString()));
      SetLocation(call.location, kernel.mutable_location());
      AddOperands(call.inputs, call.input_layouts, *kernel.mutable_inputs());
      AddOperands(call.outputs, call.output_layouts, *kernel.mutable_outputs());
    }
    std::visit([&](const auto& work) { AddWork(work, entry); }, group.work);
    SetLocation(group.location, entry.mutable_location());
  }

  void AddWork(const Compute& compute, plan::Group& entry) {
    for (const Scratch& scratch : compute.scratch) {
      entry.add_scratch(LayoutNumber(scratch.layout));
      entry.add_scratch_offsets(static_cast<uint64_t>(scratch.offset));
    }
    for (size_t i = 0; i < compute.scratch.size(); ++i) {
      if (compute.scratch[i].is_kept) entry.add_kept(static_cast<uint32_t>(i));
    }
    for (const ServedVariable& variable : compute.served) {
      entry.add_served(Text(variable.name));
      entry.add_served(LayoutNumber(variable.layout));
    }
    entry.set_lanes(static_cast<uint32_t>(compute.lanes));
    for (const Turns& turns : compute.turns) {
      plan::Turns& numbers = *entry.add_turns();
      numbers.set_begin(static_cast<uint32_t>(turns.begin));
      numbers.set_count(static_cast<uint32_t>(turns.end - turns.begin));
      numbers.set_part(static_cast<uint64_t>(turns.part));
      for (int scratch : turns.staying) numbers.add_staying(static_cast<uint32_t>(scratch));
    }
  }

  void AddWork(const Exchange& exchange, plan::Group& entry) {
    AddMovement(exchange.movement, *entry.mutable_movement());
    entry.mutable_movement()->set_lanes(static_cast<uint32_t>(exchange.lanes));
  }

  void AddWork(const Collective& collective, plan::Group& entry) {
    plan::Movement& movement = *entry.mutable_movement();
    AddMovement(collective.movement, movement);
    movement.set_collective(static_cast<uint32_t>(collective.kind));
    movement.set_hierarchy_dim(static_cast<uint32_t>(collective.hierarchy_dim + 1));
    SetMethod(collective.on_one_node, *movement.mutable_on_one_node());
    SetMethod(collective.between_nodes, *movement.mutable_between_nodes());
    SetMethod(collective.between_hosts, *movement.mutable_between_hosts());
  }

  static void AddWork(const VariableOwner&, plan::Group&) {}
  static void AddWork(const Staging&, plan::Group&) {}

  void AddMovement(const Movement& movement, plan::Movement& entry) {
    entry.set_part(static_cast<uint32_t>(movement.part));
    entry.set_source(LayoutNumber(movement.source));
    entry.set_destination(LayoutNumber(movement.destination));
    entry.set_reduction(static_cast<uint32_t>(movement.reduction));
  }

  static void SetMethod(const CollectiveMethod& method, plan::Method& entry) {
    entry.set_algorithm(static_cast<uint32_t>(method.algorithm));
    entry.set_chunk_bytes(static_cast<uint64_t>(method.chunk_bytes));
  }

  void AddRegister(const Register& reg, plan::RegisterEntry& entry) {
    if (reg.placement != graph_.group(reg.producer).placement) {
      entry.set_placement(PlacementNumber(reg.placement) + 1);
    }
    bool has_variables = false;
    for (const Part& part : reg.parts) {
      entry.add_layouts(LayoutNumber(part.layout));
      entry.add_offsets(static_cast<uint64_t>(part.offset));
      has_variables = has_variables || !part.variable.empty();
    }
    for (const Part& part : reg.parts) {
      if (has_variables) entry.add_variables(Text(part.variable));
    }
    entry.set_more_slots(static_cast<uint32_t>(reg.slots - 1));
    entry.set_period(OneIsZero(reg.period));
    entry.set_initial_tokens(static_cast<uint32_t>(reg.initial_tokens));
    entry.set_slot_bytes(static_cast<uint64_t>(reg.slot_bytes));
    entry.set_gap(static_cast<uint64_t>(reg.stride - reg.slot_bytes));
    entry.set_offset(static_cast<uint64_t>(reg.offset + 1));
    entry.set_memory(static_cast<uint32_t>(reg.memory));
    entry.set_by_lane(reg.is_by_lane);
  }

  const PhysicalGraph& graph_;
  plan::Plan plan_;
  std::map<std::string, uint32_t, std::less<>> texts_;
  std::map<Placement, uint32_t> placements_;
  std::map<std::string, uint32_t> layouts_;
};

}  // namespace

std::string EncodePlan(const PhysicalGraph& graph) { return Encoder(graph).Encode(); }

uint64_t PlanFingerprint(std::string_view bytes) { return StableHash(bytes); }

}  // namespace braid::compiler
