#include "runtime/plan_read.h"

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

}  // namespace braid
