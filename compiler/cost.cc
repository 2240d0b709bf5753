#include "compiler/cost.h"

#include <glog/logging.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "compiler/logical/op_roles.h"
#include "compiler/logical/placement_table.h"

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

}  // namespace

double CostModel::OpSeconds(double flops, double bytes) const {
  return std::max(flops / flops_per_second, bytes / memory_bytes_per_second);
}

double CostModel::BoxingSeconds(const BoxingCost& cost) const {
  return latency * cost.messages + static_cast<double>(cost.busiest_bytes) / link_bytes_per_second;
}

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
  std::vector<TensorType> inputs, outputs;
  for (TensorId id : op.inputs) inputs.push_back(graph.type(id));
  for (TensorId id : op.outputs) outputs.push_back(graph.type(id));
  const std::vector<int64_t>& hierarchy = op.placement->hierarchy();
  OpWork work;
  work.flops = DefOf(graph, op).CountFlops({op.attrs, inputs, outputs}) /
               static_cast<double>(WorkingParts(op.input_sbp, op.output_sbp, hierarchy));
  // An operand that is cut over time is touched once a step in all, another by every act.
  const auto acts = [&op](const std::vector<Sbp>& time, size_t i) {
    return op.rate == 1 || time[i].is_split() ? 1 : op.rate;
  };
  for (size_t i = 0; i < inputs.size(); ++i) {
    work.bytes += acts(op.input_time, i) * BytesOnDevice(inputs[i], op.input_sbp[i], hierarchy);
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    work.bytes += acts(op.output_time, i) * BytesOnDevice(outputs[i], op.output_sbp[i], hierarchy);
  }
  return work;
}

TensorTime TimeOf(const LogicalGraph& graph, TensorId tensor) {
  const TensorInfo& info = graph.tensor(tensor);
  const Op& producer = graph.op(info.producer);
  if (producer.rate == 1 || producer.output_time[info.output].is_broadcast()) return {};
  return {producer.output_time[info.output], producer.rate};
}

BoxingEdge EdgeTo(const LogicalGraph& graph, const Op& consumer, int input) {
  const TensorId tensor = consumer.inputs[input];
  const TensorInfo& info = graph.tensor(tensor);
  const Op& producer = graph.op(info.producer);
  const TensorTime time = TimeOf(graph, tensor);
  BoxingEdge edge;
  edge.type = info.type;
  edge.time = time.sbp;
  edge.time_parts = time.parts;
  edge.source = *producer.placement;
  edge.destination = *consumer.placement;
  edge.source_sbp = producer.output_sbp[info.output];
  edge.destination_sbp = consumer.input_sbp[input];
  return edge;
}

StepEstimate EstimateStep(const LogicalGraph& graph, BoxingPlanner& planner,
                          const CostModel& model) {
  StepEstimate estimate;
  PlacementTable placements;
  struct Load {
    double flops = 0, seconds = 0;
    int64_t variable_bytes = 0;
  };
  std::vector<Load> loads;  // per placement, of each of its devices
  std::vector<int> placement_of;
  for (const Op& op : graph.ops()) {
    CHECK(op.placement.has_value()) << op.name;
    const int id = placements.Id(*op.placement);
    placement_of.push_back(id);
    loads.resize(placements.size());
    const OpWork work = WorkOf(graph, op);
    if (IsVariable(op)) {
      loads[id].variable_bytes += static_cast<int64_t>(work.bytes);
      continue;
    }
    loads[id].flops += work.flops;
    if (!DefOf(graph, op).external()) loads[id].seconds += model.OpSeconds(work.flops, work.bytes);
  }
  std::map<DeviceId, double> seconds;
  for (int id = 0; id < placements.size(); ++id) {
    for (const DeviceId& device : placements[id].devices()) {
      estimate.flops[device] += loads[id].flops;
      estimate.variable_bytes[device] += loads[id].variable_bytes;
      seconds[device] += loads[id].seconds;
    }
  }
  double busiest_flops = 0;
  int64_t most_variable_bytes = 0;
  for (const auto& [device, flops] : estimate.flops) {
    busiest_flops = std::max(busiest_flops, flops);
    most_variable_bytes = std::max(most_variable_bytes, estimate.variable_bytes[device]);
    estimate.compute_seconds = std::max(estimate.compute_seconds, seconds[device]);
  }

  std::map<std::tuple<TensorId, int, NdSbp>, OpId> made;
  for (const Op& op : graph.ops()) {
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      const TensorInfo& info = graph.tensor(op.inputs[i]);
      const NdSbp& source_sbp = graph.op(info.producer).output_sbp[info.output];
      const int to = placement_of[op.id];
      if (placement_of[info.producer] == to && source_sbp == op.input_sbp[i]) continue;
      if (!made.try_emplace({op.inputs[i], to, op.input_sbp[i]}, op.id).second) continue;
      BoxingEstimate boxing;
      boxing.tensor = op.inputs[i];
      boxing.consumer = op.id;
      boxing.edge = EdgeTo(graph, op, static_cast<int>(i));
      for (const BoxingStep& step : planner.Route(boxing.edge)) {
        absl::StrAppend(&boxing.rules, boxing.rules.empty() ? "" : " + ", std::string(step.rule));
        for (int act = 0; act < boxing.edge.time_parts; ++act) {
          boxing.cost = boxing.cost + step.cost;
        }
      }
      estimate.boxing_bytes += boxing.cost.total_bytes;
      estimate.boxing_seconds += model.BoxingSeconds(boxing.cost);
      if (boxing.cost.total_bytes > 0) {
        absl::StrAppendFormat(&estimate.summary, "%12d bytes  %s: %s -> %s for %s (%s)\n",
                              boxing.cost.total_bytes, graph.producer(boxing.tensor).name,
                              source_sbp.ToString(), op.input_sbp[i].ToString(), op.name,
                              boxing.rules);
      }
      estimate.boxing.push_back(std::move(boxing));
    }
  }
  absl::StrAppendFormat(
      &estimate.summary,
      "%d ops; per device %.4g flops, %d bytes of variables; %d bytes moved; compute %.3g s, "
      "transfers %.3g s a step\n",
      graph.ops().size(), busiest_flops, most_variable_bytes, estimate.boxing_bytes,
      estimate.compute_seconds, estimate.boxing_seconds);
  return estimate;
}

}  // namespace braid::compiler
