// From what is computed to what is executed: LogicalGraph -> PhysicalGraph. It stands after the
// passes that give every op its placement, rate, layouts over time and SBP.
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
// Rates: a register is read by groups of its own rate, or by faster ones that reuse a slot
// (GroupInput::period). What an op of rate m makes whole over all its acts (time B) is a register
// of period m, which has rate 1. Boxing runs at the rate of the register.
//
// Variables: a VariableOwner has the bytes; its kernel tells how they begin. An update reads and
// overwrites the variable's register where it is. A control edge with one token leads from the
// update to the owner, so that the next step's value waits for it, and one from every other reader
// to the update, unless the update depends on that reader's output anyhow. A variable without an
// update has no such edges.
//
// INVALID_ARGUMENT naming ops and lines if two updates overwrite one variable, if an update is not
// where its variable is, or if a layout mixes P, P(max) and P(min); INTERNAL if an earlier pass
// left rates or layouts that do not fit.
absl::StatusOr<PhysicalGraph> Lower(const LogicalGraph& graph, BoxingPlanner& planner);

}  // namespace braid::compiler
