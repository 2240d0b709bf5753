// The pass that lets a job which writes no variable compute once what depends on variables alone:
// casts and transposes of weights, batch norms folded into them. It stands after the chains, whose
// scratch it looks at, and before plan_memory.
#pragma once

#include <vector>

#include "compiler/plan/physical_graph.h"
#include "graph/op_registry.h"

namespace braid::compiler {

// Sets Scratch::is_kept for what such kernels make, in a graph of which `writes_variables` is
// false, if what other kernels read of it is not much more than its variables; what passes on the
// way there (bytes as i32, scales beside each number) may be as large as that. It has bytes of its
// own for as long as the job is loaded, and its tasks run the kernels only when variables have
// changed.
PhysicalGraph KeepSteady(PhysicalGraph graph, const OpRegistry& registry);

bool WritesVariables(const PhysicalGraph& graph, const OpRegistry& registry);
// Whether each act of a task would make the same until a variable changes: the kernel is a function
// of variables and of what is kept, it works on the compute stream, once a step, and makes scratch.
bool MayBeSteady(const PhysicalGraph& graph, const OpRegistry& registry, const TaskGroup& group,
                 const KernelCall& kernel);
// Whether some of what the kernel makes is kept: then all of it is.
bool MakesKept(const Compute& compute, const KernelCall& kernel);
// By scratch: whether it is kept and read by a kernel that makes nothing that is. Else its bytes
// are needed only while the former run.
std::vector<bool> LastingScratch(const Compute& compute);

}  // namespace braid::compiler
