// The pass behind --precision: products compute in a narrow type, everything else stays as it is.
// It stands after infer_placement, so that it sees forward, backward and updates alike and its
// casts sit where their consumers do.
#pragma once

#include "compiler/logical/keep_narrow.h"
#include "graph/dtype.h"
#include "graph/logical_graph.h"

namespace braid::compiler {

// For every op whose OpDef has NarrowInputs, and whose operands are f32: those inputs are cast to
// `compute` (bf16 or f16; one cast per tensor and placement, "<producer>.<compute>"), and attribute
// dtype keeps its outputs f32. So variables (the master weights), gradients, sums over devices,
// normalisations, losses and updates remain f32, as Micikevicius et al., arXiv 1710.03740, have it.
// Ops that the user wrote in other types, or whose dtype attribute is set, are left alone. Those
// that have products inside (OpDef::NarrowInside: attention) keep their operands and get attribute
// compute, for bf16. Where `keeps` is true of a placement, what lies between products stays narrow,
// too, as KeepNarrow has it, and the ops with products inside get narrow operands; there, sums of
// activations over devices are rounded addend by addend.
LogicalGraph NarrowProducts(LogicalGraph graph, DType compute, const KeepsNarrow& keeps = {});

}  // namespace braid::compiler
