// The Plan's bytes: what the master sends, the same to every node, and what each reads back.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "compiler/plan/physical_graph.h"

namespace braid::compiler {

constexpr uint32_t kPlanVersion = 10;

// Byte-equal for equal graphs. Leaves out what only explanations need: the names of registers and
// of their parts, and the notes.
std::string EncodePlan(const PhysicalGraph& graph);

// A graph that a node may expand (expand.h): every number in it names what exists, every layout
// fits its placement, and VerifyInvariants holds. INVALID_ARGUMENT for anything else, naming what
// is wrong; FAILED_PRECONDITION naming both versions for a plan of another version.
absl::StatusOr<PhysicalGraph> DecodePlan(std::string_view bytes);

// Of a plan's bytes: the master sends it beside them, and nodes compare.
uint64_t PlanFingerprint(std::string_view bytes);

}  // namespace braid::compiler
