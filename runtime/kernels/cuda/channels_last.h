// Where a use of an operator has the channels of its operands.
#pragma once

#include <cstddef>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "runtime/kernels/plain_spec.h"

namespace braid::cuda {

// Whether these inputs, as far as they are there, and outputs have their channels last (one block
// of all of them). UNIMPLEMENTED where some have and others have not, or are in other blocks.
inline absl::StatusOr<bool> HaveChannelsLast(const PlainSpec& plain, const std::vector<int>& inputs,
                                             const std::vector<int>& outputs) {
  size_t blocked = 0, count = outputs.size();
  for (const int output : outputs) blocked += plain.outputs[output] ? 1 : 0;
  for (const int input : inputs) {
    if (input >= static_cast<int>(plain.inputs.size())) continue;
    ++count;
    blocked += plain.inputs[input] ? 1 : 0;
  }
  if (blocked == 0) return false;
  if (blocked == count && plain.block == compiler::kWholeBlock) return true;
  return absl::UnimplementedError(absl::StrFormat(
      "%s '%s': %d of %d operands with channels come in blocks of %d; a cuda kernel has the "
      "channels of all of them in the second place, or of all of them last",
      plain.spec.op, plain.spec.name, blocked, count, plain.block));
}

}  // namespace braid::cuda
