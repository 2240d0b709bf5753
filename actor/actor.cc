#include "actor/actor.h"

#include <atomic>
#include <string_view>
#include <utility>

#include "absl/strings/str_format.h"
#include "actor/actor_thread.h"
#include "actor/message_bus.h"
#include "glog/logging.h"

namespace braid {

Actor::Actor(ActorSpec spec, std::unique_ptr<Action> action, ActorThread* thread, uint32_t place)
    : thread_(*thread),
      action_(std::move(action)),
      place_(place),
      act_word_(EventRing::KindWord(ActorEvent::Kind::kAct, place)),
      is_deferrable_(spec.is_deferrable),
      spec_(std::move(spec)) {
  for (const InputSpec& input : spec_.inputs) {
    inputs_.push_back({.ring = InputRing(input), .producer = {.id = input.producer}});
    if (!inputs_.back().ring.is_ready()) ++missing_;
    input_slots_.push_back(inputs_.back().ring.slot());
  }
  for (const OutputSpec& output : spec_.outputs) {
    outputs_.push_back({.ring = OutputRing(output), .consumers = {}});
    for (const ActorId& consumer : output.consumers) {
      outputs_.back().consumers.push_back({.id = consumer});
    }
    if (!outputs_.back().ring.is_free()) ++missing_;
    output_slots_.push_back(outputs_.back().ring.slot());
  }
  completion_.content = Mail::Content::kCompletion;
  completion_.target = this;
  completion_.message.src = completion_.message.dst = spec_.id;
}

inline void Actor::QueueIfFireable() {
  if (missing_ != 0 || is_acting_ || is_queued_ || started_ >= credited_) return;
  is_queued_ = true;
  thread_.fireable_.Push(this, is_deferrable_);
}

void Actor::AddCredits(int64_t acts) {
  credited_ += acts;
  QueueIfFireable();
}

void Actor::OnReady(uint32_t port, uint32_t slot, int64_t piece) {
  InputRing& ring = inputs_[port].ring;
  const bool was_ready = ring.is_ready();
  if (!ring.Receive(slot, piece)) [[unlikely]] {
    return RefuseReady(port, slot, piece);
  }
  if (was_ready) return;
  --missing_;
  QueueIfFireable();
}

void Actor::OnAck(uint32_t port, uint32_t reader, uint32_t slot, int64_t piece) {
  OutputRing& ring = outputs_[port].ring;
  const bool was_free = ring.is_free();
  if (!ring.Acknowledge(reader, slot, piece)) [[unlikely]] {
    return RefuseAck(port, reader, slot, piece);
  }
  if (was_free || !ring.is_free()) return;
  --missing_;
  QueueIfFireable();
}

void Actor::Fire() {
  is_queued_ = false;
  is_acting_ = true;
  is_starting_ = true;
  is_done_inside_start_ = false;
  if (thread_.is_timing_) [[unlikely]]
    return FireTimed();
  StartAct();
  if (is_done_inside_start_) {
    Finish();
  } else {
    GoOn(thread_.now_);
  }
}

inline void Actor::StartAct() {
  const Act act{.index = started_++, .input_slots = input_slots_, .output_slots = output_slots_};
  thread_.events_.Record(thread_.time_word_ | act_word_, act.index);
  action_->Start(act, ActDone(&Actor::OnDone, this, act.index));
  is_starting_ = false;
}

void Actor::FireTimed() {
  const Nanoseconds began = thread_.now_;
  StartAct();
  thread_.SetNow(thread_.reactor_->Now());
  ++timed_acts_;
  act_time_ += thread_.now_ - began;
  if (!is_done_inside_start_) return GoOn(began);
  RecordEnd();
  Finish();
}

// The act did not end inside its start.
void Actor::GoOn(Nanoseconds began) {
  since_ = began;
  thread_.Record({.kind = ActorEvent::Kind::kGoesOn, .actor = place_, .piece = started_ - 1});
  ++thread_.acts_running_;
}

void Actor::OnDone(void* context, int64_t index, absl::Status status) {
  Actor& actor = *static_cast<Actor*>(context);
  ActorThread& thread = actor.thread_;
  if (!thread.reactor_->InThread()) {
    CHECK(!actor.is_completion_sent_.exchange(true, std::memory_order_relaxed))
        << "done was called twice for act " << index << " of actor '" << actor.spec_.name << "'";
    actor.done_status_ = std::move(status);
    actor.completion_.message.piece = index;
    thread.Push(&actor.completion_);
    return;
  }
  CHECK(actor.is_acting_ && index + 1 == actor.started_ && !actor.is_done_inside_start_)
      << "done was called twice for act " << index << " of actor '" << actor.spec_.name << "'";
  actor.done_status_ = std::move(status);
  if (actor.is_starting_) {
    actor.is_done_inside_start_ = true;
    return;
  }
  --thread.acts_running_;
  const bool is_polling = thread.is_polling_.load(std::memory_order_relaxed);
  if (!is_polling && thread.load_.is_idle()) {
    thread.SetNow(thread.reactor_->Now());
    thread.load_.EndIdle(thread.now_, actor.action_->LastAwaited());
  }
  actor.RecordEnd();
  actor.Finish();
  // Outside of a Poll nobody would look at what can fire now.
  if (!is_polling) thread.reactor_->Wake();
}

void Actor::RecordEnd() {
  thread_.Record({.kind = ActorEvent::Kind::kEnd, .actor = place_, .piece = started_ - 1});
}

void Actor::Finish() {
  since_ = thread_.now_;
  if (!done_status_.ok()) [[unlikely]] {
    const absl::Status status = std::exchange(done_status_, absl::OkStatus());
    thread_.Fail(Error(status.code(), absl::StrFormat("act %d failed: %s", started_ - 1,
                                                      std::string(status.message()))));
  }
  if (thread_.has_stopped_) [[unlikely]] {
    is_acting_ = false;
    return thread_.CloseIfQuiet();
  }
  ++done_;
  // It counts as acting until all its ends are counted: what it tells itself must not queue it.
  for (size_t i = 0; i < inputs_.size(); ++i) {
    Input& input = inputs_[i];
    const uint32_t slot = input.ring.slot();
    const int64_t piece = input.ring.piece();
    if (!input.ring.Use()) continue;
    input_slots_[i] = input.ring.slot();
    if (!input.ring.is_ready()) ++missing_;
    Tell(input.producer, MessageKind::kAck, spec_.inputs[i].reg, slot, piece);
  }
  for (size_t i = 0; i < outputs_.size(); ++i) {
    Output& output = outputs_[i];
    const uint32_t slot = output.ring.slot();
    const int64_t piece = output.ring.piece();
    if (!output.ring.Fill()) continue;
    output_slots_[i] = output.ring.slot();
    if (!output.ring.is_free()) ++missing_;
    for (const Peer& consumer : output.consumers) {
      Tell(consumer, MessageKind::kReady, spec_.outputs[i].reg, slot, piece);
    }
  }
  is_acting_ = false;
  QueueIfFireable();
  thread_.OnActEnd(*this);
}

void Actor::Tell(const Peer& peer, MessageKind kind, RegisterId reg, uint32_t slot, int64_t piece) {
  if (peer.actor == nullptr) {
    const absl::Status status = thread_.bus_.SendRemote(
        {.src = spec_.id, .dst = peer.id, .reg = reg, .slot = slot, .kind = kind, .piece = piece});
    if (!status.ok()) {
      thread_.Fail(
          Error(status.code(),
                absl::StrFormat("cannot send %s of register %d slot %d to %s: %s", ToString(kind),
                                reg, slot, ToString(peer.id), std::string(status.message()))));
    }
  } else if (peer.inbox == nullptr) {
    if (kind == MessageKind::kReady) {
      peer.actor->OnReady(peer.port, slot, piece);
    } else {
      peer.actor->OnAck(peer.port, peer.reader, slot, piece);
    }
  } else {
    Mail& mail = peer.mails[slot];
    mail.message.slot = slot;
    mail.message.piece = piece;
    peer.inbox->Push(&mail);
  }
}

absl::Status Actor::Error(absl::StatusCode code, std::string_view what) const {
  return absl::Status(code,
                      absl::StrFormat("actor '%s' (%s): %s", spec_.name, ToString(spec_.id), what));
}

void Actor::RefuseReady(uint32_t port, uint32_t slot, int64_t piece) {
  thread_.Fail(
      Error(absl::StatusCode::kInvalidArgument,
            absl::StrFormat("kReady of register %d slot %d from %s refused: %s",
                            spec_.inputs[port].reg, slot, ToString(inputs_[port].producer.id),
                            inputs_[port].ring.Objection(slot, piece))));
}

void Actor::RefuseAck(uint32_t port, uint32_t reader, uint32_t slot, int64_t piece) {
  const Output& output = outputs_[port];
  thread_.Fail(
      Error(absl::StatusCode::kInvalidArgument,
            absl::StrFormat("kAck of register %d slot %d from %s refused: %s",
                            spec_.outputs[port].reg, slot, ToString(output.consumers[reader].id),
                            output.ring.Objection(reader, slot, piece))));
}

ActorReport Actor::Describe() const {
  ActorReport report{.id = spec_.id,
                     .name = spec_.name,
                     .acts_done = done_,
                     .acts_credited = credited_,
                     .since = since_,
                     .waits = {},
                     .queues = {},
                     .timed_acts = timed_acts_,
                     .act_time = act_time_};
  for (size_t i = 0; i < inputs_.size(); ++i) {
    report.queues.push_back({.reg = spec_.inputs[i].reg,
                             .peer = inputs_[i].producer.id,
                             .is_input = true,
                             .slots = spec_.inputs[i].slots,
                             .used = inputs_[i].ring.used()});
  }
  for (size_t i = 0; i < outputs_.size(); ++i) {
    const Output& output = outputs_[i];
    for (uint32_t reader = 0; reader < output.consumers.size(); ++reader) {
      report.queues.push_back({.reg = spec_.outputs[i].reg,
                               .peer = output.consumers[reader].id,
                               .is_input = false,
                               .slots = spec_.outputs[i].slots,
                               .used = output.ring.used(reader)});
    }
  }
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (IsOnThread(inputs_[i].producer.id)) continue;
    report.acknowledged.push_back({spec_.inputs[i].reg, inputs_[i].ring.piece()});
  }
  for (size_t i = 0; i < outputs_.size(); ++i) {
    for (const Peer& consumer : outputs_[i].consumers) {
      if (IsOnThread(consumer.id)) continue;
      report.sent.push_back({spec_.outputs[i].reg, outputs_[i].ring.piece()});
      break;
    }
  }
  if (is_acting_) {
    report.waits.push_back({.what = Wait::For::kAction, .piece = started_ - 1, .peer = spec_.id});
    report.awaits = action_->Awaits();
    return report;
  }
  if (started_ >= credited_) {
    report.waits.push_back({.what = Wait::For::kCredit, .piece = started_, .peer = spec_.id});
    return report;
  }
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const Input& input = inputs_[i];
    if (input.ring.is_ready()) continue;
    report.waits.push_back({.what = Wait::For::kReady,
                            .reg = spec_.inputs[i].reg,
                            .slot = input.ring.slot(),
                            .piece = input.ring.piece(),
                            .peer = input.producer.id});
  }
  for (size_t i = 0; i < outputs_.size(); ++i) {
    const Output& output = outputs_[i];
    if (output.ring.is_free()) continue;
    for (uint32_t reader = 0; reader < output.consumers.size(); ++reader) {
      const int64_t piece = output.ring.Owes(reader);
      if (piece < 0) continue;
      report.waits.push_back({.what = Wait::For::kAck,
                              .reg = spec_.outputs[i].reg,
                              .slot = output.ring.slot(),
                              .piece = piece,
                              .peer = output.consumers[reader].id});
    }
  }
  return report;
}

}  // namespace braid
