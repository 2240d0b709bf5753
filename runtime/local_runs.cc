#include "runtime/local_runs.h"

#include <utility>

#include "runtime/kernels/thread_settings.h"

namespace braid {

bool LocalRuns::Run(int64_t first_step, int64_t steps) {
  const KeptThreadSettings kept;
  first_step_ = first_step;
  steps_ = steps;
  state_.store(State::kRunning, std::memory_order_relaxed);
  // It begins when this thread has the loop: before, the loop's own thread would work it off.
  bool has_begun = false;
  const auto has_ended = [&] {
    if (!std::exchange(has_begun, true)) BeginOrRefuse();
    return state_.load(std::memory_order_acquire) != State::kRunning;
  };
  if (!loop_.RunUntil(nullptr, has_ended)) AwaitOwnThread();
  return state_.exchange(State::kIdle, std::memory_order_acquire) == State::kDone;
}

// Somebody else has the loop.
void LocalRuns::AwaitOwnThread() {
  Event* ended = nullptr;
  {
    MutexLock lock(mutex_);
    ended_ = environment_.MakeEvent();
    ended = ended_.get();
  }
  loop_.Post([this] { BeginOrRefuse(); });
  while (!environment_.Await(*ended, kForever).ok()) {
  }
  MutexLock lock(mutex_);
  ended_.reset();
}

void LocalRuns::BeginOrRefuse() {
  {
    MutexLock lock(mutex_);
    if (!is_closing_) return begin_(first_step_, steps_);
  }
  End(State::kClosed);
}

void LocalRuns::Close() {
  MutexLock lock(mutex_);
  is_closing_ = true;
}

void LocalRuns::OnClosed(const std::shared_ptr<LocalRuns>& runs) {
  // Who drives the loop sees what the loop does.
  if (runs->is_running()) runs->loop_.Post([runs] { runs->End(State::kClosed); });
}

void LocalRuns::End(State state) {
  MutexLock lock(mutex_);
  state_.store(state, std::memory_order_release);
  if (ended_ != nullptr) ended_->Set();
}

}  // namespace braid
