// Where lagging devices of a node meet for their collectives, and what is done there. As on a real
// accelerator, a device that has come to a collective in its stream waits there for the others; two
// that wait for each other in different ones would wait for ever, which is said here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "runtime/base/mutex.h"
#include "runtime/device/device_group.h"

namespace braid {

// A member's part of one collective, from when it is queued until it is done.
struct LaggingPart {
  std::shared_ptr<const DeviceCollectiveSpec> spec;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  // Under the meeting's lock.
  bool has_come = false;
  bool is_done = false;
  absl::Status status;  // the member's before it is done, then everyone's

  int device() const { return spec->devices[spec->my_rank]; }
};

class LaggingMeeting {
 public:
  // Does something while the memory of these devices is open.
  using WithMemory = std::function<void(const std::vector<int>& devices, std::function<void()>)>;
  explicit LaggingMeeting(WithMemory with_memory) : with_memory_(std::move(with_memory)) {}

  // The device has come to this part in its stream; `status` is its failure before that. The last
  // one does the work of all, if none has failed. Returns those devices that may go on now.
  std::vector<int> Come(const std::shared_ptr<LaggingPart>& part, const absl::Status& status);

  enum class State { kToCome, kWaits, kDone };
  State StateOf(const LaggingPart& part) const;

 private:
  using Parts = std::vector<std::shared_ptr<LaggingPart>>;  // in rank order
  absl::Status FindSwap(const LaggingPart& part) const BRAID_REQUIRES(mutex_);
  std::vector<int> Finish(const Parts& parts, const absl::Status& status) BRAID_REQUIRES(mutex_);

  const WithMemory with_memory_;
  mutable Mutex mutex_;
  // By device: where it waits.
  std::map<int, std::shared_ptr<LaggingPart>> waiting_ BRAID_GUARDED_BY(mutex_);
  // Collectives to which a member has come in another order: nobody waits there any more.
  std::map<uint64_t, absl::Status> swapped_ BRAID_GUARDED_BY(mutex_);
};

}  // namespace braid
