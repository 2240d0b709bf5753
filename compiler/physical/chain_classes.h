// Which compute groups may become one, as bucket_collectives and chains see it.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "compiler/plan/physical_graph.h"

namespace braid::compiler {

// Classes of compute groups that share placement (with its hierarchy), stream, acts per step,
// depth, arrival and phase (see act_phases.h). Groups of the input stream are in none, since
// they run ahead by themselves, nor those of asynchronous servers.
//
// The depth of a group is the number of breaks on the longest path to it, along edges without
// initial tokens. A break is an edge between groups that could not share a chain: to or from an
// exchange, a collective or a variable, between placements, streams or numbers of acts, or with a
// period (a sum over micro-batches is there only after all acts). So any edge from one class to
// another leads to a greater depth, to a later phase of the same depth, or out of the (placement,
// stream, acts): merging any consecutive members of classes never closes a cycle. Groups without
// inputs stand as late as their readers allow: they need not travel. So do those that read
// variables alone, in a job that writes none.
//
// The arrival of a group that may wait (see defer_groups.h) is the last, in topological order, of
// the exchanges and collectives that it reads, or that others like it read on the way to it: what
// updates the variables of one bucket of gradients does not wait for the next bucket. Of all other
// groups it is none: chains along which the step has to get on are as long as their depth allows.
// A constant for groups that all arrive together arrives with them.
struct ChainClasses {
  std::vector<GroupId> order;                 // all groups, topological
  std::vector<std::vector<GroupId>> members;  // of each class, in that order
  // Of each group: exchanges and collectives that read an output of it and that others than mere
  // fetches wait for. Communication that starts as soon as it can hides behind the rest.
  std::vector<std::vector<GroupId>> urgent_readers;
};

// INTERNAL naming a cycle if the graph has one.
absl::StatusOr<ChainClasses> FindChainClasses(const PhysicalGraph& graph);

}  // namespace braid::compiler
