// A device of a node, and the one door to its memory: arenas, variables, the kernels' work memory,
// landing slots and staging of collectives come from here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/memory.h"

namespace braid {

class KernelRegistry;

// Belongs to its node's control thread, but for Allocate, which any thread may call.
class Device {
 public:
  // `kernels` (borrowed) are those of the device's kind.
  Device(std::string kind, int index, const KernelRegistry* kernels)
      : kind_(std::move(kind)), index_(index), kernels_(kernels) {}
  virtual ~Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const std::string& kind() const { return kind_; }  // "cpu"
  int index() const { return index_; }               // among its node's
  const KernelRegistry& kernels() const { return *kernels_; }

  // As AllocateMemory says. The device outlives what it lends.
  virtual absl::StatusOr<Memory> Allocate(MemoryKind kind, uint64_t bytes) = 0;

  // The activations of one step. All jobs of a session share the arena, since they run one at a
  // time: it is as large as the largest plan says, and it never moves.
  virtual std::span<std::byte> arena() const = 0;
  // Makes at least `bytes` of the arena usable. RESOURCE_EXHAUSTED with both values if the system
  // refuses.
  virtual absl::Status GrowArena(uint64_t bytes) = 0;

 private:
  const std::string kind_;
  const int index_;
  const KernelRegistry* const kernels_;
};

// By index.
using Devices = std::vector<std::unique_ptr<Device>>;

// An AllocateMemory of the device's own memory.
inline AllocateMemory OwnMemoryOf(Device& device) {
  return [&device](uint64_t bytes) { return device.Allocate(MemoryKind::kOwn, bytes); };
}

}  // namespace braid
