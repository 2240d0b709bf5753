// The bytes of variables on one node's devices. Jobs share them by name; they outlive every job.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/attrs.h"
#include "runtime/base/mutex.h"
#include "runtime/device/device.h"
#include "runtime/kernels/kernel.h"

namespace braid {

// What a variable is on one device, and how its first value is made.
struct VariableSpec {
  std::string name;
  OperandSpec layout;
  // The variable op's attributes {init, value, low, high, mean, stddev}: every element from (seed,
  // name, logical index), so that the layout does not matter.
  Attrs init;
  uint64_t seed = 0;
};

// Belongs to the node's control thread, but for what says otherwise; actors only use the addresses
// and the epoch.
class VariableStore {
 public:
  // `devices` (borrowed) lend the memory; their kernels fill new variables: random_uniform,
  // random_normal, constant.
  explicit VariableStore(const Devices* devices) : devices_(devices) {}

  // The variable's shard on `device`; if it is new, its first value is made in the device's stream.
  // FAILED_PRECONDITION if it is there with another layout.
  absl::StatusOr<std::byte*> Obtain(int device, const VariableSpec& variable);
  // nullptr if it was never obtained.
  std::byte* Find(int device, const std::string& name) const;
  uint64_t bytes(int device) const;

  // A run of a job that writes variables begins and ends. Any thread.
  void BeginWriting();
  void EndWriting();
  // While it is the same, and not 0, all variables hold what they held. Any thread.
  const std::atomic<uint64_t>& epoch() const { return epoch_; }

 private:
  struct Entry {
    OperandSpec layout;
    Memory memory;
  };

  const Devices* devices_;
  std::map<std::pair<int, std::string>, Entry> entries_;
  Mutex writers_mutex_;
  int writers_ BRAID_GUARDED_BY(writers_mutex_) = 0;
  uint64_t last_epoch_ BRAID_GUARDED_BY(writers_mutex_) = 1;
  std::atomic<uint64_t> epoch_{1};  // 0 while somebody writes
};

}  // namespace braid
