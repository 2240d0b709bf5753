// Which groups overwrite variables, and who else reads them: what an update has to wait for. Shared
// by memory planning, which adds the edges, and verification.
#pragma once

#include <vector>

#include "compiler/physical/step_order.h"
#include "compiler/plan/physical_graph.h"
#include "graph/op_registry.h"

namespace braid::compiler {

// One kernel that overwrites one variable.
struct Overwrite {
  GroupId group = kNone;
  int kernel = 0;
  GroupRegisterId reg = kNone;
  int part = 0;
  std::vector<GroupId> readers;  // other groups that read this part
};
std::vector<Overwrite> Overwrites(const PhysicalGraph& graph, const OpRegistry& registry);

}  // namespace braid::compiler
