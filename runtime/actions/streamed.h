// Orders the streams of devices that queue: around the action of a task that works on one. The
// actors count as everywhere; where both ends of an edge queue on this node, marks in the streams
// say when the bytes are there and when they may be written again.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "actor/action.h"
#include "compiler/plan/node_plan.h"
#include "runtime/device/device.h"

namespace braid {

class StreamedAction final : public Action, private ActDone::Receiver {
 public:
  using Events = std::vector<StreamEvent*>;  // by slot; empty: the streams need no order here
  struct Input {
    Events written;  // by the register's writer, to wait for
    Events read;     // by this task, which its writer waits for
  };
  struct Output {
    Events written;             // by this task
    std::vector<Events> reads;  // by each reader on another stream
  };
  struct Options {
    Stream* stream = nullptr;  // borrowed, as the events
    std::vector<Input> inputs;
    std::vector<Output> outputs;
    // All its neighbours queue on this node: an act is done when it is queued. Else when the device
    // has done it.
    bool is_done_when_queued = false;
  };
  StreamedAction(std::unique_ptr<Action> action, Options options)
      : Receiver{&OnQueued}, action_(std::move(action)), options_(std::move(options)) {}

  void Start(const Act& act, ActDone done) override;
  std::vector<ThreadId> Awaits() const override { return action_->Awaits(); }
  ThreadId LastAwaited() const override { return action_->LastAwaited(); }

 private:
  static void OnQueued(Receiver* self, int64_t index, absl::Status status);

  // The action has queued all of the act.
  void Finish(const absl::Status& status);

  const std::unique_ptr<Action> action_;
  const Options options_;
  Act act_;  // that is under way
  std::optional<ActDone> done_;
};

// Finds which tasks of a node's part queue on streams, and makes the marks between them.
class StreamOrder {
 public:
  // Both borrowed.
  StreamOrder(const plan::NodePlan& plan, const Devices& devices);

  // The action itself if the task's device does at once what it is told.
  std::unique_ptr<Action> Wrap(const plan::Task& task, std::unique_ptr<Action> action);

  // Of all that Wrap made; outlive it.
  using Marks = std::vector<std::unique_ptr<StreamEvent>>;
  Marks TakeMarks() { return std::move(marks_); }

 private:
  // A register's slots as one of its ends marks them.
  struct End {
    uint32_t reg = 0;
    std::optional<uint32_t> reader;  // a task; none: the writer
    friend auto operator<=>(const End&, const End&) = default;
  };
  const plan::Task* QueuedTask(const plan::ActorId& id) const;
  static bool IsOtherStream(const plan::Task& a, const plan::Task& b);
  StreamedAction::Events MarksOf(const End& end, const plan::Task& marker, uint32_t slots);

  const plan::NodePlan& plan_;
  const Devices& devices_;
  std::map<uint32_t, const plan::Task*> queued_;  // tasks that work on streams, by number
  std::map<End, StreamedAction::Events> events_;
  Marks marks_;
};

}  // namespace braid
