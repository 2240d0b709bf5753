// What a step costs: the one model that the choice of SBP signatures, --dry_run and simulation ask.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "compiler/boxing/boxing.h"
#include "graph/logical_graph.h"
#include "graph/op_def.h"

namespace braid::compiler {

// Rates of one device and of its link; the defaults are one CPU core and a 10 GB/s link, as in
// BoxingCost::seconds.
struct CostModel {
  double flops_per_second = 1e11;
  double memory_bytes_per_second = 1e10;
  double link_bytes_per_second = 1e10;
  double latency = 2e-6;  // of a message

  // Seconds on one device, which is bound by arithmetic or by memory.
  double OpSeconds(double flops, double bytes) const;
  double BoxingSeconds(const BoxingCost& cost) const;
};

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

// What crosses from a tensor's producer to one of its consumers, which has chosen its signature.
BoxingEdge EdgeTo(const LogicalGraph& graph, const Op& consumer, int input);
// Layout over time of a tensor, and how often a step computes or moves it.
struct TensorTime {
  Sbp sbp = sbp::B;
  int parts = 1;
};
TensorTime TimeOf(const LogicalGraph& graph, TensorId tensor);

// One transfer that a step makes; consumers that need the same layout at the same place share it.
struct BoxingEstimate {
  TensorId tensor = kNone;
  OpId consumer = kNone;  // the first
  BoxingEdge edge;
  std::string rules;  // of the route, e.g. "all_reduce"
  BoxingCost cost;    // of the whole step
};

struct StepEstimate {
  std::map<DeviceId, double> flops;            // per device
  std::map<DeviceId, int64_t> variable_bytes;  // per device: its parts of variables and states
  double compute_seconds = 0;                  // of the busiest device
  double boxing_seconds = 0;                   // one transfer after the other
  int64_t boxing_bytes = 0;                    // between devices, all together
  std::vector<BoxingEstimate> boxing;          // in the order of first consumers
  std::string summary;                         // one line a transfer, and the totals
};

// Of a graph after InferSbp.
StepEstimate EstimateStep(const LogicalGraph& graph, BoxingPlanner& planner,
                          const CostModel& model = {});

}  // namespace braid::compiler
