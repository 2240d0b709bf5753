// The CUDA kernels as a suite of operators runs them: on the host's memory, without a stream.
#pragma once

#include <string>

#include "runtime/kernels/kernel.h"

namespace braid {

// Of this test program: compiled for the host, or of the module and run on a card.
const KernelRegistry& KernelsUnderTest();

// Why they cannot be run here; "" if they can.
std::string WhyNotHere();

}  // namespace braid
