// What phase_program and phase_ranks train, and how they stay in a phase: while the file
// `hold.PHASE` is in the folder --hold, as slow code of a user's does. compiling: the function that
// records the job; connecting, stepping and closing: an operator's kernel on nodes with --slow,
// when it is made, runs and goes away; saving: another checkpoint, and another. Before the first of
// them it loads the checkpoint --load, if there is one.
#pragma once

#include <braid/braid.h>

#include <functional>

namespace braid {

// Its operator and kernel.
absl::Status ExtendByPace(OpRegistry& operators, KernelRegistry& kernels);

// All phases but joining. `agreed` makes of what this process sees what all that run the program
// take it for.
absl::Status GoThroughPhases(Session& session, const std::function<bool(bool)>& agreed);

}  // namespace braid
