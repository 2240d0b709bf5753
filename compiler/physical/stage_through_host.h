// Copies between devices' own memory and the host's, for kinds of devices that have memory of their
// own: readers, feeds, fetches, exchanges and collectives work in host memory, kernels in the
// device's.
#pragma once

#include "compiler/plan/physical_graph.h"

namespace braid::compiler {

// After AssignStreams, which says who works where. Every register is given its memory; where a
// reader works in the other one, a staging group copies it there, once for all such readers. CPUs'
// groups stay as they are.
PhysicalGraph StageThroughHost(PhysicalGraph graph);

}  // namespace braid::compiler
