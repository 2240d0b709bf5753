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
// - with an attribute `ema` of the request, the variable "<variable>.ema", which moves towards the
//   variable: ema * average + (1 - ema) * value, of the values that steps begin with; the first
//   step's is taken whole, which "<first variable>.ema_begun" remembers;
// - with an attribute `norms`, fetches of the gradients' norms before clipping: of all under that
//   name, and of each group under "<name>.<the group's names>";
// - with clip_global_norm, all gradients of the request scaled by min(1, clip / (norm + 1e-6)),
//   norm being that of all together in f32 (f64 if one of them is);
// - with a loss scale, what loss_scale.h says of it, before that: no update where a gradient is not
//   finite, the program's own assignments included, and the optimizer counts the steps that apply.
// The learning rate is the request's tensor, else a constant of its attribute `learning_rate`; the
// update has all attributes but these three.
// INVALID_ARGUMENT naming the optimizer if it is not an update operator; ALREADY_EXISTS if
// something else is fetched under the name of a norm.
absl::StatusOr<LogicalGraph> Optimizer(LogicalGraph graph);

}  // namespace braid::compiler
