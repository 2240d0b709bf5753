// What a member of a collective sends, counted.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "compiler/plan/node_plan.h"

namespace braid::compiler {

// Elements to each member in one act, by the algorithm that the plan says. `hosts`: of the members.
std::vector<int64_t> ElementsSent(const plan::Collective& collective,
                                  std::span<const uint32_t> hosts);

}  // namespace braid::compiler
