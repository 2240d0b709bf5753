#include "tests/support/fiber.h"

#include <cstdint>

// Of the thread sanitizer, where the program has one: it keeps a stack of calls for each fiber.
extern "C" {
void* __tsan_get_current_fiber() __attribute__((weak));
void* __tsan_create_fiber(unsigned flags) __attribute__((weak));
void __tsan_destroy_fiber(void* fiber) __attribute__((weak));
void __tsan_switch_to_fiber(void* fiber, unsigned flags) __attribute__((weak));
}
// A function that switches is in none of these.
#define BRAID_SWITCHES __attribute__((no_sanitize_thread))

namespace braid {
namespace {

void* Watch() { return __tsan_create_fiber == nullptr ? nullptr : __tsan_create_fiber(0); }

// Returns who was watched before.
BRAID_SWITCHES inline void* SwitchWatch(void* to) {
  if (__tsan_switch_to_fiber == nullptr) return nullptr;
  void* const from = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(to, 0);
  return from;
}

}  // namespace

Fiber::~Fiber() {
  if (__tsan_destroy_fiber != nullptr) __tsan_destroy_fiber(watched_inside_);
}

}  // namespace braid

#if defined(__x86_64__)

// void braid_switch_stack(void** from, void* to): leaves what a call must keep on this stack and
// its pointer in *from, and goes on where `to` was left.
extern "C" void braid_switch_stack(void** from, void* to);
asm(R"(
.text
.globl braid_switch_stack
.type braid_switch_stack, @function
braid_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.globl braid_begin_fiber
.type braid_begin_fiber, @function
braid_begin_fiber:
  movq %r12, %rdi
  callq *%r13
  ud2
)");
extern "C" void braid_begin_fiber();

namespace braid {

Fiber::Fiber(size_t stack_bytes, void (*main)(void*), void* argument)
    : stack_(new char[stack_bytes]), main_(main), argument_(argument), watched_inside_(Watch()) {
  // As braid_switch_stack leaves it: r15, r14, r13, r12, rbx, rbp, and where to return to. There
  // the stack is aligned as before a call.
  auto* top = reinterpret_cast<void**>((reinterpret_cast<uintptr_t>(stack_.get()) + stack_bytes) &
                                       ~uintptr_t{15});
  top -= 9;
  top[0] = top[1] = top[4] = top[5] = nullptr;
  top[2] = reinterpret_cast<void*>(main_);
  top[3] = argument_;
  top[6] = reinterpret_cast<void*>(&braid_begin_fiber);
  top[7] = top[8] = nullptr;
  inside_ = top;
}

BRAID_SWITCHES void Fiber::Enter() {
  watched_outside_ = SwitchWatch(watched_inside_);
  braid_switch_stack(&outside_, inside_);
}
BRAID_SWITCHES void Fiber::Leave() {
  SwitchWatch(watched_outside_);
  braid_switch_stack(&inside_, outside_);
}

}  // namespace braid

#else

namespace braid {

void Fiber::Begin(unsigned high, unsigned low) {
  auto* self = reinterpret_cast<Fiber*>((uintptr_t{high} << 32) | low);
  self->main_(self->argument_);
}

Fiber::Fiber(size_t stack_bytes, void (*main)(void*), void* argument)
    : stack_(new char[stack_bytes]),
      main_(main),
      argument_(argument),
      contexts_(new ucontext_t[2]),
      watched_inside_(Watch()) {
  getcontext(&contexts_[0]);
  contexts_[0].uc_stack.ss_sp = stack_.get();
  contexts_[0].uc_stack.ss_size = stack_bytes;
  contexts_[0].uc_link = nullptr;
  const auto self = reinterpret_cast<uintptr_t>(this);
  makecontext(&contexts_[0], reinterpret_cast<void (*)()>(&Fiber::Begin), 2,
              static_cast<unsigned>(self >> 32), static_cast<unsigned>(self));
}

BRAID_SWITCHES void Fiber::Enter() {
  watched_outside_ = SwitchWatch(watched_inside_);
  swapcontext(&contexts_[1], &contexts_[0]);
}
BRAID_SWITCHES void Fiber::Leave() {
  SwitchWatch(watched_outside_);
  swapcontext(&contexts_[0], &contexts_[1]);
}

}  // namespace braid

#endif
