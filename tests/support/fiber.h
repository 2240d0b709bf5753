// Threads of a program that take turns by their own word. The system's own (ucontext) set the
// kernel's signal mask at every switch; on x86-64 registers are switched by hand.
#pragma once

#include <ucontext.h>

#include <cstddef>
#include <memory>

namespace braid {

// Belongs to one thread. May be destroyed wherever it stands: what its stack holds is forgotten.
class Fiber {
 public:
  // `main` begins at the first Enter, and never returns.
  Fiber(size_t stack_bytes, void (*main)(void*), void* argument);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  void Enter();  // from outside; returns when the fiber leaves
  void Leave();  // from inside; returns when it is entered again

 private:
  static void Begin(unsigned high, unsigned low);

  const std::unique_ptr<char[]> stack_;
  void (*const main_)(void*);
  void* const argument_;
  void* inside_ = nullptr;  // stack pointers, where registers are switched by hand
  void* outside_ = nullptr;
  std::unique_ptr<ucontext_t[]> contexts_;  // elsewhere: inside, outside
  // The thread sanitizer's own of both, where there is one.
  void* watched_inside_ = nullptr;
  void* watched_outside_ = nullptr;
};

}  // namespace braid
