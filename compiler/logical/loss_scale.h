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

}  // namespace braid::compiler
