// Kernels whose operands may come in blocks of channels (compiler/plan/channel_blocks.h): their
// specs without these.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/plan/channel_blocks.h"
#include "runtime/kernels/kernel.h"

namespace braid {

// A spec as if all operands were plain, without the attributes that say otherwise, and which of
// them are not.
struct PlainSpec {
  KernelSpec spec;
  std::vector<bool> inputs, outputs;  // are blocked
  int64_t block = 0;                  // attribute channel_block; 0: none is

  bool any() const;
};
// INVALID_ARGUMENT if a blocked operand has no whole blocks.
absl::StatusOr<PlainSpec> PlainSpecOf(const KernelSpec& spec);

}  // namespace braid
