// Tensors in blocks of channels: [n, c, space...] with c a multiple of a block's channels kept as
// [n, c / block, space..., block], the order in which convolutions on CPUs with vectors are
// fastest. A block is as wide as the CPU's vectors, 8 or 16 channels, or has all of them: then the
// tensor is [n, 1, space..., c], which others call channels last. To all else it is a tensor like
// any other, dense and with an axis more. Operators are defined for plain tensors; a use whose
// operands are blocked says so by two attributes, which list them, and a third one with the block's
// channels, and is a use of the definition that TakingBlocks makes of the plain one.
//
// Batch and space keep their axes' numbers. An axis of channels that is split over devices is split
// into equal parts of whole blocks, so the parts are the same channels as those of a plain tensor;
// one block of all channels is not split.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "graph/op_def.h"

namespace braid::compiler {

// Channels of a block, on CPUs without and with vectors of 64 bytes, and what stands for all.
inline constexpr int64_t kNarrowBlock = 8, kWideBlock = 16, kWholeBlock = -1;
// Of a tensor with so many.
int64_t ChannelsInBlock(int64_t channels, int64_t block);
// Attributes, lists of operands by number, ascending. Not there: none.
inline constexpr char kBlockedInputs[] = "blocked_inputs";
inline constexpr char kBlockedOutputs[] = "blocked_outputs";
// An attribute, where one of these is: the channels of a block, or kWholeBlock.
inline constexpr char kChannelBlock[] = "channel_block";

// Whether [n, c, space...] of 1 to 3 axes of space can be blocked; whether it has one number of
// each image and channel, which then lie in blocks as they lie without; and to and fro.
bool CanBlockChannels(const Shape& plain, int64_t block);
bool IsPixel(const Shape& plain);
Shape BlockedShape(const Shape& plain, int64_t block);
Shape PlainShape(const Shape& blocked);
// Appends ops that reorder x; of a pixel one that gives it the other shape.
Tensor BlockChannels(Tensor x, int64_t block, SourceLocation where = Here());
Tensor UnblockChannels(Tensor x, SourceLocation where = Here());

// Whether any operand is blocked, in blocks of how many channels (attribute channel_block; 0: none
// is), and which are.
bool HasChannelBlocks(const Attrs& attrs);
int64_t ChannelBlockOf(const Attrs& attrs);
std::span<const int64_t> BlockedOperands(const Attrs& attrs, const char* name);

// The operands, [n, c, space...], that an operator takes and makes in blocks.
struct ChannelOperands {
  std::vector<int> inputs, outputs;
};

// `sample` of the plain operator with every operand blocked that can be.
OpSample BlockedSample(const OpDef& plain, const ChannelOperands& operands, int64_t block,
                       OpSample sample);

// The definition of the same operator for blocked operands, too: shapes, signatures and flops are
// those of the plain operands. `samples` are of plain operands, and become blocked, both ways. It
// has no gradient: layouts are chosen when gradients have been built.
OpDef TakingBlocks(const OpDef& plain, const ChannelOperands& operands,
                   const std::vector<OpSample>& samples);

}  // namespace braid::compiler
