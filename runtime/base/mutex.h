// A std::mutex that thread-safety analysis and every sanitizer see. For the edges only: actors
// never lock.
#pragma once

#include <condition_variable>
#include <mutex>

// Attributes of clang's thread-safety analysis; other compilers have none.
#if defined(__clang__)
#define BRAID_CAPABILITY(x) __attribute__((capability(x)))
#define BRAID_SCOPED_CAPABILITY __attribute__((scoped_lockable))
#define BRAID_ACQUIRE(...) __attribute__((acquire_capability(__VA_ARGS__)))
#define BRAID_RELEASE(...) __attribute__((release_capability(__VA_ARGS__)))
#define BRAID_REQUIRES(...) __attribute__((requires_capability(__VA_ARGS__)))
#define BRAID_GUARDED_BY(x) __attribute__((guarded_by(x)))
#else
#define BRAID_CAPABILITY(x)
#define BRAID_SCOPED_CAPABILITY
#define BRAID_ACQUIRE(...)
#define BRAID_RELEASE(...)
#define BRAID_REQUIRES(...)
#define BRAID_GUARDED_BY(x)
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
