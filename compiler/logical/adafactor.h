// Adafactor: the one optimizer that is composed of operators, since its states are not of the
// variable's shape.
#pragma once

#include "graph/logical_graph.h"

namespace braid::compiler {

// Appends one step of Adafactor (Shazeer and Stern, arXiv 1804.04235; the formulas of
// torch.optim.Adafactor) on `variable`, whose gradient has its type, at the current scope. A
// variable of two axes or more has states row [..., rows] and column [..., columns], means of
// squares over the other one of the last two axes; of fewer, square, of its shape. `learning_rate`
// and `step` (of which there were so many before) are scalars; where `applies`, bool [], is given
// and false, nothing changes. Attributes: beta2_decay, clip, epsilon, epsilon_scale, weight_decay.
void AppendAdafactor(Tensor variable, Tensor gradient, Tensor learning_rate, Tensor step,
                     Tensor applies, const Attrs& attrs, const SourceLocation& where);

}  // namespace braid::compiler
