#include "runtime/plan_read.h"

#include "absl/strings/str_format.h"
#include "compiler/plan/expand.h"
#include "compiler/plan/plan_codec.h"
#include "runtime/base/status.h"
#include "runtime/box.h"

namespace braid {

Region RegionOf(const google::protobuf::RepeatedField<int64_t>& offset,
                const google::protobuf::RepeatedField<int64_t>& size) {
  Region region;
  region.offset.assign(offset.begin(), offset.end());
  region.size = Shape(std::vector<int64_t>(size.begin(), size.end()));
  return region;
}

OperandSpec OperandOf(const plan::Shard& shard) {
  OperandSpec operand;
  operand.dtype = static_cast<DType>(shard.dtype());
  operand.logical = Shape(std::vector<int64_t>(shard.logical().begin(), shard.logical().end()));
  operand.region = RegionOf(shard.offset(), shard.size());
  operand.time_axis = shard.time_axis() - 1;
  operand.time_stride = shard.time_stride();
  operand.partial = shard.partial();
  return operand;
}

int64_t BytesOf(const OperandSpec& operand) {
  return operand.num_elements() * static_cast<int64_t>(SizeOf(operand.dtype));
}

absl::StatusOr<plan::NodePlan> ReadNodePlan(std::string_view bytes, uint64_t fingerprint,
                                            int node) {
  if (const uint64_t here = compiler::PlanFingerprint(bytes); here != fingerprint) {
    return absl::DataLossError(absl::StrFormat(
        "node %d: a plan of %d bytes came with fingerprint %016x, the master sent %016x; something "
        "between them changed it",
        node, bytes.size(), here, fingerprint));
  }
  ASSIGN_OR_RETURN(const compiler::PhysicalGraph graph, compiler::DecodePlan(bytes));
  return compiler::ExpandPlan(graph, node);
}

absl::StatusOr<KernelSpec> KernelSpecOf(const plan::Kernel& kernel) {
  KernelSpec spec;
  spec.op = kernel.op();
  spec.name = kernel.name();
  ASSIGN_OR_RETURN(spec.attrs, Attrs::Parse(kernel.attrs()));
  spec.contributes = kernel.contributes();
  for (const plan::Operand& operand : kernel.inputs()) {
    spec.inputs.push_back(OperandOf(operand.shard()));
  }
  for (const plan::Operand& operand : kernel.outputs()) {
    spec.outputs.push_back(OperandOf(operand.shard()));
  }
  return spec;
}

CollectiveSpec CollectiveSpecOf(const plan::NodePlan& plan, const plan::Task& task) {
  const plan::Collective& collective = task.collective();
  CollectiveSpec spec;
  spec.id = collective.id();
  spec.name = task.name();
  spec.kind = static_cast<CollectiveKind>(collective.kind());
  const plan::Members& members = plan.members(static_cast<int>(collective.members()));
  for (int i = 0; i < members.nodes_size(); ++i) {
    spec.members.push_back({static_cast<uint16_t>(members.nodes(i)), members.devices(i)});
  }
  spec.my_rank = static_cast<int>(collective.rank());
  const auto dtype = static_cast<DType>(collective.dtype());
  spec.element_size = static_cast<int64_t>(SizeOf(dtype));
  spec.counts.assign(collective.counts().begin(), collective.counts().end());
  spec.reduce = CombineFunction(dtype, static_cast<Sbp::Kind>(collective.reduction()));
  spec.chunk_bytes = static_cast<int64_t>(collective.chunk_bytes());
  spec.algorithm = static_cast<CollectiveAlgorithm>(collective.algorithm());
  return spec;
}

}  // namespace braid
