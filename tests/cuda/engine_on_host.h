// The streams and marks of cards that are the host's memory (module_on_host.cc), and the thread
// that does what is queued there.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/cuda/module_table.h"

namespace braid::cuda {

inline constexpr Error kIllegalAddress = 700;  // cudaErrorIllegalAddress

// Of the environment.
int64_t Setting(const char* name, int64_t otherwise);

// A mark: how often it was recorded, and how often its stream has come to it.
struct Mark {
  int64_t recorded = 0;
  int64_t reached = 0;
};

struct Item {
  std::function<void()> work;
  Mark* record = nullptr;
  Mark* wait = nullptr;
  int64_t count = 0;
};

using FakeGraph = std::vector<Item>;

struct FakeStream {
  std::deque<Item> items;
  bool is_busy = false;
  std::unique_ptr<FakeGraph> captured;  // null: what is queued is done
};

// All cards' work, on one thread.
class Engine {
 public:
  Engine() : left_(Setting("BRAID_FAKE_FAILS_AFTER", -1)), thread_([this] { Loop(); }) {}
  ~Engine() {
    {
      const std::lock_guard lock(mutex_);
      is_ending_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  FakeStream* AddStream() {
    const std::lock_guard lock(mutex_);
    streams_.push_back(std::make_unique<FakeStream>());
    return streams_.back().get();
  }
  void RemoveStream(FakeStream* stream) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return (stream->items.empty() || is_lost_) && !stream->is_busy; });
    std::erase_if(streams_, [&](const auto& each) { return each.get() == stream; });
  }
  void Push(FakeStream* stream, Item item) {
    {
      const std::lock_guard lock(mutex_);
      if (stream->captured != nullptr) return stream->captured->push_back(std::move(item));
      if (item.record != nullptr) item.count = ++item.record->recorded;
      if (item.wait != nullptr && item.count == 0) item.count = item.wait->recorded;
      stream->items.push_back(std::move(item));
    }
    changed_.notify_all();
  }
  // Of a mark that no stream records.
  void Reach(Mark* mark, int64_t count) {
    {
      const std::lock_guard lock(mutex_);
      mark->reached = std::max(mark->reached, count);
    }
    changed_.notify_all();
  }
  Error StateOf(FakeStream* stream) {
    const std::lock_guard lock(mutex_);
    if (is_lost_) return kIllegalAddress;
    return stream->items.empty() && !stream->is_busy ? kDone : kNotReady;
  }
  bool is_lost() {
    const std::lock_guard lock(mutex_);
    return is_lost_;
  }

 private:
  FakeStream* NextLocked() {
    std::vector<FakeStream*> ready;
    for (const auto& stream : streams_) {
      if (stream->items.empty()) continue;
      const Item& item = stream->items.front();
      if (item.wait == nullptr || item.wait->reached >= item.count) ready.push_back(stream.get());
    }
    return ready.empty() ? nullptr : ready[random_() % ready.size()];
  }

  void Loop() {
    std::unique_lock lock(mutex_);
    while (true) {
      FakeStream* stream = nullptr;
      changed_.wait(
          lock, [&] { return is_ending_ || (!is_lost_ && (stream = NextLocked()) != nullptr); });
      if (stream == nullptr) return;
      Item item = std::move(stream->items.front());
      stream->items.pop_front();
      if (item.record != nullptr) item.record->reached = item.count;
      if (item.work) {
        if (left_ >= 0 && left_-- == 0) {
          is_lost_ = true;
          changed_.notify_all();
          continue;
        }
        stream->is_busy = true;
        lock.unlock();
        item.work();
        lock.lock();
        stream->is_busy = false;
      }
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::unique_ptr<FakeStream>> streams_;
  std::mt19937 random_{7};
  int64_t left_;
  bool is_lost_ = false, is_ending_ = false;
  std::thread thread_;
};

Engine& TheEngine();

FakeStream* StreamOf(void* stream);
void Later(void* stream, std::function<void()> work);

}  // namespace braid::cuda
