// From what is computed to what is executed: LogicalGraph -> PhysicalGraph. It stands after the
// passes that give every op its placement, acts per step, and SBP over devices and micro-batches.
#pragma once

#include "absl/status/statusor.h"
#include "compiler/boxing/boxing.h"
#include "compiler/plan/physical_graph.h"
#include "graph/logical_graph.h"

namespace braid::compiler {

// One TaskGroup per op (named like it) and one Register per output; groups of boxing on every edge
// whose ends differ in placement or layout. A tensor is boxed once for all consumers that want the
// same, from the cheapest of the layouts that it already has.
//
// Acts: a register is read by groups that act as often as it is filled, or by faster ones that
// reuse a slot (GroupInput::period). What an op that acts m times makes whole over all its acts (B
// over micro-batches) is a register of period m, which is filled once. Boxing acts as often as its
// register is filled.
//
// Variables: a VariableOwner has the bytes; its kernel tells how they begin. An update reads and
// overwrites the variable's register where it is. A control edge with one token leads from the
// update to the owner, so that the next step's value waits for it, and one from every other reader
// to the update, unless the update depends on that reader's output anyhow. A variable without an
// update has no such edges.
//
// INVALID_ARGUMENT naming ops and lines if two updates overwrite one variable, if an update is not
// where its variable is, or if a layout mixes P, P(max) and P(min); INTERNAL if an earlier pass
// left acts or layouts that do not fit.
absl::StatusOr<PhysicalGraph> Lower(const LogicalGraph& graph, BoxingPlanner& planner);

}  // namespace braid::compiler
