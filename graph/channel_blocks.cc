#include "graph/channel_blocks.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/functional.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

using Ints = std::vector<int64_t>;

constexpr int64_t kMaxBlocks = int64_t{1} << 40;

bool IsBlockedShape(const Shape& shape) {
  return shape.rank() >= 4 && shape.rank() <= 6 && shape[shape.rank() - 1] == kChannelBlock &&
         shape[1] > 0 && shape[1] <= kMaxBlocks;
}

absl::Status CheckListed(const char* name, const std::vector<int>& allowed, int64_t operand,
                         size_t count) {
  const bool is_allowed = std::find(allowed.begin(), allowed.end(), operand) != allowed.end();
  if (is_allowed && operand < static_cast<int64_t>(count)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, " lists ", operand, "; that operand has no channels, or is not there"));
}

// In place; the shapes have been checked.
void Unblock(const Attrs& attrs, const char* name, std::vector<TensorType>& types) {
  for (int64_t operand : BlockedOperands(attrs, name)) {
    types[operand].shape = PlainShape(types[operand].shape);
  }
}

}  // namespace

bool CanBlockChannels(const Shape& plain) {
  return plain.rank() >= 3 && plain.rank() <= 5 && plain[1] > 0 && plain[1] % kChannelBlock == 0;
}

Shape BlockedShape(const Shape& plain) {
  Ints dims(plain.dims().begin(), plain.dims().end());
  dims[1] /= kChannelBlock;
  dims.push_back(kChannelBlock);
  return Shape(std::move(dims));
}

Shape PlainShape(const Shape& blocked) {
  Ints dims(blocked.dims().begin(), blocked.dims().end());
  dims.pop_back();
  dims[1] *= kChannelBlock;
  return Shape(std::move(dims));
}

Tensor BlockChannels(Tensor x, SourceLocation where) {
  if (!x.valid()) return x;
  const Shape shape = x.shape();
  // [n, c / 16, 16, space...], and the block's axis to the end.
  Ints dims = {shape[0], shape[1] / kChannelBlock, kChannelBlock}, perm = {0, 1};
  for (int axis = 2; axis < shape.rank(); ++axis) {
    dims.push_back(shape[axis]);
    perm.push_back(axis + 1);
  }
  perm.push_back(2);
  return Transpose(Reshape(x, Shape(std::move(dims)), where), std::move(perm), where);
}

Tensor UnblockChannels(Tensor x, SourceLocation where) {
  if (!x.valid()) return x;
  const Shape shape = x.shape();
  Ints perm = {0, 1, shape.rank() - 1};
  for (int axis = 2; axis < shape.rank() - 1; ++axis) perm.push_back(axis);
  return Reshape(Transpose(x, std::move(perm), where), PlainShape(shape), where);
}

bool HasChannelBlocks(const Attrs& attrs) {
  return attrs.Has(kBlockedInputs) || attrs.Has(kBlockedOutputs);
}

std::span<const int64_t> BlockedOperands(const Attrs& attrs, const char* name) {
  if (!attrs.Has(name)) return {};
  return attrs.Ints(name);
}

absl::StatusOr<std::vector<TensorType>> WithoutBlocks(const Attrs& attrs, const char* name,
                                                      const std::vector<int>& allowed,
                                                      std::span<const TensorType> types) {
  std::vector<TensorType> plain(types.begin(), types.end());
  int64_t last = -1;
  for (int64_t operand : BlockedOperands(attrs, name)) {
    RETURN_IF_ERROR(CheckListed(name, allowed, operand, types.size()));
    const Shape& shape = types[operand].shape;
    if (operand <= last || !IsBlockedShape(shape)) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, " lists ", operand, ", which is ", types[operand].ToString(),
                       "; ascending operands [n, c / ", kChannelBlock, ", space..., ",
                       kChannelBlock, "] are needed"));
    }
    last = operand;
    plain[operand].shape = PlainShape(shape);
  }
  return plain;
}

absl::StatusOr<std::vector<TensorType>> WithBlocks(const Attrs& attrs, const char* name,
                                                   const std::vector<int>& allowed,
                                                   std::vector<TensorType> types) {
  int64_t last = -1;
  for (int64_t operand : BlockedOperands(attrs, name)) {
    RETURN_IF_ERROR(CheckListed(name, allowed, operand, types.size()));
    Shape& shape = types[operand].shape;
    if (operand <= last || !CanBlockChannels(shape)) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, " lists ", operand, ", which is ", types[operand].ToString(),
                       " if plain; ascending operands whose channels are a multiple of ",
                       kChannelBlock, " are needed"));
    }
    last = operand;
    shape = BlockedShape(shape);
  }
  return types;
}

void BlockOperands(const OpDef& def, const std::vector<TensorType>& outputs,
                   std::vector<TensorType>& inputs, Attrs& attrs) {
  Ints blocked_inputs, blocked_outputs;
  for (int input : def.channel_inputs()) {
    if (input >= static_cast<int>(inputs.size())) continue;
    if (!CanBlockChannels(inputs[input].shape)) continue;
    inputs[input].shape = BlockedShape(inputs[input].shape);
    blocked_inputs.push_back(input);
  }
  for (int output : def.channel_outputs()) {
    if (CanBlockChannels(outputs[output].shape)) blocked_outputs.push_back(output);
  }
  attrs.Set(kBlockedInputs, std::move(blocked_inputs));
  attrs.Set(kBlockedOutputs, std::move(blocked_outputs));
}

PlainOperands PlainOperandsOf(const OpContext& context) {
  PlainOperands plain = {{context.inputs.begin(), context.inputs.end()},
                         {context.outputs.begin(), context.outputs.end()}};
  Unblock(context.attrs, kBlockedInputs, plain.inputs);
  if (!plain.outputs.empty()) Unblock(context.attrs, kBlockedOutputs, plain.outputs);
  return plain;
}

std::vector<SbpSignature> SignaturesOfBlocks(std::vector<SbpSignature> plain,
                                             const OpContext& context, int64_t parts) {
  std::erase_if(plain, [&](const SbpSignature& signature) {
    const auto cuts_blocks = [&](const char* name, const std::vector<Sbp>& sbps,
                                 std::span<const TensorType> types) {
      for (int64_t operand : BlockedOperands(context.attrs, name)) {
        if (sbps[operand] == sbp::S(1) && types[operand].shape[1] % parts != 0) return true;
      }
      return false;
    };
    return cuts_blocks(kBlockedInputs, signature.inputs, context.inputs) ||
           cuts_blocks(kBlockedOutputs, signature.outputs, context.outputs);
  });
  return plain;
}

std::vector<Tensor> GradientOfBlocks(
    const GradientContext& context,
    const std::function<std::vector<Tensor>(const GradientContext&)>& plain) {
  const auto inputs = BlockedOperands(context.op.attrs, kBlockedInputs);
  const auto outputs = BlockedOperands(context.op.attrs, kBlockedOutputs);
  Op op = context.op;
  op.attrs = Attrs();
  for (const auto& [name, value] : context.op.attrs.values()) {
    if (name != kBlockedInputs && name != kBlockedOutputs) op.attrs.Set(name, value);
  }
  std::vector<Tensor> x = context.inputs, y = context.outputs, dy = context.output_gradients;
  for (int64_t i : inputs) x[i] = UnblockChannels(x[i], context.op.location);
  for (int64_t i : outputs) {
    y[i] = UnblockChannels(y[i], context.op.location);
    dy[i] = UnblockChannels(dy[i], context.op.location);
  }
  std::vector<Tensor> gradients = plain({.graph = context.graph,
                                         .op = std::move(op),
                                         .inputs = std::move(x),
                                         .outputs = std::move(y),
                                         .output_gradients = std::move(dy)});
  for (int64_t i : inputs) gradients[i] = BlockChannels(gradients[i], context.op.location);
  return gradients;
}

}  // namespace braid
