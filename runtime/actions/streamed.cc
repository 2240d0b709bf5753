#include "runtime/actions/streamed.h"

namespace braid {

void StreamedAction::Start(const Act& act, ActDone done) {
  Stream& stream = *options_.stream;
  for (size_t i = 0; i < options_.inputs.size(); ++i) {
    const Events& written = options_.inputs[i].written;
    if (!written.empty()) stream.Wait(*written[act.input_slots[i]]);
  }
  for (size_t i = 0; i < options_.outputs.size(); ++i) {
    for (const Events& read : options_.outputs[i].reads) stream.Wait(*read[act.output_slots[i]]);
  }
  act_ = act;
  done_ = done;
  action_->Start(act, ActDone(this, act.index));
}

void StreamedAction::Finish(const absl::Status& status) {
  const ActDone done = *done_;
  if (!status.ok()) return done(status);
  Stream& stream = *options_.stream;
  for (size_t i = 0; i < options_.inputs.size(); ++i) {
    const Events& read = options_.inputs[i].read;
    if (!read.empty()) stream.Record(*read[act_.input_slots[i]]);
  }
  for (size_t i = 0; i < options_.outputs.size(); ++i) {
    const Events& written = options_.outputs[i].written;
    if (!written.empty()) stream.Record(*written[act_.output_slots[i]]);
  }
  if (options_.is_done_when_queued) return done(absl::OkStatus());
  stream.Notify([done](absl::Status status) { done(std::move(status)); });
}

void StreamedAction::OnQueued(Receiver* self, int64_t /*index*/, absl::Status status) {
  static_cast<StreamedAction*>(self)->Finish(status);
}

StreamOrder::StreamOrder(const plan::NodePlan& plan, const Devices& devices)
    : plan_(plan), devices_(devices) {
  for (const plan::Task& task : plan.tasks) {
    if (!devices[task.device]->is_host() && !IsHostStream(task.stream)) {
      queued_[task.id.task] = &task;
    }
  }
}

const plan::Task* StreamOrder::QueuedTask(const plan::ActorId& id) const {
  if (id.node != plan_.node) return nullptr;
  const auto found = queued_.find(id.task);
  return found == queued_.end() ? nullptr : found->second;
}

bool StreamOrder::IsOtherStream(const plan::Task& a, const plan::Task& b) {
  return a.device != b.device || a.stream != b.stream;
}

StreamedAction::Events StreamOrder::MarksOf(const End& end, const plan::Task& marker,
                                            uint32_t slots) {
  StreamedAction::Events& events = events_[end];
  while (events.size() < slots) {
    marks_.push_back(devices_[marker.device]->MakeEvent());
    events.push_back(marks_.back().get());
  }
  return events;
}

std::unique_ptr<Action> StreamOrder::Wrap(const plan::Task& task, std::unique_ptr<Action> action) {
  if (!queued_.contains(task.id.task)) return action;
  StreamedAction::Options options;
  options.stream = &devices_[task.device]->stream(task.stream);
  options.is_done_when_queued = true;
  for (const plan::Input& input : task.inputs) {
    StreamedAction::Input& end = options.inputs.emplace_back();
    const plan::Task* producer = QueuedTask(input.producer);
    if (producer == nullptr) options.is_done_when_queued = false;
    if (producer == nullptr || !IsOtherStream(task, *producer)) continue;
    end.written = MarksOf({input.reg, std::nullopt}, *producer, input.slots);
    end.read = MarksOf({input.reg, task.id.task}, task, input.slots);
  }
  for (const plan::Output& output : task.outputs) {
    StreamedAction::Output& end = options.outputs.emplace_back();
    for (const plan::ActorId& id : output.consumers) {
      const plan::Task* consumer = QueuedTask(id);
      if (consumer == nullptr) options.is_done_when_queued = false;
      if (consumer == nullptr || !IsOtherStream(task, *consumer)) continue;
      end.written = MarksOf({output.reg, std::nullopt}, task, output.slots);
      end.reads.push_back(MarksOf({output.reg, id.task}, *consumer, output.slots));
    }
  }
  return std::make_unique<StreamedAction>(std::move(action), std::move(options));
}

}  // namespace braid
