// What a kernel needs beside its operands: said before the kernel is made, so that a plan's memory
// is known on a machine that runs none of it.
#pragma once

#include <algorithm>
#include <cstdint>

namespace braid {

// In bytes.
struct KernelMemory {
  int64_t own = 0;     // what it keeps for itself: copies, packed operands, partial sums
  int64_t shared = 0;  // what it reserves of KernelSpec::work: of those that share it, the largest

  // Another kernel of the same thread: they never run at the same time.
  void Add(const KernelMemory& other) {
    own += other.own;
    shared = std::max(shared, other.shared);
  }
};

}  // namespace braid
