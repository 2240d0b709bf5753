// The pass that appends the backward ops of every Minimize. It stands first: it sees the job as
// written and never thinks of devices; the transfers between gradients come out of boxing.
#pragma once

#include "absl/status/statusor.h"
#include "graph/logical_graph.h"

namespace braid::compiler {

// For each Minimize request it
// - lists the variables that get a gradient (if the user listed none: every trainable one that the
//   loss reaches) in the request, and their gradients in graph.gradients(), also those of tensors
//   that have an entry of kNone there (the first request whose loss depends on one gives it);
// - replaces `gradient_of` ops by the gradients that they stand for.
// Only ops between those tensors and the loss get backward ops. Of op "f" they are named
// "f.grad.<type>", have forward = f, its placement and its line; several gradients of one tensor
// are added where they meet. No gradient flows through integers and bools.
// Where the request has a loss scale, the backward pass begins with it instead of 1, and gradients
// that were asked for are divided by it.
// The gradients of ops in a block (Op::block) are made of the block's values computed once more:
// its ops again, named "f.grad.again", behind `after` ops that hold them back until a gradient has
// come.
// INVALID_ARGUMENT naming op and line if a loss is no floating scalar or depends on no variable, or
// if an op between has no gradient.
absl::StatusOr<LogicalGraph> Autograd(LogicalGraph graph);

}  // namespace braid::compiler
