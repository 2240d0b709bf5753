// The memory of this machine, as any program has it: what CPU devices, arrays and tools lend from.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/base/memory.h"

namespace braid {

class SharedHeap;

// Bytes that this machine has, used or not.
uint64_t SystemMemory();

// What of it there is for programs.
struct MemoryLimits {
  // For all processes of this machine or, if that is less, of this process's control group (a
  // container, a job of Slurm).
  uint64_t shared = 0;
  // For this process: the limit of its address space (ulimit -v); 0 if there is none.
  uint64_t process = 0;

  uint64_t least() const { return process > 0 && process < shared ? process : shared; }
};
// `root` stands before /proc and /sys.
MemoryLimits ReadMemoryLimits(const std::string& root = "");

// What counts against this process's limit; 0 where the system does not say.
uint64_t AddressSpaceInUse();

// An AllocateMemory.
absl::StatusOr<Memory> AllocateHostMemory(uint64_t bytes);
// For what other nodes write: of the heap, which outlives it, or as of above if that is null or has
// no room.
AllocateMemory MemoryForPeers(SharedHeap* heap);

// Asks for large pages; `begin` is a multiple of theirs. A piece at the end keeps small ones, so
// that no more memory is used. Advice only: a system that has none does without.
void AdviseLargePages(void* begin, uint64_t bytes);

}  // namespace braid
