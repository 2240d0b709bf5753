#include "runtime/kernels/plain_spec.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

using compiler::kBlockedInputs, compiler::kBlockedOutputs, compiler::kChannelBlock;

// In place.
absl::Status MakePlain(const KernelSpec& spec, const char* name, std::vector<OperandSpec>& operands,
                       std::vector<bool>& is_blocked) {
  const int64_t block = compiler::ChannelBlockOf(spec.attrs);
  is_blocked.assign(operands.size(), false);
  for (int64_t i : compiler::BlockedOperands(spec.attrs, name)) {
    OperandSpec& operand = operands[i];
    const int last = operand.logical.rank() - 1;
    const int64_t channels = compiler::ChannelsInBlock(operand.logical[last], block);
    const bool is_whole = operand.region.offset[last] == 0 &&
                          operand.region.size[last] == channels && operand.micro_batch_axis < last;
    if (!is_whole) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "%s '%s': a part %s of a tensor in blocks of %d channels has no whole blocks", spec.op,
          spec.name, operand.region.ToString(), channels));
    }
    is_blocked[i] = true;
    operand.logical = compiler::PlainShape(operand.logical);
    operand.region.size = compiler::PlainShape(operand.region.size);
    operand.region.offset.pop_back();
    operand.region.offset[1] *= channels;
    if (operand.micro_batch_axis == 1) operand.micro_batch_stride *= channels;
  }
  return absl::OkStatus();
}

}  // namespace

bool PlainSpec::any() const {
  const auto is_set = [](bool is_blocked) { return is_blocked; };
  return std::any_of(inputs.begin(), inputs.end(), is_set) ||
         std::any_of(outputs.begin(), outputs.end(), is_set);
}

absl::StatusOr<PlainSpec> PlainSpecOf(const KernelSpec& spec) {
  PlainSpec plain;
  plain.spec = spec;
  plain.spec.attrs = Attrs();
  plain.block = compiler::ChannelBlockOf(spec.attrs);
  for (const auto& [name, value] : spec.attrs.values()) {
    const bool is_of_blocks =
        name == kBlockedInputs || name == kBlockedOutputs || name == kChannelBlock;
    if (!is_of_blocks) plain.spec.attrs.Set(name, value);
  }
  BRAID_RETURN_IF_ERROR(MakePlain(spec, kBlockedInputs, plain.spec.inputs, plain.inputs));
  BRAID_RETURN_IF_ERROR(MakePlain(spec, kBlockedOutputs, plain.spec.outputs, plain.outputs));
  return plain;
}

}  // namespace braid
