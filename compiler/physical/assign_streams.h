// The pass that gives every task group its stream, and with it its thread. It stands right after
// lowering: chains are formed of groups that share a stream.
#pragma once

#include "compiler/physical_graph.h"

namespace braid::compiler {

// A cpu device is one thread for all that costs its own cycles anyway: kernels, feeds, fetches,
// collectives and exchanges run on kCompute, without hops between threads. Readers run on kInput,
// so that they prefetch. Other devices move bytes beside their kernels: exchanges and collectives
// with an end there run on kTransfer.
PhysicalGraph AssignStreams(PhysicalGraph graph);

}  // namespace braid::compiler
