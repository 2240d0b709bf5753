// A std::mutex that thread-safety analysis and every sanitizer see. For the edges only: actors
// never lock.
#pragma once

#include <condition_variable>
#include <mutex>

#include "absl/base/thread_annotations.h"  // GUARDED_BY

#if defined(__clang__)
#define BRAID_CAPABILITY(x) __attribute__((capability(x)))
#define BRAID_SCOPED_CAPABILITY __attribute__((scoped_lockable))
#define BRAID_ACQUIRE(...) __attribute__((acquire_capability(__VA_ARGS__)))
#define BRAID_RELEASE(...) __attribute__((release_capability(__VA_ARGS__)))
#else
#define BRAID_CAPABILITY(x)
#define BRAID_SCOPED_CAPABILITY
#define BRAID_ACQUIRE(...)
#define BRAID_RELEASE(...)
#endif

namespace braid {

class BRAID_CAPABILITY("mutex") Mutex {
 public:
  void Lock() BRAID_ACQUIRE() { mutex_.lock(); }
  void Unlock() BRAID_RELEASE() { mutex_.unlock(); }
  std::mutex& native() { return mutex_; }

 private:
  std::mutex mutex_;
};

class BRAID_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) BRAID_ACQUIRE(mutex) : mutex_(mutex) { mutex_.Lock(); }
  ~MutexLock() BRAID_RELEASE() { mutex_.Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

}  // namespace braid
