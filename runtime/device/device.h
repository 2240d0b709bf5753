// A device of a node, and the one door to its memory and its work: arenas, variables, the kernels'
// work memory, landing slots and staging of collectives come from here, and copies and kernels go
// through its streams.
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
#include "runtime/base/stream_kind.h"
#include "runtime/device/host_stream.h"
#include "runtime/device/stream.h"

namespace braid {

class CallFuser;
class KernelRegistry;

// Belongs to its node's control thread, but for Allocate and Drain, which any thread may call, and
// its streams.
class Device {
 public:
  Device(std::string kind, int index) : kind_(std::move(kind)), index_(index) {}
  virtual ~Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const std::string& kind() const { return kind_; }  // "cpu"
  int index() const { return index_; }               // among its node's
  virtual const KernelRegistry& kernels() const = 0;
  // Its own memory is the host's, and what is queued in any of its streams is done at once.
  virtual bool is_host() const = 0;

  // As AllocateMemory says. The device outlives what it lends.
  virtual absl::StatusOr<Memory> Allocate(MemoryKind kind, uint64_t bytes) = 0;

  // The activations of one step: an arena in the device's own memory, and one in host memory
  // (pinned) for what the host reads or writes of them. All jobs of a session share them, since
  // they run one at a time: each is as large as the largest plan says, and never moves.
  virtual std::span<std::byte> arena(MemoryKind kind) const = 0;
  // Makes at least `bytes` of an arena usable. RESOURCE_EXHAUSTED with both values if the system
  // refuses.
  virtual absl::Status GrowArena(MemoryKind kind, uint64_t bytes) = 0;

  // Of an IsHostStream kind: a host stream.
  virtual Stream& stream(StreamKind kind) = 0;
  virtual std::unique_ptr<StreamEvent> MakeEvent() = 0;
  // `drained` comes when all that was queued so far is done, in all its streams.
  virtual void Drain(Notice drained) = 0;
  // Makes fewer calls of a task's; null: they stay as they are.
  virtual CallFuser* call_fuser() { return nullptr; }

 private:
  const std::string kind_;
  const int index_;
};

// By index.
using Devices = std::vector<std::unique_ptr<Device>>;

// An AllocateMemory of one kind of the device's memory.
inline AllocateMemory MemoryOf(Device& device, MemoryKind kind) {
  return [&device, kind](uint64_t bytes) { return device.Allocate(kind, bytes); };
}

}  // namespace braid
