// Tensors in blocks of channels: [n, c, space...] with c a multiple of 16 kept as
// [n, c / 16, space..., 16], the order in which convolutions on CPUs with vectors are fastest. To
// all else such a tensor is one like any other, dense and with an axis more; operators that have
// said ChannelBlocks take it by two attributes, which list the operands that are blocked.
//
// Batch and space keep their axes' numbers. An axis of channels that is split over devices is split
// into equal parts of whole blocks, so the parts are the same channels as those of a plain tensor.
#pragma once

#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/op_def.h"

namespace braid {

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

// ---- For OpDef
// -------------------------------------------------------------------------------------------

// `types` with the operands that attribute `name` lists plain instead of blocked, or the other way
// around. INVALID_ARGUMENT if one is not in `allowed` or has no such shape.
absl::StatusOr<std::vector<TensorType>> WithoutBlocks(const Attrs& attrs, const char* name,
                                                      const std::vector<int>& allowed,
                                                      std::span<const TensorType> types);
absl::StatusOr<std::vector<TensorType>> WithBlocks(const Attrs& attrs, const char* name,
                                                   const std::vector<int>& allowed,
                                                   std::vector<TensorType> types);
// Blocks what the operator allows and shapes permit, and says so in `attrs`.
void BlockOperands(const OpDef& def, const std::vector<TensorType>& outputs,
                   std::vector<TensorType>& inputs, Attrs& attrs);

// The operands of a use whose types are known to be right, all plain.
struct PlainOperands {
  std::vector<TensorType> inputs, outputs;
  OpContext context(const Attrs& attrs) const { return {attrs, inputs, outputs}; }
};
PlainOperands PlainOperandsOf(const OpContext& context);
// Those of `plain` that hold for the blocked operands of `context`.
std::vector<SbpSignature> SignaturesOfBlocks(std::vector<SbpSignature> plain,
                                             const OpContext& context, int64_t parts);
// By the plain op's gradient, between reorders.
std::vector<Tensor> GradientOfBlocks(
    const GradientContext& context,
    const std::function<std::vector<Tensor>(const GradientContext&)>& plain);

}  // namespace braid
