// What the actors of a thread share, and all that they know of it: who can fire, which Runs were
// given, how mails come in and messages go out, and whether anything fires any more. What is not
// said to be for any thread is for the reactor's.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

#include "absl/status/status.h"
#include "actor/fire_list.h"
#include "actor/mailbox.h"
#include "actor/message.h"
#include "actor/remote_sender.h"
#include "actor/run_list.h"
#include "runtime/base/reactor.h"

namespace braid {

class ThreadCore {
 public:
  struct Options {
    Reactor* reactor = nullptr;      // both borrowed
    RemoteSender* remote = nullptr;  // nullptr where no actor has a peer on another node
    // As in ActorThreadOptions.
    std::function<void(int64_t steps)> on_run_done = {};
    std::function<void(absl::Status)> on_failure = {};
    std::function<void()> on_closed = {};
  };

  explicit ThreadCore(Options options) : options_(std::move(options)) {}
  ThreadCore(const ThreadCore&) = delete;
  ThreadCore& operator=(const ThreadCore&) = delete;

  // Whoever is in it is fired in turn, as long as nothing halts.
  FireList& fireable() { return fireable_; }

  // An act that does not end inside its start holds up the thread's closing.
  void BeginLateAct() { ++late_acts_; }
  void EndLateAct() { --late_acts_; }

  // Mails to this thread's actors. Any thread.
  void Push(Mail* mail) {
    if (mailbox_.Push(mail)) options_.reactor->Wake();
  }
  // As a mail of the pool, which Unpack gives back. Any thread.
  void Push(const Message& message);
  void ReserveMails(size_t mails) { mails_.Reserve(mails); }
  bool has_mail() const { return !mailbox_.empty(); }
  // In the order of the pushes.
  Mail* TakeMails() { return mailbox_.TakeAll(); }
  Message Unpack(Mail* mail);
  // To an actor of another node.
  absl::Status SendRemote(const Message& message) { return options_.remote->Send(message); }

  const RunList& runs() const { return runs_; }
  // A Run of `steps` for `actors`, each of which has to EnterRun. ReportRuns follows.
  void AddRun(int64_t steps, size_t actors) { runs_.Add(steps, actors); }
  void EnterRun(RunPlace& place, int64_t acts_per_step) { runs_.Enter(place, acts_per_step); }
  // An actor has done as many acts as its place says.
  void LeaveRun(RunPlace& place, int64_t acts_per_step) {
    runs_.Leave(place, acts_per_step);
    ReportRuns();
  }
  void ReportRuns();

  // Whether actors are fired now, and mails read: then what becomes fireable needs no Wake. Set by
  // the reactor's thread, read by any.
  bool is_polling() const { return is_polling_.load(std::memory_order_relaxed); }
  void set_is_polling(bool is_polling) { is_polling_.store(is_polling, std::memory_order_relaxed); }
  void Wake() { options_.reactor->Wake(); }
  bool InThread() const { return options_.reactor->InThread(); }

  // Nothing is to be fired from now on. Any thread.
  void Halt() { is_halted_.store(true, std::memory_order_relaxed); }
  bool is_halted() const { return is_halted_.load(std::memory_order_relaxed); }
  // Halts, and tells the owner if it is the first failure.
  void Fail(absl::Status status);
  // Halts, and tells the owner when no act is running any more.
  void Close(absl::Status cause);
  // An act ended after the halt.
  void CloseIfQuiet();
  bool has_stopped() const { return has_stopped_; }
  // Why it has stopped.
  const absl::Status& cause() const { return cause_; }

 private:
  void Stop(absl::Status cause);

  FireList fireable_;
  size_t late_acts_ = 0;
  std::atomic<bool> is_polling_{false};
  std::atomic<bool> is_halted_{false};
  bool has_stopped_ = false;
  bool is_closing_ = false;
  bool is_closed_ = false;
  absl::Status cause_;
  RunList runs_;
  const Options options_;
  MailPool mails_;
  Mailbox mailbox_;
};

}  // namespace braid
