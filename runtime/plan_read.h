// From a node's part of the Plan to the structs that kernels and actions are made with.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "comm/collective/collective.h"
#include "compiler/plan/node_plan.h"
#include "compiler/plan/physical_graph.h"
#include "graph/sbp.h"
#include "runtime/kernels/kernel.h"

namespace braid {

constexpr uint64_t kArenaAlignment = compiler::kArenaAlignment;

OperandSpec OperandOf(const plan::Shard& shard);
int64_t BytesOf(const OperandSpec& operand);

// A plan and what one node makes of it.
struct ReadPlan {
  std::unique_ptr<const compiler::PhysicalGraph> graph;
  plan::NodePlan part;  // borrows from the graph
};

// The plan whose bytes the master sent: DATA_LOSS naming both fingerprints if they are others; else
// what DecodePlan and ExpandPlan say.
absl::StatusOr<ReadPlan> ReadNodePlan(std::string_view bytes, uint64_t fingerprint, int node);

// All but `seed` and `threads`.
KernelSpec KernelSpecOf(const plan::Kernel& kernel);
// With the job's own number as id. Of members on several nodes whose devices do the work: how they
// meet, an all_gather of a word of kDeviceWordBytes from rank 0 and a byte from each other.
CollectiveSpec CollectiveSpecOf(const plan::NodePlan& plan, const plan::Task& task);

}  // namespace braid
