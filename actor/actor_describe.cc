// What an actor says of itself, for reports.
#include "actor/actor.h"

namespace braid {

ActorReport Actor::Describe() const {
  ActorReport report{.id = spec_.id,
                     .name = spec_.name,
                     .acts_done = done_,
                     .acts_credited = credited_,
                     .since = observer_.since(),
                     .timed_acts = observer_.timed_acts(),
                     .act_time = observer_.act_time()};
  DescribeQueues(report);
  DescribeCounts(report);
  DescribeWaits(report);
  return report;
}

void Actor::DescribeQueues(ActorReport& report) const {
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
}

void Actor::DescribeCounts(ActorReport& report) const {
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (IsOnThread(inputs_[i].producer.id)) continue;
    report.acknowledged.push_back({spec_.inputs[i].reg, inputs_[i].ring.piece()});
  }
  for (size_t i = 0; i < outputs_.size(); ++i) {
    for (const OtherEnd& consumer : outputs_[i].consumers) {
      if (IsOnThread(consumer.id)) continue;
      report.sent.push_back({spec_.outputs[i].reg, outputs_[i].ring.piece()});
      break;
    }
  }
}

void Actor::DescribeWaits(ActorReport& report) const {
  if (is_acting_) {
    report.waits.push_back({.what = Wait::For::kAction, .piece = started_ - 1, .peer = spec_.id});
    report.awaits = action_->Awaits();
    return;
  }
  if (started_ >= credited_) {
    report.waits.push_back({.what = Wait::For::kCredit, .piece = started_, .peer = spec_.id});
    return;
  }
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const Input& input = inputs_[i];
    if (input.ring.is_ready() || !MayMiss(input.lane)) continue;
    report.waits.push_back({.what = Wait::For::kReady,
                            .reg = spec_.inputs[i].reg,
                            .slot = input.ring.slot(),
                            .piece = input.ring.piece(),
                            .peer = input.producer.id});
  }
  for (size_t i = 0; i < outputs_.size(); ++i) {
    const Output& output = outputs_[i];
    if (output.ring.is_free() || !MayMiss(output.lane)) continue;
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
}

}  // namespace braid
