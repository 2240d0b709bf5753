// The inbox of an ActorThread: other threads push, its own takes all. Without locks; a push says
// whether it was the first since the last take, and only then has the reader to be woken.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "actor/message.h"
#include "runtime/base/mutex.h"

namespace braid {

class Actor;

// A message on its way between threads. The mails of an edge inside a node are made once, one per
// slot: the credits see to it that a slot's mail is read before it is needed again.
struct Mail {
  enum class Content : uint8_t {
    kAddressed,    // target, port and reader are resolved
    kUnaddressed,  // only `message` counts; from another node or from the owner. Of a MailPool
    kCompletion,   // an act of `target` ended
  };

  Mail* next = nullptr;
  Message message;
  Content content = Content::kAddressed;
  Actor* target = nullptr;
  uint32_t port = 0;    // the target's input (kReady) or output (kAck)
  uint32_t reader = 0;  // kAck: which consumer of the output
};

// Mails for messages that have none of their own. Any thread. There are as many as were ever on
// their way at a time, or as Reserve was told.
class MailPool {
 public:
  MailPool() = default;
  MailPool(const MailPool&) = delete;
  MailPool& operator=(const MailPool&) = delete;

  void Reserve(size_t mails) {
    MutexLock lock(mutex_);
    while (all_.size() < mails) Add();
  }
  Mail* Take() {
    MutexLock lock(mutex_);
    if (free_ == nullptr) Add();
    return std::exchange(free_, free_->next);
  }
  void Give(Mail* mail) {
    MutexLock lock(mutex_);
    mail->next = std::exchange(free_, mail);
  }

 private:
  void Add() BRAID_REQUIRES(mutex_) {
    all_.push_back(std::make_unique<Mail>());
    all_.back()->content = Mail::Content::kUnaddressed;
    all_.back()->next = std::exchange(free_, all_.back().get());
  }

  Mutex mutex_;
  std::vector<std::unique_ptr<Mail>> all_ BRAID_GUARDED_BY(mutex_);
  Mail* free_ BRAID_GUARDED_BY(mutex_) = nullptr;
};

class Mailbox {
 public:
  Mailbox() = default;
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  // Any thread. True if the mailbox was empty.
  bool Push(Mail* mail) {
    Mail* newest = newest_.load(std::memory_order_relaxed);
    do {
      mail->next = newest;
    } while (!newest_.compare_exchange_weak(newest, mail, std::memory_order_acq_rel,
                                            std::memory_order_relaxed));
    return newest == nullptr;
  }

  bool empty() const { return newest_.load(std::memory_order_acquire) == nullptr; }

  // The reader's thread. A list in the order of the pushes.
  Mail* TakeAll() {
    Mail* newest = newest_.exchange(nullptr, std::memory_order_acq_rel);
    Mail* oldest = nullptr;
    while (newest != nullptr) {
      Mail* const next = newest->next;
      newest->next = oldest;
      oldest = newest;
      newest = next;
    }
    return oldest;
  }

 private:
  alignas(64) std::atomic<Mail*> newest_{nullptr};
};

}  // namespace braid
