// The operators that come with Braid, family by family; all.cc makes one registry of them.
#pragma once

#include <vector>

#include "graph/op_def.h"

namespace braid {

std::vector<OpDef> ElementwiseOps();    // arithmetic, comparison, activations, casts
std::vector<OpDef> LayoutOps();         // reshape, transpose, slice, pad, concat, split, broadcast
std::vector<OpDef> ReduceOps();         // sum, mean, max, min, argmax
std::vector<OpDef> MatmulOps();         // matmul, tensordot
std::vector<OpDef> SoftmaxOps();        // softmax, log_softmax
std::vector<OpDef> CrossEntropyOps();   // sum_exp, (sparse_)softmax_cross_entropy
std::vector<OpDef> NormalizationOps();  // layer_norm
std::vector<OpDef> IndexingOps();       // gather, one_hot, where
std::vector<OpDef> GeneratorOps();      // constants, random numbers, step, dropout
std::vector<OpDef> UpdateOps();         // optimizers' updates, assign
std::vector<OpDef> ExternalOps();       // variables, feeds, readers, fetches, gradient_of
std::vector<OpDef> CompilerOps();       // ops that only passes append

}  // namespace braid
