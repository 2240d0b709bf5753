// The pass that cuts a step into micro-batches. It stands after infer_placement (a reshape must
// survive both the split over time and the one over devices) and before infer_sbp.
#pragma once

#include "absl/status/statusor.h"
#include "graph/logical_graph.h"

namespace braid::compiler {

// With m = micro_batches of the graph's Minimize requests, time becomes one more dimension with m
// parts, and ops run with their own signatures over it. What it sets:
// - rate 1: one act a step on whole values; input_time and output_time are empty;
// - rate m: m acts a step; input_time and output_time have one Sbp per operand. S(a): act t sees
//   part t of axis a. P: each act gives an addend. An input B has rate 1 and serves all acts; an
//   output B has rate 1 and is complete after all acts;
// - `accumulate` ops ("<op>.accumulate", rate m, P -> B) turn an addend per act into one value of
//   rate 1, for all consumers that need the sum. No op of rate m depends on such a value.
// Readers and feeds are cut along their first axis (scalars are not cut). A fetch of a cut tensor
// has rate m: the host joins the pieces along input_time[0].axis. Values that can be computed in
// pieces (constants, random masks, what is broadcast from them) are, where a piece is asked for.
// With m = 1 every op gets rate 1.
// INVALID_ARGUMENT naming op, line and m if m does not divide a batch, or an op needs the whole
// batch (batch statistics, a sort over the batch).
absl::StatusOr<LogicalGraph> MicroBatch(LogicalGraph graph);

}  // namespace braid::compiler
