// A request to end from outside the program, a signal for instance: raised once, told to whatever
// the session waits for at that time.
#pragma once

#include <functional>
#include <utility>

#include "absl/status/status.h"
#include "runtime/base/mutex.h"

namespace braid {

// Any thread.
class Interruption {
 public:
  using Handler = std::function<void(const absl::Status&)>;

  // The first reason counts.
  void Raise(absl::Status reason) {
    MutexLock lock(mutex_);
    if (!reason_.ok()) return;
    reason_ = std::move(reason);
    if (handler_) handler_(reason_);
  }

  // Who is told; nullptr: nobody. Told at once if it was raised already. When this returns, the
  // earlier handler is not called any more; so handlers only pass the reason on.
  void SetHandler(Handler handler) {
    MutexLock lock(mutex_);
    handler_ = std::move(handler);
    if (handler_ && !reason_.ok()) handler_(reason_);
  }

  absl::Status reason() const {
    MutexLock lock(mutex_);
    return reason_;
  }

 private:
  mutable Mutex mutex_;
  Handler handler_ BRAID_GUARDED_BY(mutex_);
  absl::Status reason_ BRAID_GUARDED_BY(mutex_);
};

}  // namespace braid
