// How the operands of gather, scatter and their like become Picks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "runtime/kernels/cuda/gather.h"
#include "runtime/kernels/cuda/kernel_table.h"
#include "runtime/kernels/kernel.h"

namespace braid::cuda {

enum class PickBy {
  kRows,      // of one axis: gather
  kElements,  // indices of the table's rank: gather_elements
  kNd         // the last axis of the indices is a position on several of the table: gather_nd
};

struct PickOperands {
  PickBy by = PickBy::kRows;
  int indices = 1;              // which input
  bool table_is_input = false;  // 0, else it is output 0

  const OperandSpec& table(const KernelSpec& spec) const {
    return table_is_input ? spec.inputs[0] : spec.outputs[0];
  }
};

// In act `act` of a step, for indices at `index`. UNIMPLEMENTED, in every act, for too many axes.
absl::StatusOr<Picks> PicksOf(const KernelSpec& spec, const PickOperands& operands, int64_t act,
                              const void* index);

inline constexpr int64_t kPickEntryBytes = sizeof(uint64_t);

// For what is sorted by entries.
absl::StatusOr<Picks> CountablePicks(const KernelSpec& spec, const PickOperands& operands);
// Makes and sorts the entries in `work`, twice kPickEntryBytes for each position, and says where
// they are then.
Error SortPicks(const KernelTable& table, const Queue& queue, const Picks& picks, std::byte* work,
                const uint64_t*& entries);

}  // namespace braid::cuda
