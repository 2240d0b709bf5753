// Reactors that have threads, and the clock of the machine.
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string_view>

#include "absl/strings/str_format.h"
#include "runtime/base/mutex.h"
#include "runtime/base/real_reactor.h"

namespace braid {
namespace {

class RealEvent : public Event {
 public:
  // Notifies under the lock: the waiter may destroy the event as soon as it has the lock.
  void Set() override {
    MutexLock lock(mutex_);
    is_set_ = true;
    changed_.notify_all();
  }

  bool is_set() const override {
    MutexLock lock(mutex_);
    return is_set_;
  }

  bool Wait(Nanoseconds timeout) {
    std::unique_lock<std::mutex> lock(mutex_.native());
    return changed_.wait_for(lock, std::chrono::nanoseconds(timeout), [this] { return is_set_; });
  }

 private:
  mutable Mutex mutex_;
  std::condition_variable changed_;
  bool is_set_ = false;
};

class RealEnvironment : public Environment {
 public:
  Nanoseconds Now() const override { return MonotonicClock() - start_; }

  std::unique_ptr<Reactor> StartReactor(std::string_view name) override {
    return StartRealReactor(name, start_);
  }

  std::unique_ptr<Event> MakeEvent() override { return std::make_unique<RealEvent>(); }

  absl::Status Await(Event& event, Nanoseconds timeout) override {
    if (static_cast<RealEvent&>(event).Wait(timeout)) return absl::OkStatus();
    return absl::DeadlineExceededError(
        absl::StrFormat("not set within %.3f s", static_cast<double>(timeout) / kSecond));
  }

  bool is_simulated() const override { return false; }

 private:
  const Nanoseconds start_ = MonotonicClock();
};

}  // namespace

std::unique_ptr<Environment> MakeRealEnvironment() { return std::make_unique<RealEnvironment>(); }

}  // namespace braid
