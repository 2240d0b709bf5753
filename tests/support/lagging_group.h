// Where lagging devices meet for their collectives, and what is done there. As on a real
// accelerator, a device that has come to a collective in its stream waits there for the others; two
// that wait for each other in different ones would wait for ever, which is said here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "runtime/base/mutex.h"
#include "runtime/device/device_group.h"

namespace braid {

// A member's part of one collective, from when it is queued until it is done.
struct LaggingPart {
  std::shared_ptr<const DeviceCollectiveSpec> spec;
  std::vector<int> places;  // of the members among all devices that meet, in rank order
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  // Under the meeting's lock.
  bool has_come = false;
  bool is_done = false;
  absl::Status status;  // the member's before it is done, then everyone's

  int place() const { return places[spec->my_rank]; }
  bool spans_nodes() const { return !spec->nodes.empty(); }
  bool IsOfSame(const LaggingPart& other) const {
    return spec->id == other.spec->id && places == other.places;
  }
};

class LaggingMeeting {
 public:
  struct Options {
    // Does something while the memory of the devices at these places is open.
    std::function<void(const std::vector<int>& places, const std::function<void()>&)> with_memory;
    std::function<void(int place)> wake;  // it may go on
  };
  explicit LaggingMeeting(Options options) : options_(std::move(options)) {}

  // The device has come to this part in its stream; `status` is its failure before that. The last
  // one does the work of all, if none has failed.
  void Come(const std::shared_ptr<LaggingPart>& part, const absl::Status& status);

  // The device waits for nobody on other nodes any more, nor will it; who waits for it there goes
  // on waiting, until it leaves, too.
  void Leave(int place);

  enum class State { kToCome, kWaits, kDone };
  State StateOf(const LaggingPart& part) const;

 private:
  using Parts = std::vector<std::shared_ptr<LaggingPart>>;
  // Those that wait, in rank order.
  Parts WaitingIn(const LaggingPart& part) const BRAID_REQUIRES(mutex_);
  absl::Status FindSwap(const LaggingPart& part) const BRAID_REQUIRES(mutex_);
  bool HasLeft(const LaggingPart& part) const BRAID_REQUIRES(mutex_);
  // Returns the places of those that may go on now.
  std::vector<int> ComeLocked(const std::shared_ptr<LaggingPart>& part) BRAID_REQUIRES(mutex_);
  std::vector<int> Finish(const Parts& parts, const absl::Status& status) BRAID_REQUIRES(mutex_);

  const Options options_;
  mutable Mutex mutex_;
  // By place.
  std::map<int, std::shared_ptr<LaggingPart>> waiting_ BRAID_GUARDED_BY(mutex_);
  std::set<int> left_ BRAID_GUARDED_BY(mutex_);
  // By members and id: collectives to which a member has come in another order. Nobody waits there
  // any more.
  std::map<std::pair<std::vector<int>, uint64_t>, absl::Status> swapped_ BRAID_GUARDED_BY(mutex_);
};

}  // namespace braid
