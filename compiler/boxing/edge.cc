#include "compiler/boxing/edge.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"

namespace braid::compiler {

TensorLayout SourceLayout(const BoxingEdge& edge) {
  return {edge.type, edge.source_sbp, edge.micro_batch_sbp, edge.micro_batches};
}

TensorLayout DestinationLayout(const BoxingEdge& edge) {
  return {edge.type, edge.destination_sbp, edge.micro_batch_sbp, edge.micro_batches};
}

bool SameDevices(const Placement& a, const Placement& b) {
  return a.device_type() == b.device_type() && a.HasDevicesOf(b);
}

NdSbp DropUnitDims(const NdSbp& sbp, const Placement& placement) {
  NdSbp result = sbp;
  for (int dim = 0; dim < sbp.rank(); ++dim) {
    if (placement.hierarchy()[dim] == 1) result[dim] = sbp::B;
  }
  return result;
}

bool SameBoxes(const TensorLayout& a, const Placement& a_placement, const TensorLayout& b,
               const Placement& b_placement) {
  for (int rank = 0; rank < a_placement.size(); ++rank) {
    Region a_box = RegionOf(a, a_placement, rank);
    Region b_box = RegionOf(b, b_placement, rank);
    if (a_box != b_box && !(a_box.empty() && b_box.empty())) return false;
  }
  return true;
}

bool SplitsEvenly(const TensorLayout& layout, const Placement& placement) {
  Shape shape = layout.type.shape;
  if (layout.micro_batch_sbp.is_split()) shape[layout.micro_batch_sbp.axis] /= layout.micro_batches;
  for (int dim = 0; dim < layout.sbp.rank(); ++dim) {
    if (!layout.sbp[dim].is_split()) continue;
    int64_t& n = shape[layout.sbp[dim].axis];
    if (n % placement.hierarchy()[dim] != 0) return false;
    n /= placement.hierarchy()[dim];
  }
  return true;
}

std::optional<BoxingEdge> MergeDims(const BoxingEdge& edge) {
  if (edge.source != edge.destination) return std::nullopt;
  const std::vector<int64_t>& hierarchy = edge.source.hierarchy();
  const bool even = SplitsEvenly(SourceLayout(edge), edge.source) &&
                    SplitsEvenly(DestinationLayout(edge), edge.destination);
  std::vector<int64_t> merged;
  std::vector<Sbp> source, destination;
  for (size_t dim = 0; dim < hierarchy.size(); ++dim) {
    if (hierarchy[dim] == 1) continue;
    const Sbp& from = edge.source_sbp[dim];
    const Sbp& to = edge.destination_sbp[dim];
    // A split inside a split gives the boxes of one split only if all parts are equal.
    const bool same_boxes = even || (!from.is_split() && !to.is_split());
    if (!merged.empty() && source.back() == from && destination.back() == to && same_boxes) {
      merged.back() *= hierarchy[dim];
      continue;
    }
    merged.push_back(hierarchy[dim]);
    source.push_back(from);
    destination.push_back(to);
  }
  if (merged.empty()) {
    merged = {1};
    source = destination = {sbp::B};
  }
  absl::StatusOr<Placement> placement = edge.source.WithHierarchy(merged);
  CHECK(placement.ok()) << placement.status().ToString();
  BoxingEdge result = edge;
  result.source = result.destination = *std::move(placement);
  result.source_sbp = NdSbp(std::move(source));
  result.destination_sbp = NdSbp(std::move(destination));
  return result;
}

GroupRegisterId AddBoxingGroup(TaskGroup group, const Placement& placement, TensorLayout layout,
                               const BoxingRule::Source& source, PhysicalGraph& graph) {
  group.placement = placement;
  group.acts_per_step = source.acts_per_step;
  group.location = source.location;
  group.inputs = {{.reg = source.reg}};
  TaskGroup& added = graph.AddGroup(std::move(group));
  Register& reg = graph.AddRegister({.name = added.name, .placement = placement, .parts = {}});
  reg.parts.push_back(
      {.layout = std::move(layout), .variable = "", .name = std::string(source.name)});
  reg.producer = added.id;
  added.outputs = {reg.id};
  return reg.id;
}

GroupRegisterId AddKernelGroup(std::string op, Attrs attrs, const TensorLayout& from,
                               const TensorLayout& to, const Placement& placement,
                               const BoxingRule::Source& source, PhysicalGraph& graph) {
  TaskGroup group;
  group.name = absl::StrCat(std::string(source.name), ".", op);
  std::get<Compute>(group.work)
      .kernels.push_back(
          {.op = std::move(op),
           .name = group.name,
           .attrs = std::move(attrs),
           .location = source.location,
           .inputs = {{.source = OperandRef::Source::kInput, .index = 0, .part = source.part}},
           .outputs = {{.source = OperandRef::Source::kOutput, .index = 0, .part = 0}},
           .input_layouts = {from},
           .output_layouts = {to}});
  return AddBoxingGroup(std::move(group), placement, to, source, graph);
}

}  // namespace braid::compiler
