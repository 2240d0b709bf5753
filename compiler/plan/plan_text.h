// A physical graph as text.
#pragma once

#include <cstdint>
#include <string>

#include "compiler/plan/physical_graph.h"

namespace braid::compiler {

enum class PlanText : uint8_t {
  kWhole,      // as PhysicalGraph::ToString
  kStructure,  // for a reader who has the operators' text before him: without what that says of
               // them (attributes, types, layouts), and without notes
};

std::string ToText(const PhysicalGraph& graph, PlanText detail);

}  // namespace braid::compiler
