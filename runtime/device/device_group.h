// The devices of a node as far as they do collectives among themselves, in their own memory, and
// with devices of other nodes, by ways of their own. A kind of device that has such a group
// registers it (device_kinds.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/dtype.h"
#include "graph/sbp.h"
#include "runtime/base/collective_kind.h"
#include "runtime/base/reactor.h"

namespace braid {

// One member's end of a collective.
struct DeviceCollectiveSpec {
  uint64_t id = 0;  // unique on the node, for ever; the same for all members
  CollectiveKind kind = CollectiveKind::kAllReduce;
  std::vector<int> devices;    // the members' indices on their nodes, in rank order
  std::vector<int> nodes;      // theirs; empty: all are on this one
  Reactor* reactor = nullptr;  // of the thread that queues; where there are several nodes
  int my_rank = 0;
  DType dtype = DType::kF32;
  Sbp::Kind reduction = Sbp::Kind::kPartialSum;  // of all_reduce and reduce_scatter, in rank order
  // In elements, as those of a CollectiveSpec (comm/collective/collective.h).
  std::vector<int64_t> counts, receives;
  int root = 0;  // of a broadcast
};

// What the member of rank 0 may have to tell those on other nodes, in bytes.
inline constexpr size_t kDeviceWordBytes = 128;

class DeviceCollective {
 public:
  virtual ~DeviceCollective() = default;

  // Both on the thread that queues in the device's stream kCollective, in turn. Before the members
  // meet: what this one brings, once its stream has come here. Input and output may share bytes as
  // Collective::Start says; both stay until the part is done.
  virtual void Come(const std::byte* input, std::byte* output) = 0;
  // Where members are on several nodes, after Come: what this one tells the others as they meet, of
  // which they hear what rank 0 says. kDeviceWordBytes, zeros before.
  virtual absl::Status Tell(std::span<std::byte> /*word*/) { return absl::OkStatus(); }
  // After all have come and met. `done` is called once, on this thread, maybe inside this call:
  // what is queued in the stream from then on is done after this member's part. `word`: what rank 0
  // told; empty where all members are on one node. All members call it; unless the kind of device
  // collects in any order, each does so in the same order for the collectives that it takes part
  // in, so that a device may wait in its stream for the others.
  virtual void Queue(std::span<const std::byte> word, std::function<void(absl::Status)> done) = 0;
};

// Belongs to the node's control thread. Outlived by its devices.
class DeviceGroup {
 public:
  virtual ~DeviceGroup() = default;
  // May allocate on the devices. Outlives its ends.
  virtual absl::StatusOr<std::unique_ptr<DeviceCollective>> Create(
      const DeviceCollectiveSpec& spec) = 0;
  // What is under way with devices of other nodes ends unfinished, and nothing is begun with them
  // any more: they may not come.
  virtual void Abort() {}
};

}  // namespace braid
