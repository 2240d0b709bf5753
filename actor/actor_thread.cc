#include "actor/actor_thread.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "actor/message_bus.h"
#include "glog/logging.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

// Keeps a run's acts (steps times acts per step, which have 32 bits) within 64 bits, whatever a
// message says.
constexpr int64_t kMaxSteps = int64_t{1} << 31;

}  // namespace

ActorThread::ActorThread(ActorThreadOptions options, Reactor* reactor, MessageBus* bus)
    : number_(options.thread),
      max_messages_per_poll_(options.max_messages_per_poll),
      order_(std::move(options.order)),
      reactor_(reactor),
      bus_(*bus),
      core_({.reactor = reactor,
             .remote = bus->remote(),
             .on_run_done = std::move(options.on_run_done),
             .on_failure = std::move(options.on_failure),
             .on_closed = std::move(options.on_closed)}),
      observer_(reactor) {
  bus_.AddThread(this);
}

ActorThread::~ActorThread() = default;

absl::Status ActorThread::AddActor(ActorSpec spec, std::unique_ptr<Action> action) {
  BRAID_RETURN_IF_ERROR(CheckSpec(spec));
  const ActorId id = spec.id;
  if (id.node != bus_.node() || id.thread != number_ || id.task == kWholeThread) {
    return absl::InvalidArgumentError(
        absl::StrFormat("actor '%s' (%s) does not belong to thread %d/%d", spec.name, ToString(id),
                        bus_.node(), number_));
  }
  auto actor =
      std::make_unique<Actor>(std::move(spec), std::move(action), &core_,
                              ActorObserver(&observer_, static_cast<uint32_t>(actors_.size())));
  const auto [known, is_new] = actor_of_task_.emplace(id.task, actor.get());
  if (!is_new) {
    return absl::InvalidArgumentError(absl::StrFormat("actors '%s' and '%s' are both %s",
                                                      known->second->spec().name,
                                                      actor->spec().name, ToString(id)));
  }
  actors_.push_back(std::move(actor));
  core_.fireable().Reserve(actors_.size());
  return absl::OkStatus();
}

Actor* ActorThread::FindActor(uint32_t task) const {
  const auto known = actor_of_task_.find(task);
  return known == actor_of_task_.end() ? nullptr : known->second;
}

void ActorThread::Start(size_t mails) {
  core_.ReserveMails(mails);
  reactor_->SetPollable(this);
}

void ActorThread::Run(int64_t steps) {
  CHECK_GE(steps, 1);
  const ActorId self{.node = bus_.node(), .thread = number_, .task = kWholeThread};
  Receive({.src = self, .dst = self, .kind = MessageKind::kRun, .piece = steps});
  reactor_->SetPollable(this);
}

void ActorThread::Abort(absl::Status cause) {
  core_.Halt();
  reactor_->Post([this, cause = std::move(cause)] { core_.Close(cause); });
}

std::vector<ActorReport> ActorThread::Describe() const {
  std::vector<ActorReport> reports;
  for (const auto& actor : actors_) reports.push_back(actor->Describe());
  return reports;
}

ActorThread::RunningAct ActorThread::running() const {
  ActorEvent last;
  if (!core_.is_polling() || !observer_.events().Last(last)) return {};
  if (last.kind != ActorEvent::Kind::kAct || last.actor >= actors_.size()) return {};
  return {.spec = &actors_[last.actor]->spec(), .index = last.piece, .since = last.time};
}

bool ActorThread::Poll() {
  observer_.OnPollBegin();
  core_.set_is_polling(true);
  const bool has_more = order_ == nullptr ? PollInOrder() : PollShuffled();
  core_.set_is_polling(false);
  observer_.OnPollEnd(has_more);
  // Where a seed draws the order, it is not what came last that was waited for.
  if (!has_more && order_ == nullptr) observer_.OnIdle();
  return has_more;
}

bool ActorThread::PollInOrder() {
  size_t budget = max_messages_per_poll_;
  FireList& fireable = core_.fireable();
  while (true) {
    if (core_.has_mail()) {
      for (Mail* mail = core_.TakeMails(); mail != nullptr;) {
        // Once read, a mail may be on its way again.
        Mail* const next = mail->next;
        if (observer_.is_idle()) [[unlikely]] {
          ReadFromIdle(mail);
        } else {
          Read(mail);
        }
        mail = next;
      }
    }
    while (!fireable.empty()) {
      if (budget == 0 || observer_.is_long_poll()) return true;
      if (core_.is_halted()) return false;
      --budget;
      fireable.Pop()->Fire();
      if (core_.has_mail()) break;
    }
    if (fireable.empty() && !core_.has_mail()) return false;
    if (budget == 0) return true;
    --budget;
  }
}

bool ActorThread::PollShuffled() {
  FireList& fireable = core_.fireable();
  if (core_.has_stopped()) fireable.Clear();
  for (Mail* mail = core_.TakeMails(); mail != nullptr; mail = mail->next) {
    unread_.push_back(mail);
  }
  const size_t candidates = unread_.size() + fireable.size();
  if (candidates == 0) return false;
  const size_t chosen = order_->Below(candidates);
  if (chosen >= unread_.size()) {
    fireable.Pop(chosen - unread_.size())->Fire();
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
  return !unread_.empty() || !fireable.empty();
}

void ActorThread::ReadFromIdle(Mail* mail) {
  // Once read, the mail may be gone.
  const ActorId sender = mail->message.src;
  ThreadId cause = {.node = sender.node, .thread = sender.thread};
  if (mail->content == Mail::Content::kCompletion) {
    cause = mail->target->LastAwaited();
  } else if (sender.task == kWholeThread) {
    cause = {.node = ThreadId::kHost};
  }
  Read(mail);
  observer_.OnMailWhileIdle(cause, !core_.fireable().empty());
}

void ActorThread::Read(Mail* mail) {
  switch (mail->content) {
    case Mail::Content::kCompletion:
      return mail->target->ReadCompletion();
    case Mail::Content::kAddressed:
      if (has_stopped()) return;
      return mail->target->Receive(mail->message, mail->port, mail->reader);
    case Mail::Content::kUnaddressed:
      const Message message = core_.Unpack(mail);
      if (!has_stopped() || message.kind == MessageKind::kDone) ReadUnaddressed(message);
      return;
  }
}

void ActorThread::ReadUnaddressed(const Message& message) {
  if (message.dst.task == kWholeThread) return ReadForThread(message);
  Actor* const actor = FindActor(message.dst.task);
  if (actor == nullptr) return Refuse(message, "there is no such actor");
  const ActorSpec& spec = actor->spec();
  if (message.kind == MessageKind::kReady) {
    for (uint32_t port = 0; port < spec.inputs.size(); ++port) {
      if (spec.inputs[port].reg != message.reg) continue;
      if (spec.inputs[port].producer != message.src) {
        return Refuse(message, absl::StrFormat("actor '%s' has register %d from %s", spec.name,
                                               message.reg, ToString(spec.inputs[port].producer)));
      }
      return actor->Receive(message, port, 0);
    }
    return Refuse(message,
                  absl::StrFormat("actor '%s' reads no register %d", spec.name, message.reg));
  }
  if (message.kind == MessageKind::kAck) {
    for (uint32_t port = 0; port < spec.outputs.size(); ++port) {
      if (spec.outputs[port].reg != message.reg) continue;
      const std::vector<ActorId>& consumers = spec.outputs[port].consumers;
      const auto reader = std::find(consumers.begin(), consumers.end(), message.src);
      if (reader == consumers.end()) {
        return Refuse(message, absl::StrFormat("register %d of actor '%s' is not for %s",
                                               message.reg, spec.name, ToString(message.src)));
      }
      return actor->Receive(message, port, static_cast<uint32_t>(reader - consumers.begin()));
    }
    return Refuse(message,
                  absl::StrFormat("actor '%s' writes no register %d", spec.name, message.reg));
  }
  Refuse(message, "only a whole thread runs or is done");
}

void ActorThread::ReadForThread(const Message& message) {
  if (message.kind == MessageKind::kDone) {
    return core_.Close(absl::CancelledError("session closed"));
  }
  if (message.kind != MessageKind::kRun) return Refuse(message, "it needs an actor");
  if (message.piece < 1 || message.piece > kMaxSteps - core_.runs().steps()) {
    return Refuse(message, absl::StrFormat("a session runs 1 to %d steps", kMaxSteps));
  }
  AddRun(message.piece);
}

void ActorThread::Refuse(const Message& message, std::string_view why) {
  core_.Fail(absl::InvalidArgumentError(
      absl::StrFormat("message refused (%s): %s", ToString(message), why)));
}

void ActorThread::AddRun(int64_t steps) {
  core_.AddRun(steps, actors_.size());
  for (const auto& actor : actors_) actor->AddRun(steps);
  core_.ReportRuns();
}

}  // namespace braid
