// Rewrites a PhysicalGraph with fewer, larger groups and registers. The passes that decide which
// ones (bucket_collectives, chains) share this one mechanism.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "compiler/plan/physical_graph.h"

namespace braid::compiler {

struct Regrouping {
  explicit Regrouping(const PhysicalGraph& graph);  // nothing changes

  // Groups of one number become one: of the same kind, placement, stream and acts.
  std::vector<GroupId> group_of;
  // The registers of a list become one register with all their parts, in the list's order. They
  // have one producer after regrouping, and the same period and tokens.
  std::vector<std::vector<GroupRegisterId>> merged_registers;
  // Control edges that go; indexed by register.
  std::vector<bool> dropped;
};

// Kernels of a merged group keep their topological order. What is written and read within one act
// of one compute group (not of the input stream), or by nobody, becomes scratch there; control
// edges inside a group vanish; a register appears once among a group's inputs. New groups are
// numbered by the topological position of their first member. INTERNAL naming the cycle if the
// result has one.
absl::StatusOr<PhysicalGraph> Regroup(PhysicalGraph graph, const Regrouping& regrouping);

}  // namespace braid::compiler
