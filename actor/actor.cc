#include "actor/actor.h"

#include <atomic>
#include <string_view>
#include <utility>

#include "absl/strings/str_format.h"
#include "glog/logging.h"

namespace braid {

Actor::Actor(ActorSpec spec, std::unique_ptr<Action> action, ThreadCore* core,
             ActorObserver observer)
    : Receiver{&Actor::OnDone},
      core_(*core),
      action_(std::move(action)),
      observer_(observer),
      is_deferrable_(spec.is_deferrable),
      spec_(std::move(spec)) {
  lanes_.resize(spec_.lanes);
  if (!lanes_.empty()) ++missing_;
  for (const InputSpec& input : spec_.inputs) {
    inputs_.push_back(
        {.ring = InputRing(input), .producer = {.id = input.producer}, .lane = input.lane});
    if (!inputs_.back().ring.is_ready()) EndWent(input.lane);
    input_slots_.push_back(inputs_.back().ring.slot());
  }
  for (const OutputSpec& output : spec_.outputs) {
    outputs_.push_back({.ring = OutputRing(output), .consumers = {}, .lane = output.lane});
    for (const ActorId& consumer : output.consumers) {
      outputs_.back().consumers.push_back({.id = consumer});
    }
    if (!outputs_.back().ring.is_free()) EndWent(output.lane);
    output_slots_.push_back(outputs_.back().ring.slot());
  }
  for (int32_t lane = 0; lane < static_cast<int32_t>(lanes_.size()); ++lane) QueueLane(lane);
  completion_.content = Mail::Content::kCompletion;
  completion_.target = this;
  completion_.message.src = completion_.message.dst = spec_.id;
}

void Actor::QueueLane(int32_t lane) {
  if (lanes_[lane].missing > 0 || std::exchange(lanes_[lane].is_waiting, true)) return;
  if (complete_lanes_.empty()) --missing_;
  complete_lanes_.push_back(lane);
}

int32_t Actor::TakeLane() {
  const int32_t lane = complete_lanes_.front();
  complete_lanes_.pop_front();
  if (complete_lanes_.empty()) ++missing_;
  lanes_[lane].is_waiting = false;
  return lane;
}

inline void Actor::EndCame(int32_t lane) {
  if (lane == kNoLane) {
    --missing_;
    return;
  }
  --lanes_[lane].missing;
  // The lane of an act waits for its turn once that is over.
  if (!is_acting_ || lane != act_lane_) QueueLane(lane);
}

inline void Actor::EndWent(int32_t lane) { ++(lane == kNoLane ? missing_ : lanes_[lane].missing); }

inline void Actor::QueueIfFireable() {
  if (missing_ != 0 || is_acting_ || is_queued_ || started_ >= credited_) return;
  is_queued_ = true;
  core_.fireable().Push(this, is_deferrable_);
}

void Actor::AddRun(int64_t steps) {
  core_.EnterRun(place_, spec_.acts_per_step);
  credited_ += steps * spec_.acts_per_step;
  QueueIfFireable();
}

void Actor::OnReady(uint32_t port, uint32_t slot, int64_t piece) {
  InputRing& ring = inputs_[port].ring;
  const bool was_ready = ring.is_ready();
  if (!ring.Receive(slot, piece)) [[unlikely]] {
    return RefuseReady(port, slot, piece);
  }
  if (was_ready) return;
  EndCame(inputs_[port].lane);
  QueueIfFireable();
}

void Actor::OnAck(uint32_t port, uint32_t reader, uint32_t slot, int64_t piece) {
  OutputRing& ring = outputs_[port].ring;
  const bool was_free = ring.is_free();
  if (!ring.Acknowledge(reader, slot, piece)) [[unlikely]] {
    return RefuseAck(port, reader, slot, piece);
  }
  if (was_free || !ring.is_free()) return;
  EndCame(outputs_[port].lane);
  QueueIfFireable();
}

void Actor::Receive(const Message& message, uint32_t port, uint32_t reader) {
  observer_.OnMessage(message, port);
  if (message.kind == MessageKind::kReady) {
    OnReady(port, message.slot, message.piece);
  } else {
    OnAck(port, reader, message.slot, message.piece);
  }
}

void Actor::Fire() {
  is_queued_ = false;
  is_acting_ = true;
  is_starting_ = true;
  is_done_inside_start_ = false;
  if (!lanes_.empty()) act_lane_ = TakeLane();
  const Act act{.index = started_++,
                .input_slots = input_slots_,
                .output_slots = output_slots_,
                .lane = act_lane_};
  observer_.OnActBegin(act.index);
  action_->Start(act, ActDone(this, act.index));
  is_starting_ = false;
  if (!is_done_inside_start_) [[unlikely]]
    return GoOn();
  observer_.OnActEnd(started_ - 1);
  Finish();
}

void Actor::GoOn() {
  core_.BeginLateAct();
  observer_.OnActGoesOn(started_ - 1);
}

void Actor::OnDone(Receiver* self, int64_t index, absl::Status status) {
  Actor& actor = *static_cast<Actor*>(self);
  if (!actor.core_.InThread()) {
    CHECK(!actor.is_completion_sent_.exchange(true, std::memory_order_relaxed))
        << "done was called twice for act " << index << " of actor '" << actor.spec_.name << "'";
    actor.done_status_ = std::move(status);
    actor.completion_.message.piece = index;
    actor.core_.Push(&actor.completion_);
    return;
  }
  CHECK(actor.is_acting_ && index + 1 == actor.started_ && !actor.is_done_inside_start_)
      << "done was called twice for act " << index << " of actor '" << actor.spec_.name << "'";
  actor.done_status_ = std::move(status);
  if (actor.is_starting_) {
    actor.is_done_inside_start_ = true;
    return;
  }
  const bool is_polling = actor.core_.is_polling();
  if (!is_polling) actor.observer_.OnActEndOutsidePoll(*actor.action_);
  actor.FinishLate();
  // Outside of a Poll nobody would look at what can fire now.
  if (!is_polling) actor.core_.Wake();
}

void Actor::ReadCompletion() {
  is_completion_sent_.store(false, std::memory_order_relaxed);
  FinishLate();
}

void Actor::FinishLate() {
  core_.EndLateAct();
  observer_.OnLateActEnd(started_ - 1);
  Finish();
}

inline void Actor::TellReady(const OtherEnd& consumer, RegisterId reg, uint32_t slot,
                             int64_t piece) {
  if (consumer.actor != nullptr) return consumer.actor->OnReady(consumer.port, slot, piece);
  Send(consumer, {.src = spec_.id,
                  .dst = consumer.id,
                  .reg = reg,
                  .slot = slot,
                  .kind = MessageKind::kReady,
                  .piece = piece});
}

inline void Actor::TellAck(const OtherEnd& producer, RegisterId reg, uint32_t slot, int64_t piece) {
  if (producer.actor != nullptr) {
    return producer.actor->OnAck(producer.port, producer.reader, slot, piece);
  }
  Send(producer, {.src = spec_.id,
                  .dst = producer.id,
                  .reg = reg,
                  .slot = slot,
                  .kind = MessageKind::kAck,
                  .piece = piece});
}

void Actor::Finish() {
  if (!done_status_.ok()) [[unlikely]] {
    const absl::Status status = std::exchange(done_status_, absl::OkStatus());
    Fail(status.code(),
         absl::StrFormat("act %d failed: %s", started_ - 1, std::string(status.message())));
  }
  if (core_.has_stopped()) [[unlikely]] {
    is_acting_ = false;
    return core_.CloseIfQuiet();
  }
  ++done_;
  // It counts as acting until all its ends are counted: what it tells itself must not queue it.
  for (size_t i = 0; i < inputs_.size(); ++i) {
    Input& input = inputs_[i];
    if (!IsOfAct(input.lane)) continue;
    const uint32_t slot = input.ring.slot();
    const int64_t piece = input.ring.piece();
    if (!input.ring.Use()) continue;
    input_slots_[i] = input.ring.slot();
    if (!input.ring.is_ready()) EndWent(input.lane);
    TellAck(input.producer, spec_.inputs[i].reg, slot, piece);
  }
  for (size_t i = 0; i < outputs_.size(); ++i) {
    Output& output = outputs_[i];
    if (!IsOfAct(output.lane)) continue;
    const uint32_t slot = output.ring.slot();
    const int64_t piece = output.ring.piece();
    if (!output.ring.Fill()) continue;
    output_slots_[i] = output.ring.slot();
    if (!output.ring.is_free()) EndWent(output.lane);
    for (const OtherEnd& consumer : output.consumers) {
      TellReady(consumer, spec_.outputs[i].reg, slot, piece);
    }
  }
  is_acting_ = false;
  if (!lanes_.empty()) QueueLane(act_lane_);
  QueueIfFireable();
  if (done_ == place_.end) core_.LeaveRun(place_, spec_.acts_per_step);
}

void Actor::Send(const OtherEnd& end, const Message& message) {
  if (end.inbox != nullptr) {
    Mail& mail = end.mails[message.slot];
    mail.message.piece = message.piece;
    return end.inbox->Push(&mail);
  }
  const absl::Status status = core_.SendRemote(message);
  if (status.ok()) return;
  Fail(status.code(), absl::StrFormat("cannot send %s of register %d slot %d to %s: %s",
                                      ToString(message.kind), message.reg, message.slot,
                                      ToString(message.dst), std::string(status.message())));
}

void Actor::Fail(absl::StatusCode code, std::string_view what) {
  core_.Fail(absl::Status(
      code, absl::StrFormat("actor '%s' (%s): %s", spec_.name, ToString(spec_.id), what)));
}

void Actor::RefuseReady(uint32_t port, uint32_t slot, int64_t piece) {
  Fail(absl::StatusCode::kInvalidArgument,
       absl::StrFormat("kReady of register %d slot %d from %s refused: %s", spec_.inputs[port].reg,
                       slot, ToString(inputs_[port].producer.id),
                       inputs_[port].ring.Objection(slot, piece)));
}

void Actor::RefuseAck(uint32_t port, uint32_t reader, uint32_t slot, int64_t piece) {
  const Output& output = outputs_[port];
  Fail(absl::StatusCode::kInvalidArgument,
       absl::StrFormat("kAck of register %d slot %d from %s refused: %s", spec_.outputs[port].reg,
                       slot, ToString(output.consumers[reader].id),
                       output.ring.Objection(reader, slot, piece)));
}

}  // namespace braid
