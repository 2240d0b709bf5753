// Calls of a process group that a program makes together. Small ones of one kind become one call,
// whose data are copied into one piece of memory: copying them takes less time than their messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/source_location.h"
#include "runtime/base/memory.h"
#include "runtime/group/group_call.h"

namespace braid::dist {

struct GroupBatch {
  std::vector<GroupCall> calls;  // of all ranks, as the program made them
  SourceLocation where;
  uint64_t signature = 0;  // of all of them in their order
};

// What carries out calls that pass CheckCall, in this order, the same on all ranks that make the
// same batch. INVALID_ARGUMENT if one of them writes where another one reads or writes.
absl::StatusOr<std::vector<GroupCall>> JoinCalls(std::vector<GroupCall> calls, int rank,
                                                 SourceLocation where);

// Whether several calls became this one.
inline bool IsJoined(const GroupCall& call) { return call.parts.size() > 1; }

// How many elements of an all_reduce that is joined each rank sums: those that it sums of each of
// the calls, so that every element is added up in the order in which a call of its own does it.
// Empty for other calls.
std::vector<int64_t> JoinedBlocks(const GroupCall& call, int ranks);

// The data of one joined call after the other: each rank's blocks of all the calls.
class JoinedData {
 public:
  // Copies what this rank gives to the call.
  absl::Status Pack(const GroupCall& call, int rank, int ranks, const AllocateMemory& allocate);
  // Copies what this rank gets to where the calls want it.
  void Unpack(const GroupCall& call, int rank, int ranks) const;

  const std::byte* input() const { return memory_.data() + input_; }
  std::byte* output() const { return memory_.data() + output_; }

 private:
  Memory memory_;
  int64_t input_ = 0, output_ = 0;
};

}  // namespace braid::dist
