// The operators that come with Braid, family by family; all.cc makes one registry of them.
#pragma once

#include <vector>

#include "graph/op_def.h"

namespace braid {

std::vector<OpDef> ElementwiseOps();   // arithmetic, comparison, logic
std::vector<OpDef> CastOps();          // between element types
std::vector<OpDef> MathOps();          // elementary functions, rounding, remainders, bits
std::vector<OpDef> ActivationOps();    // tanh, relu, gelu, silu, elu, clip, ...
std::vector<OpDef> LayoutOps();        // reshape, transpose, concat, split, broadcast
std::vector<OpDef> ReduceOps();        // sum, mean, max, min, prod, norms, argmax, argmin
std::vector<OpDef> ScanOps();          // cumsum, cumprod
std::vector<OpDef> MatmulOps();        // matmul, tensordot
std::vector<OpDef> SoftmaxOps();       // softmax, log_softmax
std::vector<OpDef> CrossEntropyOps();  // sum_exp, (sparse_)softmax_cross_entropy
std::vector<OpDef> LossOps();          // binary cross entropies, negative log likelihood
std::vector<OpDef> AttentionOps();
std::vector<OpDef> KeyValueCacheOps();  // cached_attention, write_rows
std::vector<OpDef> NormalizationOps();  // layer_norm
std::vector<OpDef> RmsNormOps();        // rms_norm
std::vector<OpDef> RotaryOps();         // rotary
std::vector<OpDef> RecurrentOps();      // lstm_cell, gru_cell
std::vector<OpDef> IndexingOps();       // gather, one_hot, where
std::vector<OpDef> GeneratorOps();      // constants, random numbers, step, dropout
std::vector<OpDef> UpdateOps();         // optimizers' updates, assign
std::vector<OpDef> ExternalOps();       // variables, feeds, readers, fetches, what passes replace
std::vector<OpDef> ConvolutionOps();    // conv and its gradients
std::vector<OpDef> PoolingOps();        // max_pool, avg_pool
std::vector<OpDef> BatchNormOps();      // batch_norm, group_norm
std::vector<OpDef> InterpolateOps();    // resize_axis
std::vector<OpDef> MirroredOps();       // into mirrored values and out of them
std::vector<OpDef> CompilerOps();       // ops that only passes append

std::vector<OpDef> RearrangeOps();        // slice, pad, triangle
std::vector<OpDef> ScatterElementsOps();  // gather_elements, scatter_elements
std::vector<OpDef> ScatterNdOps();        // gather_nd, scatter_nd
std::vector<OpDef> SortOps();             // sort, top_k

}  // namespace braid
