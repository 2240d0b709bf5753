#include "compiler/plan/channel_blocks.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "graph/functional.h"
#include "runtime/base/status.h"

namespace braid::compiler {
namespace {

using Ints = std::vector<int64_t>;

constexpr int64_t kMaxBlocks = int64_t{1} << 40;

bool IsBlockedShape(const Shape& shape, int64_t block) {
  if (shape.rank() < 4 || shape.rank() > 6) return false;
  const int64_t channels = shape[shape.rank() - 1];
  if (block == kWholeBlock) return shape[1] == 1 && channels > 0;
  return channels == block && shape[1] > 0 && shape[1] <= kMaxBlocks;
}

// For messages.
std::string ShapeInBlocks(int64_t block) {
  if (block == kWholeBlock) return "[n, 1, space..., c]";
  return absl::StrCat("[n, c / ", block, ", space..., ", block, "]");
}

absl::Status CheckBlock(const Attrs& attrs) {
  const int64_t block = ChannelBlockOf(attrs);
  if (block == kNarrowBlock || block == kWideBlock || block == kWholeBlock) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(kChannelBlock, " is ", block, "; ", kNarrowBlock,
                                                 ", ", kWideBlock, " or ", kWholeBlock,
                                                 " was expected"));
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

// `types` with the operands that attribute `name` lists plain instead of blocked, or the other way
// around. INVALID_ARGUMENT if one is not in `allowed` or has no such shape.
absl::StatusOr<std::vector<TensorType>> WithoutBlocks(const Attrs& attrs, const char* name,
                                                      const std::vector<int>& allowed,
                                                      std::span<const TensorType> types) {
  std::vector<TensorType> plain(types.begin(), types.end());
  const int64_t block = ChannelBlockOf(attrs);
  int64_t last = -1;
  for (int64_t operand : BlockedOperands(attrs, name)) {
    BRAID_RETURN_IF_ERROR(CheckListed(name, allowed, operand, types.size()));
    const Shape& shape = types[operand].shape;
    if (operand <= last || !IsBlockedShape(shape, block)) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, " lists ", operand, ", which is ", types[operand].ToString(),
                       "; ascending operands ", ShapeInBlocks(block), " are needed"));
    }
    last = operand;
    plain[operand].shape = PlainShape(shape);
  }
  return plain;
}

absl::StatusOr<std::vector<TensorType>> WithBlocks(const Attrs& attrs, const char* name,
                                                   const std::vector<int>& allowed,
                                                   std::vector<TensorType> types) {
  const int64_t block = ChannelBlockOf(attrs);
  int64_t last = -1;
  for (int64_t operand : BlockedOperands(attrs, name)) {
    BRAID_RETURN_IF_ERROR(CheckListed(name, allowed, operand, types.size()));
    Shape& shape = types[operand].shape;
    if (operand <= last || !CanBlockChannels(shape, block)) {
      return absl::InvalidArgumentError(absl::StrCat(
          name, " lists ", operand, ", which is ", types[operand].ToString(),
          " if plain; ascending operands that can be ", ShapeInBlocks(block), " are needed"));
    }
    last = operand;
    shape = BlockedShape(shape, block);
  }
  return types;
}

absl::StatusOr<std::vector<TensorType>> InferBlockedTypes(const OpDef& plain,
                                                          const ChannelOperands& operands,
                                                          const OpContext& context) {
  if (!HasChannelBlocks(context.attrs)) return plain.InferTypes(context);
  BRAID_RETURN_IF_ERROR(CheckBlock(context.attrs));
  BRAID_ASSIGN_OR_RETURN(
      const std::vector<TensorType> inputs,
      WithoutBlocks(context.attrs, kBlockedInputs, operands.inputs, context.inputs));
  BRAID_ASSIGN_OR_RETURN(
      std::vector<TensorType> outputs,
      plain.InferTypes({.attrs = context.attrs, .inputs = inputs, .outputs = {}}));
  return WithBlocks(context.attrs, kBlockedOutputs, operands.outputs, std::move(outputs));
}

// The operands of a use whose types are known to be right, all plain.
struct PlainOperands {
  std::vector<TensorType> inputs, outputs;
  OpContext context(const Attrs& attrs) const { return {attrs, inputs, outputs}; }
};

PlainOperands PlainOperandsOf(const OpContext& context) {
  PlainOperands plain = {{context.inputs.begin(), context.inputs.end()},
                         {context.outputs.begin(), context.outputs.end()}};
  Unblock(context.attrs, kBlockedInputs, plain.inputs);
  if (!plain.outputs.empty()) Unblock(context.attrs, kBlockedOutputs, plain.outputs);
  return plain;
}

// Those of `plain` that hold for the blocked operands of `context`.
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

}  // namespace

int64_t ChannelsInBlock(int64_t channels, int64_t block) {
  return block == kWholeBlock ? channels : block;
}

bool CanBlockChannels(const Shape& plain, int64_t block) {
  return plain.rank() >= 3 && plain.rank() <= 5 && plain[1] > 0 &&
         plain[1] % ChannelsInBlock(plain[1], block) == 0;
}

bool IsPixel(const Shape& plain) { return plain.num_elements() == plain[0] * plain[1]; }

Shape BlockedShape(const Shape& plain, int64_t block) {
  Ints dims(plain.dims().begin(), plain.dims().end());
  const int64_t channels = ChannelsInBlock(dims[1], block);
  dims[1] /= channels;
  dims.push_back(channels);
  return Shape(std::move(dims));
}

Shape PlainShape(const Shape& blocked) {
  Ints dims(blocked.dims().begin(), blocked.dims().end());
  const int64_t block = dims.back();
  dims.pop_back();
  dims[1] *= block;
  return Shape(std::move(dims));
}

Tensor BlockChannels(Tensor x, int64_t block, SourceLocation where) {
  if (!x.valid()) return x;
  const Shape shape = x.shape();
  if (IsPixel(shape)) return Reshape(x, BlockedShape(shape, block), where);
  // [n, c / block, block, space...], and the block's axis to the end.
  const int64_t channels = ChannelsInBlock(shape[1], block);
  Ints dims = {shape[0], shape[1] / channels, channels}, perm = {0, 1};
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
  if (IsPixel(PlainShape(shape))) return Reshape(x, PlainShape(shape), where);
  Ints perm = {0, 1, shape.rank() - 1};
  for (int axis = 2; axis < shape.rank() - 1; ++axis) perm.push_back(axis);
  return Reshape(Transpose(x, std::move(perm), where), PlainShape(shape), where);
}

bool HasChannelBlocks(const Attrs& attrs) {
  return attrs.Has(kBlockedInputs) || attrs.Has(kBlockedOutputs);
}

int64_t ChannelBlockOf(const Attrs& attrs) {
  return attrs.Has(kChannelBlock) ? attrs.Int(kChannelBlock) : 0;
}

std::span<const int64_t> BlockedOperands(const Attrs& attrs, const char* name) {
  if (!attrs.Has(name)) return {};
  return attrs.Ints(name);
}

OpSample BlockedSample(const OpDef& plain, const ChannelOperands& operands, int64_t block,
                       OpSample sample) {
  Ints inputs, outputs;
  // A sample that has no types is left as it is; OpDef::Validate says what is wrong with it.
  const auto types =
      plain.InferTypes({.attrs = sample.attrs, .inputs = sample.inputs, .outputs = {}});
  if (!types.ok()) return sample;
  for (int input : operands.inputs) {
    if (input >= static_cast<int>(sample.inputs.size())) continue;
    Shape& shape = sample.inputs[input].shape;
    if (!CanBlockChannels(shape, block)) continue;
    shape = BlockedShape(shape, block);
    inputs.push_back(input);
  }
  for (int output : operands.outputs) {
    if (CanBlockChannels((*types)[output].shape, block)) outputs.push_back(output);
  }
  sample.attrs.Set(kBlockedInputs, std::move(inputs));
  sample.attrs.Set(kBlockedOutputs, std::move(outputs));
  sample.attrs.Set(kChannelBlock, block);
  return sample;
}

OpDef TakingBlocks(const OpDef& plain, const ChannelOperands& operands,
                   const std::vector<OpSample>& samples) {
  // Shared by the functions of all copies of the definition.
  const auto def = std::make_shared<const OpDef>(plain);
  OpDef result(plain.name());
  result
      .Infer([def, operands](const OpContext& context) {
        return InferBlockedTypes(*def, operands, context);
      })
      .NoBroadcast()  // the plain signatures have it
      .Signatures([def](const OpContext& context, int64_t parts) {
        if (!HasChannelBlocks(context.attrs)) return def->LegalSignatures(context, parts);
        const PlainOperands plain = PlainOperandsOf(context);
        return SignaturesOfBlocks(def->LegalSignatures(plain.context(context.attrs), parts),
                                  context, parts);
      })
      .MicroBatchSignatures([def](const OpContext& context) {
        // These name the batch's axis only: blocks keep it.
        return def->IsPerMicroBatch(context) ? def->LegalMicroBatchSignatures(context, /*parts=*/1)
                                             : std::vector<SbpSignature>();
      })
      .NoGradient()
      .Flops([def](const OpContext& context) {
        return def->CountFlops(PlainOperandsOf(context).context(context.attrs));
      })
      .NarrowInputs(plain.narrow_inputs())
      .KeepsNarrow(plain.keeps_narrow());
  if (plain.has_narrow_inside()) {
    result.NarrowInside([def](const OpContext& context) {
      return def->narrow_inside(PlainOperandsOf(context).context(context.attrs));
    });
  }
  for (const auto& [input, output] : plain.inplace()) result.Inplace(input, output);
  for (const OpSample& sample : plain.samples()) result.Sample(sample);
  for (const int64_t block : {kNarrowBlock, kWideBlock, kWholeBlock}) {
    for (const OpSample& sample : samples) {
      result.Sample(BlockedSample(plain, operands, block, sample));
    }
  }
  return result;
}

}  // namespace braid::compiler
