// The part of --precision for devices whose time goes into moving bytes: what lies between products
// stays narrow.
#pragma once

#include <functional>
#include <vector>

#include "compiler/logical/cast_copies.h"
#include "graph/dtype.h"
#include "graph/logical_graph.h"

namespace braid::compiler {

using KeepsNarrow = std::function<bool(const Placement&)>;

// For a graph whose `products` read narrow copies and make f32, on placements for which `keeps` is
// true: a tensor becomes narrow if products, attention or other narrow tensors are made of it, and
// all else that reads it only sums it up (bias gradients, batch statistics: these sums stay f32).
// It is then made so by its product, by attention, by a layer or RMS norm of something wide
// (OpDef::MakesNarrow), or by the ops from a product that work element by element, only move
// elements, or are batch norms, pooling and gradients of cross entropies (OpDef::KeepsNarrow). What
// other normalisations, losses and updates read or make stays f32, and residual sums if one of
// those reads them, as do products that sum over a batch (gradients of weights), attention with a
// mask that is added, and numbers of one element. What is computed again has the type that it had
// before. A cast of what is narrow is gone; its op may be left without a reader.
void KeepNarrow(LogicalGraph& graph, DType compute, const std::vector<OpId>& products,
                const KeepsNarrow& keeps, CastCopies& copies);

}  // namespace braid::compiler
