// Losses times a factor that follows the gradients, so that f16 neither loses small ones nor
// overflows: Micikevicius et al., arXiv 1710.03740, with the constants of torch.amp.GradScaler.
#pragma once

#include <vector>

#include "graph/logical_graph.h"

namespace braid::compiler {

// Gives each Minimize request its factor: the variable "loss_scale" ("loss_scale_1" and so on of
// those after the first), f32 [], 65536 at first. Autograd multiplies by it where the backward pass
// begins, and divides what comes out.
LogicalGraph AddLossScales(LogicalGraph graph);

// bool []: whether all `gradients`, of whole tensors, are finite. Updates take it as their last
// input: where it is false nothing changes but the factor, which halves (to 1 at least). It doubles
// (to 2^32 at most) after 2,000 steps in a row without that; the variable "<factor>.good_steps"
// counts them.
Tensor AppendLossScaleUpdate(LogicalGraph& graph, const MinimizeRequest& request,
                             const std::vector<Tensor>& gradients);

// i64 []: in how many steps before this one `applies`, which AppendLossScaleUpdate gave, was true.
// It stands for the step where an optimizer counts its own updates. The variable
// "<factor>.applied_steps" keeps it.
Tensor AppendAppliedSteps(LogicalGraph& graph, const MinimizeRequest& request, Tensor applies);

// Assign, but where `applies` is false; if it is invalid, always.
void AssignIfApplies(Tensor variable, Tensor value, Tensor applies, const SourceLocation& where);

// What the program's own assignments overwrite (running statistics, say) keeps its value where one
// of `applies` is false. Of the ops before number `end`.
void GuardAssignments(LogicalGraph& graph, OpId end, const std::vector<Tensor>& applies);

}  // namespace braid::compiler
