// What a step costs: the work of ops and the transfers between them, and their time on a Machine.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "compiler/boxing/boxing.h"
#include "compiler/machine.h"
#include "graph/logical_graph.h"
#include "graph/op_def.h"

namespace braid::compiler {

// The devices that share the work of a signature: the product of the dimensions of `hierarchy` on
// which some operand is split. On the others all devices do the same (B), or whole addends (P).
int64_t WorkingParts(const std::vector<NdSbp>& inputs, const std::vector<NdSbp>& outputs,
                     const std::vector<int64_t>& hierarchy);

// Of one device in one step (all micro-batches). Needs the op's signature.
struct OpWork {
  double flops = 0;
  double bytes = 0;  // of its operands, read or written
};
OpWork WorkOf(const LogicalGraph& graph, const Op& op);
// What the op's products are of: its first input's type, f32 if it has none.
DType ProductTypeOf(const LogicalGraph& graph, const Op& op);

// What crosses from a tensor's producer to one of its consumers, which has chosen its signature.
BoxingEdge EdgeTo(const LogicalGraph& graph, const Op& consumer, int input);
// Layout of a tensor over micro-batches, and how often a step computes or moves it.
struct MicroBatchLayout {
  Sbp sbp = sbp::B;
  int micro_batches = 1;
};
MicroBatchLayout MicroBatchLayoutOf(const LogicalGraph& graph, TensorId tensor);

// One transfer that a step makes; consumers that need the same layout at the same place share it.
struct BoxingEstimate {
  TensorId tensor = kNone;
  OpId consumer = kNone;  // the first
  BoxingEdge edge;
  std::string rules;  // of the route, e.g. "all_reduce"
  // Of the whole step.
  int64_t total_bytes = 0;
  int64_t messages = 0;
  double seconds = 0;
};

struct StepEstimate {
  std::map<DeviceId, double> flops;            // per device
  std::map<DeviceId, int64_t> variable_bytes;  // per device: its parts of variables and states
  double compute_seconds = 0;                  // of the busiest device
  double boxing_seconds = 0;                   // one transfer after the other
  std::string origin;                          // of the machine's rates
  int64_t boxing_bytes = 0;                    // between devices, all together
  std::vector<BoxingEstimate> boxing;          // in the order of first consumers
  std::string summary;                         // a line of the totals
};

// Of a graph after InferSbp, by the planner's routes, in the time of `machine`, whose hosts are
// those of the planner's.
StepEstimate EstimateStep(const LogicalGraph& graph, BoxingPlanner& planner,
                          const Machine& machine);

}  // namespace braid::compiler
