// A kernel that looks at the numbers of another one: what --check_numerics puts around each.
#pragma once

#include <memory>

#include "runtime/kernels/kernel.h"

namespace braid {

// A KernelRegistry::Wrapper. The kernel's Run is OUT_OF_RANGE where what it wrote has a NaN though
// no input has one, or an infinity though no input has one or a NaN: the message has the step,
// which of the two, where the first one is, and the ranges of inputs and outputs. Outputs are
// looked at, or the inputs of kernels without outputs, which are updates: these may not take a NaN
// to a variable either, wherever it comes from. Infinities that a kernel without inputs makes (a
// constant) are meant. It works on wholes only, never part by part: the same numbers, in more time.
std::unique_ptr<Kernel> CheckNumerics(const KernelSpec& spec, std::unique_ptr<Kernel> kernel);

}  // namespace braid
