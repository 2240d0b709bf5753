// What collectives of cards come to, as they are defined.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/cuda/nccl_table.h"

namespace braid::cuda {

// One member's part of a collective, with counts of its own.
struct CollectivePart {
  NcclCall call;
  std::vector<int64_t> counts;
};

// to = elements from `first` on of all inputs, reduced in rank order; numbers of 16 bits are added
// in f32. `to` may be an input.
void ReduceParts(const std::vector<CollectivePart>& parts, int64_t first, int64_t n, std::byte* to);

// Of all members. Outputs may be inputs.
void CarryOut(const std::vector<CollectivePart>& parts);

}  // namespace braid::cuda
