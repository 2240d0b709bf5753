// Memory that can be touched only while it is open: any other access ends the process by SIGSEGV.
// Where the processor has protection keys and one is left, opening costs no system call, and only
// the thread that opens may touch it; else its pages are opened, for all threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace braid {

// An arena at the front, blocks behind it. One thread at a time.
class ProtectedMemory {
 public:
  ProtectedMemory();
  ~ProtectedMemory();
  ProtectedMemory(const ProtectedMemory&) = delete;
  ProtectedMemory& operator=(const ProtectedMemory&) = delete;

  absl::StatusOr<std::span<std::byte>> Take(uint64_t bytes);
  void GiveBack(std::span<std::byte> block);

  std::span<std::byte> arena() const { return {base_, arena_bytes_}; }
  absl::Status GrowArena(uint64_t bytes);

  void Open();
  void Close();

 private:
  void Map();  // what has been added, as what was there
  void Protect(int how);

  std::byte* base_ = nullptr;
  uint64_t arena_bytes_ = 0;
  uint64_t blocks_end_ = 0;             // from where the blocks begin
  std::map<uint64_t, uint64_t> holes_;  // between blocks: first byte, bytes
  bool is_open_ = false;
  int key_ = -1;  // a protection key; -1: none
};

}  // namespace braid
