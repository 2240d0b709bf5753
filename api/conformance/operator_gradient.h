// An operator's gradient against central differences of a graph that uses it once.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "api/conformance/operator_case.h"
#include "graph/logical_graph.h"
#include "graph/op_registry.h"
#include "runtime/kernels/kernel.h"

namespace braid::conformance {

struct GradientCheck {
  std::string error;    // "" if every derivative agrees
  int derivatives = 0;  // compared; 0 if the case has no floating input
};

// What a graph computes of a case's inputs.
using BuildFunction = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;

// In f64; or in f32, where rounding hides what is wrong by less than a few per cent.
GradientCheck CheckGradient(const OpRegistry& ops, const KernelRegistry& kernels, const OpCase& c);
// The same of whatever `build` makes of the case's inputs.
GradientCheck CheckGradient(const OpRegistry& ops, const KernelRegistry& kernels, const OpCase& c,
                            const BuildFunction& build);

}  // namespace braid::conformance
