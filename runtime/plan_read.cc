#include "runtime/plan_read.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "compiler/plan/expand.h"
#include "compiler/plan/plan_codec.h"
#include "runtime/base/status.h"
#include "runtime/device/box.h"
#include "runtime/device/device_group.h"

namespace braid {

OperandSpec OperandOf(const plan::Shard& shard) {
  const compiler::TensorLayout& layout = *shard.layout;
  OperandSpec operand;
  operand.dtype = layout.type.dtype;
  operand.logical = layout.type.shape;
  operand.region = shard.region;
  if (layout.micro_batch_sbp.is_split()) {
    operand.micro_batch_axis = layout.micro_batch_sbp.axis;
    operand.micro_batch_stride =
        layout.type.shape[layout.micro_batch_sbp.axis] / layout.micro_batches;
  }
  operand.partial = layout.sbp.has_partial();
  return operand;
}

int64_t BytesOf(const OperandSpec& operand) {
  return operand.num_elements() * static_cast<int64_t>(SizeOf(operand.dtype));
}

absl::StatusOr<ReadPlan> ReadNodePlan(std::string_view bytes, uint64_t fingerprint, int node) {
  if (const uint64_t here = compiler::PlanFingerprint(bytes); here != fingerprint) {
    return absl::DataLossError(absl::StrFormat(
        "node %d: a plan of %d bytes came with fingerprint %016x, the master sent %016x; something "
        "between them changed it",
        node, bytes.size(), here, fingerprint));
  }
  BRAID_ASSIGN_OR_RETURN(compiler::PhysicalGraph graph, compiler::DecodePlan(bytes));
  ReadPlan plan{std::make_unique<const compiler::PhysicalGraph>(std::move(graph)), {}};
  BRAID_ASSIGN_OR_RETURN(plan.part, compiler::ExpandPlan(*plan.graph, node));
  return plan;
}

KernelSpec KernelSpecOf(const plan::Kernel& kernel) {
  KernelSpec spec;
  spec.op = kernel.call->op;
  spec.name = kernel.call->name;
  spec.attrs = kernel.call->attrs;
  spec.contributes = kernel.contributes;
  spec.replica = kernel.replica;
  spec.replicas = kernel.replicas;
  spec.mirror = kernel.mirror;
  for (const plan::Operand& operand : kernel.inputs) {
    spec.inputs.push_back(OperandOf(operand.shard));
  }
  for (const plan::Operand& operand : kernel.outputs) {
    spec.outputs.push_back(OperandOf(operand.shard));
  }
  return spec;
}

namespace {

bool AreOnOneNode(const std::vector<Member>& members) {
  return std::ranges::all_of(members,
                             [&](const Member& member) { return member.node == members[0].node; });
}

}  // namespace

CollectiveSpec CollectiveSpecOf(const plan::NodePlan& plan, const plan::Task& task) {
  const auto& collective = std::get<plan::Collective>(task.work);
  CollectiveSpec spec;
  spec.id = collective.id;
  spec.name = std::string(task.name);
  spec.kind = collective.kind;
  const plan::Members& members = plan.members[collective.members];
  for (size_t i = 0; i < members.nodes.size(); ++i) {
    spec.members.push_back(
        {static_cast<uint16_t>(members.nodes[i]), members.devices[i], members.hosts[i]});
  }
  spec.my_rank = static_cast<int>(collective.rank);
  spec.element_size = static_cast<int64_t>(SizeOf(collective.dtype));
  spec.counts = collective.counts;
  spec.receives = collective.receives;
  spec.reduce = CombineFunction(collective.dtype, collective.reduction);
  spec.chunk_bytes = static_cast<int64_t>(collective.chunk_bytes);
  spec.algorithm = collective.algorithm;
  if (spec.algorithm == CollectiveAlgorithm::kDevice && !AreOnOneNode(spec.members)) {
    // They meet, and hear what rank 0 has to say.
    spec.kind = CollectiveKind::kAllGather;
    spec.element_size = 1;
    spec.counts.assign(spec.members.size(), 1);
    spec.counts[0] = kDeviceWordBytes;
    spec.receives.clear();
    spec.reduce = nullptr;
    spec.algorithm = CollectiveAlgorithm::kDoubling;
  }
  return spec;
}

}  // namespace braid
