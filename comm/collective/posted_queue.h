// A queue from any thread to one reactor's: one Post a batch, not one an item. How events reach the
// members of a collective.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/base/mutex.h"
#include "runtime/base/reactor.h"

namespace braid {

template <typename T>
class PostedQueue : public std::enable_shared_from_this<PostedQueue<T>> {
 public:
  // `handler` is called on the reactor's thread, in order, until Close.
  // There is room for `capacity` items from the start; more make it grow, once.
  PostedQueue(Reactor& reactor, std::function<void(T&)> handler, size_t capacity = 0)
      : reactor_(reactor), handler_(std::move(handler)) {
    items_.reserve(capacity);
    batch_.reserve(capacity);
  }

  // Any thread; dropped after Close.
  void Push(T item) {
    {
      MutexLock lock(mutex_);
      if (is_closed_) return;
      items_.push_back(std::move(item));
      if (std::exchange(is_scheduled_, true)) return;
      posting_.fetch_add(1, std::memory_order_relaxed);
    }
    // Without the lock, which whoever this wakes wants at once: on one core it would wake in vain.
    reactor_.Post([self = this->shared_from_this()] { self->Drain(); });
    if (posting_.fetch_sub(1, std::memory_order_release) == 1) posting_.notify_all();
  }

  // On the reactor's thread, also from inside the handler. Neither the handler nor the reactor is
  // used after it.
  void Close() {
    {
      MutexLock lock(mutex_);
      is_closed_ = true;
      items_.clear();
    }
    int posting = 0;
    while ((posting = posting_.load(std::memory_order_acquire)) > 0) posting_.wait(posting);
  }

 private:
  void Drain() {
    {
      MutexLock lock(mutex_);
      is_scheduled_ = false;
      batch_.swap(items_);
    }
    for (size_t i = 0; i < batch_.size() && !IsClosed(); ++i) handler_(batch_[i]);
    batch_.clear();
  }

  // Written on this thread only; read without the lock for that reason.
  bool IsClosed() const { return is_closed_; }

  Reactor& reactor_;
  const std::function<void(T&)> handler_;
  Mutex mutex_;
  std::vector<T> items_ BRAID_GUARDED_BY(mutex_);
  bool is_scheduled_ BRAID_GUARDED_BY(mutex_) = false;
  std::atomic<int> posting_ = 0;  // Pushes that still use the reactor
  bool is_closed_ = false;
  std::vector<T> batch_;  // the reactor's thread only
};

}  // namespace braid
