// Plans may ask for as much memory as the machine has, and for much work; a fuzzer that gets it
// learns nothing.
#pragma once

#include <cstdint>
#include <string_view>

#include "compiler/plan/node_plan.h"

namespace braid::fuzz {

// Whether a node's part asks for more memory or steps than a fuzzer should have it given, and less
// than would be refused.
bool IsTooLargeToTry(const plan::NodePlan& plan);
// The same of a plan's bytes, before a node expands them: of its devices, slots and acts.
bool IsTooLargeToExpand(std::string_view bytes);

}  // namespace braid::fuzz
