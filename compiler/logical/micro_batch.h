// The pass that cuts a step into micro-batches. It stands after infer_placement (a reshape should
// survive both the split into micro-batches and the one over devices) and before infer_sbp.
#pragma once

#include "absl/status/statusor.h"
#include "graph/logical_graph.h"

namespace braid::compiler {

// With m = micro_batches of the graph's Minimize requests, micro-batches become one more dimension
// with m parts, and ops run with their own signatures over it. What it sets:
// - acts_per_step 1: one act a step on whole values; input_micro_batch_sbp and
//   output_micro_batch_sbp are empty;
// - acts_per_step m: these have one Sbp per operand. S(a): act t sees part t of axis a. P: each act
//   gives an addend. An input B is made once a step and serves all acts; an output B is complete
//   after all acts;
// - `accumulate` ops ("<op>.accumulate", m acts a step, P -> B) turn an addend per act into one
//   value a step, for all consumers that need the sum. Addends that meet such a value become one,
//   too; an op that acts m times on other parts takes it whole, and so waits for all acts of all
//   that led to it: what is less the mean of the batch, or the gradient of a mean over the labels
//   that count.
// Readers and feeds are cut along their first axis (scalars are not cut). A fetch of a cut tensor
// acts m times: the host joins the pieces along input_micro_batch_sbp[0].axis. Values that can be
// computed in pieces (constants, random masks, what is broadcast from them) are, where a piece is
// asked for. With m = 1 every op acts once a step.
// INVALID_ARGUMENT naming op, line and m if m does not divide a batch, an op needs the whole batch
// at once (a sort over the batch), or there is no batch.
absl::StatusOr<LogicalGraph> MicroBatch(LogicalGraph graph);

}  // namespace braid::compiler
