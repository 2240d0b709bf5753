#include "tests/support/cuda_on_host.h"

#include <memory>
#include <utility>

#include "tests/support/fiber.h"

namespace braid::cuda_on_host {
namespace {

constexpr unsigned kWarp = 32;
constexpr size_t kStackBytes = 64 << 10;

struct Thread {
  enum class State : uint8_t { kRuns, kMeetsBlock, kMeetsWarp, kDone };
  Thread(void (*main)(void*), void* argument) : fiber(kStackBytes, main, argument) {}
  State state = State::kRuns;
  Fiber fiber;
  dim3 index;
  uint64_t left = 0;  // for the others of its warp
};

// The threads of the block that runs.
class Block {
 public:
  void Run(dim3 threads, const std::function<void()>& body) {
    const unsigned count = threads.x * threads.y * threads.z;
    while (threads_.size() < count) {
      threads_.push_back(std::make_unique<Thread>(&Block::Main, this));
    }
    count_ = count;
    body_ = &body;
    for (unsigned i = 0; i < count; ++i) {
      Thread& thread = *threads_[i];
      thread.state = Thread::State::kRuns;
      thread.index = dim3(i % threads.x, i / threads.x % threads.y, i / (threads.x * threads.y));
    }
    while (RunSome()) {
    }
  }

  void Meet(Thread::State where) {
    Thread& me = *threads_[now_];
    me.state = where;
    me.fiber.Leave();
  }
  unsigned now() const { return now_; }
  Thread& thread(unsigned i) { return *threads_[i]; }
  bool has(unsigned i) const { return i < count_; }

 private:
  static void Main(void* block) {
    auto* self = static_cast<Block*>(block);
    while (true) {
      (*self->body_)();
      self->Meet(Thread::State::kDone);
    }
  }

  // One warp goes on until none of its threads can; false if all threads have ended.
  bool RunSome() {
    std::vector<unsigned> ready;
    bool all_done = true;
    for (unsigned first = 0; first < count_; first += kWarp) {
      bool goes = false;
      ForWarp(first, [&](Thread& thread) {
        all_done = all_done && thread.state == Thread::State::kDone;
        goes = goes || thread.state == Thread::State::kRuns;
      });
      if (goes) ready.push_back(first);
    }
    if (all_done) return false;
    if (ready.empty()) {
      for (unsigned i = 0; i < count_; ++i) {
        if (threads_[i]->state == Thread::State::kDone) {
          std::fprintf(stderr, "thread %u left its block before a barrier of the others\n", i);
          std::abort();
        }
        threads_[i]->state = Thread::State::kRuns;
      }
      return true;
    }
    RunWarp(ready[random_() % ready.size()]);
    return true;
  }

  void RunWarp(unsigned first) {
    while (true) {
      bool ran = false, meets = false;
      for (unsigned i = first; i < std::min(count_, first + kWarp); ++i) {
        Thread& thread = *threads_[i];
        if (thread.state == Thread::State::kRuns) {
          now_ = i;
          Now().thread = thread.index;
          thread.fiber.Enter();
          ran = true;
        }
        meets = meets || thread.state == Thread::State::kMeetsWarp;
      }
      if (!ran) return;
      if (!meets) return;
      ForWarp(first, [](Thread& thread) {
        if (thread.state == Thread::State::kMeetsWarp) thread.state = Thread::State::kRuns;
      });
    }
  }

  template <class F>
  void ForWarp(unsigned first, F f) {
    for (unsigned i = first; i < std::min(count_, first + kWarp); ++i) f(*threads_[i]);
  }

  std::vector<std::unique_ptr<Thread>> threads_;
  unsigned count_ = 0, now_ = 0;
  const std::function<void()>* body_ = nullptr;
  std::mt19937 random_{1};
};

Block& TheBlock() {
  static Block block;
  return block;
}

}  // namespace

DoLater& Later() {
  static DoLater later = nullptr;
  return later;
}

void Do(void* stream, std::function<void()> work) {
  if (stream == nullptr) return work();
  Later()(stream, std::move(work));
}

Place& Now() {
  static Place place;
  return place;
}

void RunMeeting(dim3 blocks, dim3 threads, const std::function<void()>& body) {
  Place& now = Now();
  now.threads = threads;
  now.blocks = blocks;
  for (unsigned z = 0; z < blocks.z; ++z) {
    for (unsigned y = 0; y < blocks.y; ++y) {
      for (unsigned x = 0; x < blocks.x; ++x) {
        now.block = dim3(x, y, z);
        TheBlock().Run(threads, body);
      }
    }
  }
}

void MeetBlock() { TheBlock().Meet(Thread::State::kMeetsBlock); }

unsigned Lane() { return TheBlock().now() % kWarp; }

uint64_t MeetWarp(uint64_t value, unsigned lane) {
  Block& block = TheBlock();
  const unsigned me = block.now();
  block.thread(me).left = value;
  block.Meet(Thread::State::kMeetsWarp);
  const unsigned other = me / kWarp * kWarp + lane;
  const uint64_t got = block.has(other) ? block.thread(other).left : value;
  block.Meet(Thread::State::kMeetsWarp);
  return got;
}

}  // namespace braid::cuda_on_host
