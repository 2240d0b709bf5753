// A device that lags: it has memory of its own, which nothing else can touch, and does what it is
// told later, its streams in an order that a seed draws. Its kernels are the CPU's. It stands for
// every accelerator: whatever relies on work being done when it was only queued goes wrong on it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "runtime/device/device_kinds.h"

namespace braid {

// What may be broken on purpose, to show that it is seen.
enum class LaggingFault : uint8_t {
  kNone,
  kReadsTooEarly,   // who reads does not wait for the mark of who writes
  kWritesTooEarly,  // who writes does not wait for the marks of who reads
  kMeetsTooEarly,   // collectives do not wait for the marks of who writes what they read
  kNotifiesEarly,   // the host is told that work is done when it is queued
  kDrainsEarly,     // the device says that its streams are empty while they are not
};

// Of all devices of a kind.
struct LaggingCounts {
  std::atomic<int64_t> queued{0};  // pieces of work
  std::atomic<int64_t> done{0};
  std::atomic<int64_t> bytes{0};  // of their own memory: arenas, and what is lent
};

// What the lagging devices of several nodes of a process, of one session at a time, do collectives
// by. As with NCCL, members know each other by a word that the first one tells.
class LaggingNetwork;
std::shared_ptr<LaggingNetwork> MakeLaggingNetwork();

// `counts` (borrowed) may be null. Without a network they do collectives on their own node alone.
DeviceKinds::Kind LaggingKind(LaggingFault fault = LaggingFault::kNone,
                              LaggingCounts* counts = nullptr,
                              std::shared_ptr<LaggingNetwork> network = nullptr);

// The CPU and "lagging".
DeviceKinds KindsWithLagging(LaggingFault fault = LaggingFault::kNone,
                             LaggingCounts* counts = nullptr,
                             std::shared_ptr<LaggingNetwork> network = nullptr);

}  // namespace braid
