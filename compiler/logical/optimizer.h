// The pass that appends the updates of the variables. It stands after autograd.
#pragma once

#include "absl/status/statusor.h"
#include "graph/logical_graph.h"

namespace braid::compiler {

// For each variable of each Minimize request, with its gradient from graph.gradients():
// - the optimizer's states: variables "<variable>.<state>", e.g. "fc1.weight.adam_m", zeros,
//   untrainable, of the variable's type (f32 if that is narrower), placement and hint;
// - a scalar of norms that the optimizer takes, if it does (OpDef::TakesScalar);
// - the update "<variable>.<optimizer>" at the variable's placement;
// - with clip_global_norm, all gradients of the request scaled by min(1, clip / (norm + 1e-6)),
//   norm being that of all together in f32 (f64 if one of them is);
// - with a loss scale, what loss_scale.h says of it, before that: no update where a gradient is not
//   finite, the program's own assignments included, and the optimizer counts the steps that apply.
// The learning rate is the request's tensor, else a constant of its attribute `learning_rate`.
// INVALID_ARGUMENT naming the optimizer if it is not an update operator.
absl::StatusOr<LogicalGraph> Optimizer(LogicalGraph graph);

}  // namespace braid::compiler
