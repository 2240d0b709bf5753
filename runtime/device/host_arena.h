// An arena in host memory. Address space is reserved once, when it is first used; memory is taken
// as plans need it, so what lies there never moves.
//
// Where address space has no limit, as much is reserved as there is memory: no plan that fits needs
// more. Under a limit (ulimit -v) all arenas of a node get a quarter of what is left together,
// since threads and heaps reserve more than they use, too; or twice what the first plan needs, if
// that is more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"

namespace braid {

class SharedHeap;

class HostArena {
 public:
  // `devices`: how many the node has, each with such an arena.
  // `heap`: it lies there if there is room, so that peers may write to it; outlives it. Null: it
  // does not.
  explicit HostArena(int devices, SharedHeap* heap = nullptr) : devices_(devices), heap_(heap) {}
  ~HostArena();
  HostArena(const HostArena&) = delete;
  HostArena& operator=(const HostArena&) = delete;

  // Makes at least `bytes` usable. RESOURCE_EXHAUSTED with both values if there is less memory or
  // address space.
  absl::Status Grow(uint64_t bytes);

  std::span<std::byte> bytes() const { return {base_, size_}; }

 private:
  absl::Status Reserve(uint64_t bytes);

  const int devices_;
  SharedHeap* const heap_;
  bool is_in_heap_ = false;
  uint64_t reserved_ = 0;
  void* mapped_ = nullptr;     // what was reserved, if not in the heap
  std::byte* base_ = nullptr;  // in it, at the start of a huge page
  uint64_t size_ = 0;
};

}  // namespace braid
