// What a library answers once for launches of the same key, and is not asked again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <type_traits>

namespace braid::cuda {

// A Key is numbers alone, so that keys are compared and hashed as bytes. Threads may share it.
template <class Key, class Plan>
class LibraryPlans {
  static_assert(std::has_unique_object_representations_v<Key>);
  static_assert(sizeof(Key) % sizeof(int64_t) == 0 && alignof(Key) == alignof(int64_t));

 public:
  LibraryPlans() = default;
  LibraryPlans(const LibraryPlans&) = delete;
  LibraryPlans& operator=(const LibraryPlans&) = delete;
  ~LibraryPlans() {
    for (Entry* entry : first_) {
      while (entry != nullptr) {
        Entry* const next = entry->next;
        delete entry;
        entry = next;
      }
    }
  }

  // What make(key) returned for the first launch with this key. Stays where it is.
  template <class Make>
  const Plan& Find(const Key& key, Make make) {
    const std::lock_guard<std::mutex> lock(mutex_);
    Entry*& first = first_[HashOf(key) % kBuckets];
    for (const Entry* entry = first; entry != nullptr; entry = entry->next) {
      if (std::memcmp(&entry->key, &key, sizeof key) == 0) return entry->plan;
    }
    first = new Entry{key, make(key), first};
    return first->plan;
  }

  // When nobody looks for one any more.
  template <class F>
  void ForEach(F f) {
    for (Entry* entry : first_) {
      for (; entry != nullptr; entry = entry->next) f(entry->plan);
    }
  }

 private:
  struct Entry {
    Key key;
    Plan plan;
    Entry* next;  // of the same bucket
  };
  static constexpr int kBuckets = 1024;

  static uint64_t HashOf(const Key& key) {
    uint64_t hash = 0xcbf29ce484222325;
    int64_t numbers[sizeof(Key) / sizeof(int64_t)];
    std::memcpy(numbers, &key, sizeof key);
    for (const int64_t number : numbers) {
      hash = (hash ^ static_cast<uint64_t>(number)) * 0x9e3779b97f4a7c15;
      hash ^= hash >> 29;
    }
    return hash;
  }

  std::mutex mutex_;
  Entry* first_[kBuckets] = {};
};

}  // namespace braid::cuda
