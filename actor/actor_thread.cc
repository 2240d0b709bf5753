#include "actor/actor_thread.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "absl/strings/str_format.h"
#include "actor/message_bus.h"
#include "glog/logging.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

// Keeps acts (steps times a rate of 32 bits) within 64 bits, whatever a message says.
constexpr int64_t kMaxSteps = int64_t{1} << 31;
// Acts of at least this length are timed one by one: against it a look at the clock is nothing.
constexpr Nanoseconds kTimedAct = 5 * kMicrosecond;

absl::Status CheckEnd(const ActorSpec& spec, std::string_view end, RegisterId reg, uint32_t slots,
                      uint32_t period, uint32_t initial_tokens) {
  if (slots >= 1 && period >= 1 && initial_tokens <= slots) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("actor '%s' (%s): %s register %d has %d slots, period %d, %d initial tokens; "
                      "slots and period "
                      "are at least 1, tokens at most the slots",
                      spec.name, ToString(spec.id), end, reg, slots, period, initial_tokens));
}

absl::Status CheckSpec(const ActorSpec& spec) {
  const auto error = [&spec](const std::string& what) {
    return absl::InvalidArgumentError(
        absl::StrFormat("actor '%s' (%s): %s", spec.name, ToString(spec.id), what));
  };
  if (spec.acts_per_step == 0) return error("it acts 0 times a step");
  std::unordered_set<RegisterId> read;
  for (const InputSpec& input : spec.inputs) {
    RETURN_IF_ERROR(
        CheckEnd(spec, "input", input.reg, input.slots, input.period, input.initial_tokens));
    if (!read.insert(input.reg).second) {
      return error(absl::StrFormat("input register %d is listed twice", input.reg));
    }
  }
  std::unordered_set<RegisterId> written;
  for (const OutputSpec& output : spec.outputs) {
    RETURN_IF_ERROR(
        CheckEnd(spec, "output", output.reg, output.slots, output.period, output.initial_tokens));
    if (!written.insert(output.reg).second) {
      return error(absl::StrFormat("output register %d is listed twice", output.reg));
    }
    std::unordered_set<ActorId> consumers;
    for (const ActorId& consumer : output.consumers) {
      if (!consumers.insert(consumer).second) {
        return error(absl::StrFormat("output register %d lists consumer %s twice", output.reg,
                                     ToString(consumer)));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

void ActorThread::FireList::Reserve(size_t actors) {
  size_t capacity = 1;
  while (capacity < actors) capacity *= 2;
  for (Ring* ring : {&urgent_, &deferrable_}) {
    ring->actors.assign(capacity, nullptr);
    ring->mask = capacity - 1;
  }
}

Actor* ActorThread::FireList::Ring::Pop(size_t nth) {
  std::swap(actors[first & mask], actors[(first + nth) & mask]);
  return Pop();
}

Actor* ActorThread::FireList::Pop(size_t nth) {
  const size_t urgent = urgent_.size();
  return nth < urgent ? urgent_.Pop(nth) : deferrable_.Pop(nth - urgent);
}

ActorThread::ActorThread(ActorThreadOptions options, Reactor* reactor, MessageBus* bus)
    : options_(std::move(options)), reactor_(reactor), bus_(*bus) {
  bus_.AddThread(this);
}

ActorThread::~ActorThread() = default;

absl::Status ActorThread::AddActor(ActorSpec spec, std::unique_ptr<Action> action) {
  RETURN_IF_ERROR(CheckSpec(spec));
  const ActorId id = spec.id;
  if (id.node != bus_.node() || id.thread != options_.thread || id.task == kWholeThread) {
    return absl::InvalidArgumentError(
        absl::StrFormat("actor '%s' (%s) does not belong to thread %d/%d", spec.name, ToString(id),
                        bus_.node(), options_.thread));
  }
  auto actor = std::make_unique<Actor>(std::move(spec), std::move(action), this,
                                       static_cast<uint32_t>(actors_.size()));
  const auto [known, is_new] = actor_of_task_.emplace(id.task, actor.get());
  if (!is_new) {
    return absl::InvalidArgumentError(absl::StrFormat("actors '%s' and '%s' are both %s",
                                                      known->second->spec().name,
                                                      actor->spec().name, ToString(id)));
  }
  actors_.push_back(std::move(actor));
  fireable_.Reserve(actors_.size());
  return absl::OkStatus();
}

void ActorThread::PushUnaddressed(const Message& message) {
  Mail* const mail = mails_.Take();
  mail->message = message;
  Push(mail);
}

void ActorThread::Run(int64_t steps) {
  CHECK_GE(steps, 1);
  const ActorId self{.node = bus_.node(), .thread = options_.thread, .task = kWholeThread};
  PushUnaddressed({.src = self, .dst = self, .kind = MessageKind::kRun, .piece = steps});
}

void ActorThread::Abort(absl::Status cause) {
  is_abort_asked_.store(true, std::memory_order_relaxed);
  reactor_->Post([this, cause = std::move(cause)] { Close(cause); });
}

std::vector<ActorReport> ActorThread::Describe() const {
  std::vector<ActorReport> reports;
  for (const auto& actor : actors_) reports.push_back(actor->Describe());
  return reports;
}

ActorThread::RunningAct ActorThread::running() const {
  ActorEvent last;
  if (!is_polling_.load(std::memory_order_relaxed) || !events_.Last(last)) return {};
  if (last.kind != ActorEvent::Kind::kAct || last.actor >= actors_.size()) return {};
  return {.spec = &actors_[last.actor]->spec(), .index = last.piece, .since = last.time};
}

bool ActorThread::Poll() {
  const Nanoseconds began = reactor_->Now();
  if (has_more_) JudgePace(began - poll_began_);
  SetNow(poll_began_ = began);
  is_polling_.store(true, std::memory_order_relaxed);
  if (options_.order != nullptr) {
    has_more_ = PollShuffled();
    is_polling_.store(false, std::memory_order_relaxed);
    return has_more_;
  }
  has_more_ = PollInOrder();
  is_polling_.store(false, std::memory_order_relaxed);
  if (!has_more_ && !load_.is_idle()) {
    const Nanoseconds end = reactor_->Now();
    JudgePace(end - began);
    load_.BeginIdle(end);
  }
  return has_more_;
}

void ActorThread::JudgePace(Nanoseconds time) {
  const int64_t acts = acts_done() - acts_judged_;
  if (acts == 0) return;
  acts_judged_ += acts;
  is_timing_ = time >= acts * kTimedAct;
}

void ActorThread::ReadFromIdle(Mail* mail) {
  // Once read, the mail may be gone.
  const ActorId sender = mail->message.src;
  ThreadId cause = {.node = sender.node, .thread = sender.thread};
  if (mail->content == Mail::Content::kCompletion) {
    cause = mail->target->action_->LastAwaited();
  } else if (sender.task == kWholeThread) {
    cause = {.node = ThreadId::kHost};
  }
  Read(mail);
  if (fireable_.empty() && cause.node != ThreadId::kHost) return;
  load_.EndIdle(now_, cause);
  // From a Run on it is others who are waited for.
  if (fireable_.empty()) load_.BeginIdle(now_);
}

bool ActorThread::PollInOrder() {
  size_t budget = options_.max_messages_per_poll;
  while (true) {
    if (!mailbox_.empty()) {
      for (Mail* mail = mailbox_.TakeAll(); mail != nullptr;) {
        // Once read, a mail may be on its way again.
        Mail* const next = mail->next;
        if (load_.is_idle()) [[unlikely]] {
          ReadFromIdle(mail);
        } else {
          Read(mail);
        }
        mail = next;
      }
    }
    while (!fireable_.empty()) {
      if (budget == 0) return true;
      if (is_abort_asked_.load(std::memory_order_relaxed)) return false;
      --budget;
      fireable_.Pop()->Fire();
      if (!mailbox_.empty()) break;
    }
    if (fireable_.empty() && mailbox_.empty()) return false;
    if (budget == 0) return true;
    --budget;
  }
}

bool ActorThread::PollShuffled() {
  for (Mail* mail = mailbox_.TakeAll(); mail != nullptr; mail = mail->next) {
    unread_.push_back(mail);
  }
  const size_t candidates = unread_.size() + fireable_.size();
  if (candidates == 0) return false;
  const size_t chosen = options_.order->Below(candidates);
  if (chosen >= unread_.size()) {
    fireable_.Pop(chosen - unread_.size())->Fire();
  } else {
    // The oldest of the chosen one's pair.
    const Message& like = unread_[chosen]->message;
    const auto oldest = std::find_if(unread_.begin(), unread_.end(), [&like](const Mail* mail) {
      return mail->message.src == like.src && mail->message.dst == like.dst;
    });
    Mail* const mail = *oldest;
    unread_.erase(oldest);
    Read(mail);
  }
  return !unread_.empty() || !fireable_.empty();
}

void ActorThread::Read(Mail* mail) {
  switch (mail->content) {
    case Mail::Content::kCompletion:
      mail->target->is_completion_sent_.store(false, std::memory_order_relaxed);
      --acts_running_;
      mail->target->RecordEnd();
      mail->target->Finish();
      return;
    case Mail::Content::kAddressed:
      if (has_stopped_) return;
      RecordMessage(*mail->target, mail->port, mail->message);
      if (mail->message.kind == MessageKind::kReady) {
        mail->target->OnReady(mail->port, mail->message.slot, mail->message.piece);
      } else {
        mail->target->OnAck(mail->port, mail->reader, mail->message.slot, mail->message.piece);
      }
      return;
    case Mail::Content::kUnaddressed:
      const Message message = mail->message;
      mails_.Give(mail);
      if (!has_stopped_ || message.kind == MessageKind::kDone) ReadUnaddressed(message);
      return;
  }
}

void ActorThread::ReadUnaddressed(const Message& message) {
  const auto refuse = [this, &message](std::string_view why) {
    Fail(absl::InvalidArgumentError(
        absl::StrFormat("message refused (%s): %s", ToString(message), why)));
  };
  if (message.dst.task == kWholeThread) {
    if (message.kind == MessageKind::kDone) return Close(absl::CancelledError("session closed"));
    if (message.kind != MessageKind::kRun) return refuse("it needs an actor");
    if (message.piece < 1 || message.piece > kMaxSteps - steps_) {
      return refuse(absl::StrFormat("a session runs 1 to %d steps", kMaxSteps));
    }
    return AddRun(message.piece);
  }
  const auto known = actor_of_task_.find(message.dst.task);
  if (known == actor_of_task_.end()) return refuse("there is no such actor");
  Actor& actor = *known->second;
  const ActorSpec& spec = actor.spec();
  if (message.kind == MessageKind::kReady) {
    for (uint32_t port = 0; port < spec.inputs.size(); ++port) {
      if (spec.inputs[port].reg != message.reg) continue;
      if (spec.inputs[port].producer != message.src) {
        return refuse(absl::StrFormat("actor '%s' has register %d from %s", spec.name, message.reg,
                                      ToString(spec.inputs[port].producer)));
      }
      RecordMessage(actor, port, message);
      return actor.OnReady(port, message.slot, message.piece);
    }
    return refuse(absl::StrFormat("actor '%s' reads no register %d", spec.name, message.reg));
  }
  if (message.kind == MessageKind::kAck) {
    for (uint32_t port = 0; port < spec.outputs.size(); ++port) {
      if (spec.outputs[port].reg != message.reg) continue;
      const std::vector<ActorId>& consumers = spec.outputs[port].consumers;
      const auto reader = std::find(consumers.begin(), consumers.end(), message.src);
      if (reader == consumers.end()) {
        return refuse(absl::StrFormat("register %d of actor '%s' is not for %s", message.reg,
                                      spec.name, ToString(message.src)));
      }
      RecordMessage(actor, port, message);
      return actor.OnAck(port, static_cast<uint32_t>(reader - consumers.begin()), message.slot,
                         message.piece);
    }
    return refuse(absl::StrFormat("actor '%s' writes no register %d", spec.name, message.reg));
  }
  refuse("only a whole thread runs or is done");
}

void ActorThread::Fail(absl::Status status) {
  if (has_stopped_) return;
  Stop(std::move(status));
  if (options_.on_failure) options_.on_failure(cause_);
}

void ActorThread::Stop(absl::Status cause) {
  has_stopped_ = true;
  cause_ = std::move(cause);
  while (!fireable_.empty()) fireable_.Pop();
}

void ActorThread::Close(absl::Status cause) {
  if (!has_stopped_) Stop(std::move(cause));
  is_closing_ = true;
  reactor_->Wake();  // a Poll may have left mails when it saw that an abort was asked for
  CloseIfQuiet();
}

void ActorThread::CloseIfQuiet() {
  if (!is_closing_ || is_closed_ || acts_running_ > 0) return;
  is_closed_ = true;
  if (options_.on_closed) options_.on_closed();
}

void ActorThread::AddRun(int64_t steps) {
  steps_ += steps;
  const int64_t run = first_run_ + static_cast<int64_t>(runs_.size());
  runs_.push_back({.steps = steps_, .actors_left = actors_.size()});
  for (const auto& actor : actors_) {
    if (actor->run_end_ == INT64_MAX) {
      actor->run_ = run;
      actor->run_end_ = steps_ * actor->spec().acts_per_step;
    }
    actor->AddCredits(steps * actor->spec().acts_per_step);
  }
  ReportRuns();
}

void ActorThread::EndRunOf(Actor& actor) {
  --runs_[actor.run_ - first_run_].actors_left;
  ++actor.run_;
  const size_t next = actor.run_ - first_run_;
  actor.run_end_ = next < runs_.size() ? runs_[next].steps * actor.spec().acts_per_step : INT64_MAX;
  ReportRuns();
}

void ActorThread::ReportRuns() {
  while (!runs_.empty() && runs_.front().actors_left == 0) {
    const int64_t steps = runs_.front().steps;
    runs_.pop_front();
    ++first_run_;
    if (options_.on_run_done) options_.on_run_done(steps);
  }
}

}  // namespace braid
