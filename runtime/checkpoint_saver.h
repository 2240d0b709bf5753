// Brings what this node wrote of checkpoints to the disk, on a thread of its own, while training
// goes on.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "runtime/base/mutex.h"
#include "runtime/base/reactor.h"
#include "runtime/files/checkpoint_part.h"

namespace braid {

class CheckpointSaver {
 public:
  struct Options {
    uint16_t node = 0;
    Environment* environment = nullptr;  // borrowed, as is the control reactor
    Reactor* control = nullptr;
    // Once for each part, on the control thread; of the last ones when the saver is gone, maybe.
    std::function<void(int64_t save, const absl::Status& status)> on_saved;
  };
  explicit CheckpointSaver(Options options) : options_(std::move(options)) {}
  // Waits for what it is inside of.
  ~CheckpointSaver() = default;
  CheckpointSaver(const CheckpointSaver&) = delete;
  CheckpointSaver& operator=(const CheckpointSaver&) = delete;

  // Finishes the part; on_saved follows. Any thread.
  void Finish(std::shared_ptr<CheckpointPart> part);

 private:
  const Options options_;
  Mutex mutex_;
  std::unique_ptr<Reactor> reactor_ BRAID_GUARDED_BY(mutex_);  // made when first needed
};

}  // namespace braid
