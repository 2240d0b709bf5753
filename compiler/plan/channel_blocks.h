// Tensors in blocks of channels: [n, c, space...] with c a multiple of 16 kept as
// [n, c / 16, space..., 16], the order in which convolutions on CPUs with vectors are fastest. To
// all else such a tensor is one like any other, dense and with an axis more. Operators are defined
// for plain tensors; a use whose operands are blocked says so by two attributes, which list them,
// and is a use of the definition that TakingBlocks makes of the plain one.
//
// Batch and space keep their axes' numbers. An axis of channels that is split over devices is split
// into equal parts of whole blocks, so the parts are the same channels as those of a plain tensor.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "graph/op_def.h"

namespace braid::compiler {

inline constexpr int64_t kChannelBlock = 16;
// Attributes, lists of operands by number, ascending. Not there: none.
inline constexpr char kBlockedInputs[] = "blocked_inputs";
inline constexpr char kBlockedOutputs[] = "blocked_outputs";

// Whether [n, c, space...] of 1 to 3 axes of space can be blocked; and to and fro.
bool CanBlockChannels(const Shape& plain);
Shape BlockedShape(const Shape& plain);
Shape PlainShape(const Shape& blocked);
// Appends ops that reorder x.
Tensor BlockChannels(Tensor x, SourceLocation where = Here());
Tensor UnblockChannels(Tensor x, SourceLocation where = Here());

// Whether any operand is blocked, and which are.
bool HasChannelBlocks(const Attrs& attrs);
std::span<const int64_t> BlockedOperands(const Attrs& attrs, const char* name);

// The operands, [n, c, space...], that an operator takes and makes in blocks.
struct ChannelOperands {
  std::vector<int> inputs, outputs;
};

// `sample` of the plain operator with every operand blocked that can be.
OpSample BlockedSample(const OpDef& plain, const ChannelOperands& operands, OpSample sample);

// The definition of the same operator for blocked operands, too: shapes, signatures and flops are
// those of the plain operands. `samples` are of plain operands, and become blocked. It has no
// gradient: layouts are chosen when gradients have been built.
OpDef TakingBlocks(const OpDef& plain, const ChannelOperands& operands,
                   const std::vector<OpSample>& samples);

}  // namespace braid::compiler
