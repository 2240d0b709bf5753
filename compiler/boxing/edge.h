// What the boxing rules ask about an edge: its layouts, and its form without dimensions that do not
// matter.
#pragma once

#include <optional>

#include "compiler/boxing/boxing.h"

namespace braid::compiler {

TensorLayout SourceLayout(const BoxingEdge& edge);
TensorLayout DestinationLayout(const BoxingEdge& edge);

// The same devices in the same order; hierarchies may differ.
bool SameDevices(const Placement& a, const Placement& b);

// The layout with B in the dimensions of size 1, where all kinds are the same.
NdSbp DropUnitDims(const NdSbp& sbp, const Placement& placement);

// Every rank holds the same box, or nothing, under both layouts (of the same type and
// micro-batches).
bool SameBoxes(const TensorLayout& a, const Placement& a_placement, const TensorLayout& b,
               const Placement& b_placement);

// Every split divides without a rest, so that all ranks hold equally much.
bool SplitsEvenly(const TensorLayout& layout, const Placement& placement);

// An edge on one placement whose dimensions of size 1 are gone and whose neighbours of equal kinds
// are one ([P, P] -> [B, B] on [2, 4] is P -> B on [8]). Boxes per rank are the same. Nothing if
// the placements differ.
std::optional<BoxingEdge> MergeDims(const BoxingEdge& edge);

// Appends `group`, with its one data input and one output of layout `layout` on `placement`, for
// the tensor of `source`; returns the output register.
GroupRegisterId AddBoxingGroup(TaskGroup group, const Placement& placement, TensorLayout layout,
                               const BoxingRule::Source& source, PhysicalGraph& graph);

// A compute group with one kernel of one input and one output.
GroupRegisterId AddKernelGroup(std::string op, Attrs attrs, const TensorLayout& from,
                               const TensorLayout& to, const Placement& placement,
                               const BoxingRule::Source& source, PhysicalGraph& graph);

}  // namespace braid::compiler
