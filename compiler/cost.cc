#include "compiler/cost.h"

#include <glog/logging.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "compiler/logical/placement_table.h"
#include "graph/op_roles.h"

namespace braid::compiler {
namespace {

double BytesOnDevice(const TensorType& type, const NdSbp& sbp,
                     const std::vector<int64_t>& hierarchy) {
  double bytes = static_cast<double>(type.shape.num_elements()) * SizeOf(type.dtype);
  for (int d = 0; d < sbp.rank(); ++d) {
    if (sbp[d].is_split()) bytes /= static_cast<double>(hierarchy[d]);
  }
  return bytes;
}

// What the ops of a placement make each of its devices do.
struct Load {
  double flops = 0, seconds = 0;
  int64_t variable_bytes = 0;
};

// Per placement, and the placement of each op.
struct Loads {
  PlacementTable placements;
  std::vector<Load> of_placement;
  std::vector<int> placement_of;
};

Loads LoadsOf(const LogicalGraph& graph, const Machine& machine) {
  Loads loads;
  for (const Op& op : graph.ops()) {
    CHECK(op.placement.has_value()) << op.name;
    const int id = loads.placements.Id(*op.placement);
    loads.placement_of.push_back(id);
    loads.of_placement.resize(loads.placements.size());
    const OpWork work = WorkOf(graph, op);
    Load& load = loads.of_placement[id];
    if (IsVariable(graph, op)) {
      load.variable_bytes += static_cast<int64_t>(work.bytes);
      continue;
    }
    load.flops += work.flops;
    if (DefOf(graph, op).external()) continue;
    load.seconds += machine.WorkSeconds({.kind = op.placement->device_type(),
                                         .dtype = ProductTypeOf(graph, op),
                                         .flops = work.flops,
                                         .bytes = work.bytes});
  }
  return loads;
}

// The busiest device's share; what each device has goes into `estimate`.
Load BusiestOf(const Loads& loads, StepEstimate& estimate) {
  std::map<DeviceId, double> seconds;
  for (int id = 0; id < loads.placements.size(); ++id) {
    const Load& load = loads.of_placement[id];
    for (const DeviceId& device : loads.placements[id].devices()) {
      estimate.flops[device] += load.flops;
      estimate.variable_bytes[device] += load.variable_bytes;
      seconds[device] += load.seconds;
    }
  }
  Load busiest;
  for (const auto& [device, flops] : estimate.flops) {
    busiest.flops = std::max(busiest.flops, flops);
    busiest.variable_bytes = std::max(busiest.variable_bytes, estimate.variable_bytes[device]);
    busiest.seconds = std::max(busiest.seconds, seconds[device]);
  }
  return busiest;
}

// Of one transfer, over all acts of a step.
void AddRoute(const std::vector<BoxingStep>& route, const Machine& machine,
              BoxingEstimate& boxing) {
  const int acts = boxing.edge.micro_batches;
  for (const BoxingStep& step : route) {
    absl::StrAppend(&boxing.rules, boxing.rules.empty() ? "" : " + ", std::string(step.rule));
    boxing.total_bytes += acts * step.cost.total_bytes;
    boxing.messages += acts * step.cost.messages;
    boxing.seconds += acts * step.cost.Seconds(machine);
  }
}

}  // namespace

int64_t WorkingParts(const std::vector<NdSbp>& inputs, const std::vector<NdSbp>& outputs,
                     const std::vector<int64_t>& hierarchy) {
  int64_t parts = 1;
  for (size_t d = 0; d < hierarchy.size(); ++d) {
    const auto is_split = [d](const NdSbp& sbp) { return sbp[static_cast<int>(d)].is_split(); };
    if (std::ranges::any_of(inputs, is_split) || std::ranges::any_of(outputs, is_split)) {
      parts *= hierarchy[d];
    }
  }
  return parts;
}

OpWork WorkOf(const LogicalGraph& graph, const Op& op) {
  if (DefOf(graph, op).mirrors().has_value()) return {};
  std::vector<TensorType> inputs, outputs;
  for (TensorId id : op.inputs) inputs.push_back(graph.type(id));
  for (TensorId id : op.outputs) outputs.push_back(graph.type(id));
  const std::vector<int64_t>& hierarchy = op.placement->hierarchy();
  OpWork work;
  work.flops = DefOf(graph, op).CountFlops({op.attrs, inputs, outputs}) /
               static_cast<double>(WorkingParts(op.input_sbp, op.output_sbp, hierarchy));
  // An operand that is cut into micro-batches is touched once a step in all, another by every act.
  const auto acts = [&op](const std::vector<Sbp>& sbp, size_t i) {
    return op.acts_per_step == 1 || sbp[i].is_split() ? 1 : op.acts_per_step;
  };
  for (size_t i = 0; i < inputs.size(); ++i) {
    work.bytes +=
        acts(op.input_micro_batch_sbp, i) * BytesOnDevice(inputs[i], op.input_sbp[i], hierarchy);
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    work.bytes +=
        acts(op.output_micro_batch_sbp, i) * BytesOnDevice(outputs[i], op.output_sbp[i], hierarchy);
  }
  return work;
}

DType ProductTypeOf(const LogicalGraph& graph, const Op& op) {
  return op.inputs.empty() ? DType::kF32 : graph.type(op.inputs[0]).dtype;
}

MicroBatchLayout MicroBatchLayoutOf(const LogicalGraph& graph, TensorId tensor) {
  const TensorInfo& info = graph.tensor(tensor);
  const Op& producer = graph.op(info.producer);
  if (producer.acts_per_step == 1 || producer.output_micro_batch_sbp[info.output].is_broadcast())
    return {};
  return {producer.output_micro_batch_sbp[info.output], producer.acts_per_step};
}

BoxingEdge EdgeTo(const LogicalGraph& graph, const Op& consumer, int input) {
  const TensorId tensor = consumer.inputs[input];
  const TensorInfo& info = graph.tensor(tensor);
  const Op& producer = graph.op(info.producer);
  const MicroBatchLayout micro_batch = MicroBatchLayoutOf(graph, tensor);
  BoxingEdge edge;
  edge.type = info.type;
  edge.micro_batch_sbp = micro_batch.sbp;
  edge.micro_batches = micro_batch.micro_batches;
  edge.source = *producer.placement;
  edge.destination = *consumer.placement;
  edge.source_sbp = producer.output_sbp[info.output];
  edge.destination_sbp = consumer.input_sbp[input];
  return edge;
}

StepEstimate EstimateStep(const LogicalGraph& graph, BoxingPlanner& planner,
                          const Machine& machine) {
  StepEstimate estimate;
  estimate.origin = machine.origin;
  const Loads loads = LoadsOf(graph, machine);
  const Load busiest = BusiestOf(loads, estimate);
  estimate.compute_seconds = busiest.seconds;

  std::map<std::tuple<TensorId, int, NdSbp>, OpId> made;
  for (const Op& op : graph.ops()) {
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      const TensorInfo& info = graph.tensor(op.inputs[i]);
      const NdSbp& source_sbp = graph.op(info.producer).output_sbp[info.output];
      const int to = loads.placement_of[op.id];
      if (loads.placement_of[info.producer] == to && source_sbp == op.input_sbp[i]) continue;
      if (!made.try_emplace({op.inputs[i], to, op.input_sbp[i]}, op.id).second) continue;
      BoxingEstimate boxing;
      boxing.tensor = op.inputs[i];
      boxing.consumer = op.id;
      boxing.edge = EdgeTo(graph, op, static_cast<int>(i));
      AddRoute(planner.Route(boxing.edge), machine, boxing);
      estimate.boxing_bytes += boxing.total_bytes;
      estimate.boxing_seconds += boxing.seconds;
      estimate.boxing.push_back(std::move(boxing));
    }
  }
  estimate.summary = absl::StrFormat(
      "%d ops; per device %.4g flops, %d bytes of variables; %d bytes moved; compute %.3g s, "
      "transfers %.3g s a step\n",
      graph.ops().size(), busiest.flops, busiest.variable_bytes, estimate.boxing_bytes,
      estimate.compute_seconds, estimate.boxing_seconds);
  return estimate;
}

}  // namespace braid::compiler
