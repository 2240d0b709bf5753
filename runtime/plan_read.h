// From the Plan's messages to the structs that kernels and actions are made with.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "comm/collective/collective.h"
#include "compiler/plan/node_plan.pb.h"
#include "graph/sbp.h"
#include "runtime/kernels/kernel.h"

namespace braid {

// Of a device: compute, input, transfer. A plan's thread is device * 3 + stream.
constexpr uint32_t kNumStreams = 3;
constexpr uint64_t kArenaAlignment = 64;  // of registers and scratch areas

OperandSpec OperandOf(const plan::Shard& shard);
Region RegionOf(const google::protobuf::RepeatedField<int64_t>& offset,
                const google::protobuf::RepeatedField<int64_t>& size);
int64_t BytesOf(const OperandSpec& operand);

// The node's part of the plan whose bytes the master sent: DATA_LOSS naming both fingerprints if
// they are others; else what DecodePlan and ExpandPlan say.
absl::StatusOr<plan::NodePlan> ReadNodePlan(std::string_view bytes, uint64_t fingerprint, int node);

// All but `seed` and `threads`.
absl::StatusOr<KernelSpec> KernelSpecOf(const plan::Kernel& kernel);
// With the job's own number as id.
CollectiveSpec CollectiveSpecOf(const plan::NodePlan& plan, const plan::Task& task);

}  // namespace braid
