// Which streams wait for which, of a task whose neighbours queue or do not.
#include "runtime/actions/streamed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/kernels/kernel.h"

namespace braid {
namespace {

using ::testing::ElementsAre;

class NamedMark final : public StreamEvent {
 public:
  explicit NamedMark(int number) : number(number) {}
  const int number;
};

// Writes down what it is told, and keeps the notices.
class RecordingStream final : public Stream {
 public:
  void Copy(std::byte*, const std::byte*, uint64_t) override { log.push_back("copy"); }
  void Clear(std::byte*, uint64_t) override {}
  void CopyBox(const BoxRuns&, size_t, const std::byte*, std::byte*) override {}
  void CombineBox(const BoxRuns&, DType, Sbp::Kind, const std::byte*, std::byte*) override {}
  void Record(StreamEvent& mark) override { log.push_back("record " + NumberOf(mark)); }
  void Wait(const StreamEvent& mark) override { log.push_back("wait " + NumberOf(mark)); }
  void Notify(Notice notice) override {
    log.push_back("notify");
    notices.push_back(std::move(notice));
  }
  void SetName(const WorkName*) override {}

  std::vector<std::string> log;
  std::vector<Notice> notices;

 private:
  static std::string NumberOf(const StreamEvent& mark) {
    return std::to_string(static_cast<const NamedMark&>(mark).number);
  }
};

class QueueingDevice final : public Device {
 public:
  QueueingDevice() : Device("queueing", 0) {}
  const KernelRegistry& kernels() const override { return kernels_; }
  bool is_host() const override { return false; }
  absl::StatusOr<Memory> Allocate(MemoryKind, uint64_t) override { return Memory(); }
  std::span<std::byte> arena(MemoryKind) const override { return {}; }
  absl::Status GrowArena(MemoryKind, uint64_t) override { return absl::OkStatus(); }
  Stream& stream(StreamKind) override { return recorded; }
  std::unique_ptr<StreamEvent> MakeEvent() override {
    return std::make_unique<NamedMark>(marks_++);
  }
  void Drain(Notice drained) override { drained(absl::OkStatus()); }

  RecordingStream recorded;

 private:
  KernelRegistry kernels_;
  int marks_ = 0;
};

// A reader on the host (task 0), its copy in (1), a kernel (2), its copy out (3), a fetch (4).
// Register n is written by task n.
plan::NodePlan Chain() {
  plan::NodePlan plan;
  const std::vector<StreamKind> streams = {StreamKind::kInput, StreamKind::kCopyIn,
                                           StreamKind::kCompute, StreamKind::kCopyOut,
                                           StreamKind::kTransfer};
  const auto id_of = [&](uint32_t task) {
    return plan::ActorId{.node = 0, .thread = ThreadOf(0, streams[task]), .task = task};
  };
  for (uint32_t number = 0; number < streams.size(); ++number) {
    plan::Task& task = plan.tasks.emplace_back();
    task.id = id_of(number);
    task.stream = streams[number];
    if (number > 0)
      task.inputs.push_back(
          {.reg = number - 1, .producer = id_of(number - 1), .slots = 2, .period = 1});
    if (number + 1 < streams.size()) {
      task.outputs.push_back(
          {.reg = number, .slots = 2, .period = 1, .consumers = {id_of(number + 1)}});
    }
  }
  return plan;
}

class WorkAction final : public Action {
 public:
  explicit WorkAction(RecordingStream* stream) : stream_(*stream) {}
  void Start(const Act&, ActDone done) override {
    stream_.log.push_back("work");
    done(absl::OkStatus());
  }

 private:
  RecordingStream& stream_;
};

class StreamedTest : public ::testing::Test {
 protected:
  StreamedTest() {
    auto device = std::make_unique<QueueingDevice>();
    device_ = device.get();
    devices_.push_back(std::move(device));
    order_ = std::make_unique<StreamOrder>(plan_, devices_);
  }

  // An act of the task on slot 1 of all its ends; whether it was done when it had started.
  bool Start(uint32_t task) {
    return Start(task, std::make_unique<WorkAction>(&device_->recorded));
  }
  bool Start(uint32_t task, std::unique_ptr<Action> action) {
    actions_.push_back(order_->Wrap(plan_.tasks[task], std::move(action)));
    is_done_ = false;
    static const std::vector<uint32_t> slots = {1};
    receiver_.test = this;
    actions_.back()->Start(Act{.input_slots = slots, .output_slots = slots},
                           ActDone(&receiver_, 0));
    return is_done_;
  }

  struct Receiver : ActDone::Receiver {
    Receiver()
        : ActDone::Receiver{[](ActDone::Receiver* self, int64_t, absl::Status) {
            static_cast<Receiver*>(self)->test->is_done_ = true;
          }} {}
    StreamedTest* test = nullptr;
  };

  const plan::NodePlan plan_ = Chain();
  Devices devices_;
  QueueingDevice* device_ = nullptr;
  std::unique_ptr<StreamOrder> order_;
  std::vector<std::unique_ptr<Action>> actions_;
  Receiver receiver_;
  bool is_done_ = false;
};

TEST_F(StreamedTest, AHostsTaskStaysAsItIs) {
  EXPECT_TRUE(Start(0));
  EXPECT_THAT(device_->recorded.log, ElementsAre("work"));
}

TEST_F(StreamedTest, AmongStreamsAnActIsDoneWhenItIsQueued) {
  EXPECT_TRUE(Start(2));
  // Of slot 1: the marks 1 and 3 of the copy in and of this reader, 5 of this writer, 7 of the copy
  // out.
  EXPECT_THAT(device_->recorded.log,
              ElementsAre("wait 1", "wait 7", "work", "record 3", "record 5"));
}

TEST_F(StreamedTest, BesideTheHostAnActIsDoneWhenTheDeviceSaysSo) {
  EXPECT_FALSE(Start(1));
  ASSERT_EQ(device_->recorded.notices.size(), 1u);
  EXPECT_THAT(device_->recorded.log, ElementsAre("wait 3", "work", "record 1", "notify"));
  device_->recorded.notices[0](absl::OkStatus());
  EXPECT_TRUE(is_done_);
}

// A collective queues its part when all members have met.
TEST_F(StreamedTest, MarksAreLeftWhenTheActHasQueued) {
  class LaterAction final : public Action {
   public:
    void Start(const Act&, ActDone done) override { this->done = done; }
    std::vector<ThreadId> Awaits() const override { return {{.node = 3, .thread = 4}}; }
    std::optional<ActDone> done;
  };
  auto later = std::make_unique<LaterAction>();
  LaterAction& action = *later;
  EXPECT_FALSE(Start(2, std::move(later)));
  EXPECT_THAT(device_->recorded.log, ElementsAre("wait 1", "wait 7"));
  ASSERT_EQ(actions_.back()->Awaits().size(), 1u);
  EXPECT_EQ(actions_.back()->Awaits()[0].node, 3);
  device_->recorded.log.push_back("work");
  (*action.done)(absl::OkStatus());
  EXPECT_THAT(device_->recorded.log,
              ElementsAre("wait 1", "wait 7", "work", "record 3", "record 5"));
  EXPECT_TRUE(is_done_);
}

TEST_F(StreamedTest, AnActThatFailsLeavesNoMarks) {
  class FailingAction final : public Action {
   public:
    void Start(const Act&, ActDone done) override { done(absl::AbortedError("no")); }
  };
  EXPECT_TRUE(Start(2, std::make_unique<FailingAction>()));
  EXPECT_THAT(device_->recorded.log, ElementsAre("wait 1", "wait 7"));
}

TEST_F(StreamedTest, BothEndsOfAnEdgeUseTheSameMarks) {
  Start(2);
  device_->recorded.log.clear();
  Start(3);
  EXPECT_THAT(device_->recorded.log, ElementsAre("wait 5", "work", "record 7", "notify"));
}

}  // namespace
}  // namespace braid
