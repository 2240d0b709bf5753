// Work that is cut into items, shared by a kernel's threads.
#pragma once

#include <atomic>
#include <cstdint>

namespace braid::cpu {

// A team's start and end in terms of C++'s memory model, which has no word of OpenMP: without it
// the thread sanitizer, which cannot look into OpenMP's library either, takes all that threads hand
// over for races.
class TeamFence {
 public:
  TeamFence() { started_.store(true, std::memory_order_release); }
  void Enter() const { (void)started_.load(std::memory_order_acquire); }
  void Leave() { left_.fetch_add(1, std::memory_order_release); }
  void Join() const { (void)left_.load(std::memory_order_acquire); }

 private:
  std::atomic<bool> started_{false};
  std::atomic<int> left_{0};
};

// Calls f(item, thread) for all items, on up to `threads` threads. How the threads get at the
// arguments is OpenMP's matter, and not looked at; f is.
template <class F>
__attribute__((no_sanitize("thread"))) void ForEachItem(int64_t items, int threads, F f) {
  if (threads <= 1) {
    for (int64_t item = 0; item < items; ++item) f(item, 0);
    return;
  }
  TeamFence fence;
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int thread = 0; thread < threads; ++thread) {
    fence.Enter();
    for (int64_t item = thread; item < items; item += threads) f(item, thread);
    fence.Leave();
  }
  fence.Join();
}

}  // namespace braid::cpu
