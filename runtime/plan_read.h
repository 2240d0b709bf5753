// From the Plan's messages to the structs that kernels and actions are made with.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "comm/collective/collective.h"
#include "compiler/plan/node_plan.pb.h"
#include "compiler/plan/physical_graph.h"
#include "graph/sbp.h"
#include "runtime/kernels/kernel.h"

namespace braid {

// A plan's thread is device * kNumStreams + stream.
constexpr uint32_t kNumStreams = compiler::kNumStreams;
constexpr uint64_t kArenaAlignment = compiler::kArenaAlignment;

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
