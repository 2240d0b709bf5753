// The C library's allocator, counted. Programs that link this count every malloc, calloc, realloc
// and aligned allocation of all their threads and libraries, operator new among them (which calls
// malloc), and know how many bytes are allocated.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace braid {

// Calls that had the same callers.
struct AllocationSite {
  int64_t calls = 0;
  int64_t bytes = 0;
  // Of the innermost caller that belongs to none of the libraries of C, C++ and OpenMP: the file of
  // its program or library.
  std::string library;
  std::string stack;  // a line a caller, the innermost first
};

// One watch at a time in the process.
void BeginWatchingAllocations();
void EndWatchingAllocations();
// What was allocated between the two, the most frequent first.
std::vector<AllocationSite> WatchedAllocations();

// Bytes that are allocated now, as asked for, and the most that ever were since ResetPeak.
int64_t AllocatedBytes();
int64_t PeakAllocatedBytes();
void ResetPeakAllocatedBytes();

}  // namespace braid
