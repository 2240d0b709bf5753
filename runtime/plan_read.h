// From the Plan's messages to the structs that kernels and actions are made with.
#pragma once

#include "compiler/plan.pb.h"
#include "graph/sbp.h"
#include "runtime/kernels/kernel.h"

namespace braid {

OperandSpec OperandOf(const plan::Shard& shard);
Region RegionOf(const google::protobuf::RepeatedField<int64_t>& offset,
                const google::protobuf::RepeatedField<int64_t>& size);
int64_t BytesOf(const OperandSpec& operand);

}  // namespace braid
