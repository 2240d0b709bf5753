// The pass that gives every task group its stream, and with it its thread. It stands right after
// lowering: chains are formed of groups that share a stream.
#pragma once

#include "compiler/plan/physical_graph.h"
#include "graph/op_registry.h"

namespace braid::compiler {

// A cpu device is one thread for all that costs its own cycles anyway: kernels, feeds, fetches, and
// the collectives and exchanges of one node run on kCompute, without hops between threads. Between
// nodes these wait for the network many times over, and go on only when their thread has time: on
// kTransfer they do, beside the kernels of a long chain. Readers run on kInput, so that they
// prefetch. Other devices move all bytes beside their kernels; collectives that devices of one node
// can do among themselves have a stream of theirs.
PhysicalGraph AssignStreams(PhysicalGraph graph, const OpRegistry& registry);

}  // namespace braid::compiler
