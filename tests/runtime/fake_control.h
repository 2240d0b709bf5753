// A control channel whose far end is the test: what comes is kept, and answered as the test says.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "comm/control/control_channel.h"
#include "gtest/gtest.h"
#include "runtime/base/mutex.h"
#include "runtime/base/reactor.h"
#include "runtime/control.pb.h"

namespace braid {

// The far end. It outlives the channel's reactor. Any thread.
class FakeControl {
 public:
  // `reactor` is that of the channel's owner.
  FakeControl(Environment& environment, Reactor* reactor)
      : environment_(environment), reactor_(reactor) {}

  std::unique_ptr<ControlChannel> MakeChannel() { return std::make_unique<Channel>(this); }

  // Called in the sender's thread for what comes, after it was kept. Set before anything comes.
  std::function<void(const control::ControlMessage& message)> react;

  void Say(const control::ControlMessage& message) { SayBytes(message.SerializeAsString()); }
  void SayBytes(std::string bytes) {
    reactor_->Post([this, bytes = std::move(bytes)] {
      if (channel_ != nullptr && on_message_) on_message_(bytes);
    });
  }
  // As a channel does with what comes before its handlers.
  void SayWhenHeard(const control::ControlMessage& message) {
    first_ = message.SerializeAsString();
  }
  void HangUp(const absl::Status& reason) {
    reactor_->Post([this, reason] {
      if (channel_ != nullptr && on_closed_) on_closed_(reason);
    });
  }

  std::vector<control::ControlMessage> heard() const {
    MutexLock lock(mutex_);
    return heard_;
  }
  std::vector<control::ControlMessage> Heard(control::ControlMessage::KindCase kind) const {
    std::vector<control::ControlMessage> some = heard();
    std::erase_if(some, [kind](const auto& message) { return message.kind_case() != kind; });
    return some;
  }
  // Lets things happen until `count` messages of a kind have come, and returns the last of them.
  control::ControlMessage Await(control::ControlMessage::KindCase kind, size_t count = 1) {
    for (int round = 0; round < 20000 && Heard(kind).size() < count; ++round) {
      Pass(kMillisecond);
    }
    const auto messages = Heard(kind);
    if (messages.size() >= count) return messages[count - 1];
    ADD_FAILURE() << messages.size() << " messages of kind " << kind << " came, not " << count;
    return {};
  }
  // Lets time pass.
  void Pass(Nanoseconds time) {
    const std::unique_ptr<Event> never = environment_.MakeEvent();
    environment_.Await(*never, time).IgnoreError();
  }

 private:
  class Channel final : public ControlChannel {
   public:
    explicit Channel(FakeControl* end) : end_(end) { end_->channel_ = this; }
    ~Channel() override { end_->channel_ = nullptr; }
    void SetHandlers(MessageHandler on_message, ClosedHandler on_closed) override {
      end_->on_message_ = std::move(on_message);
      end_->on_closed_ = std::move(on_closed);
      if (!end_->first_.empty()) end_->SayBytes(std::exchange(end_->first_, ""));
    }
    void Send(std::string bytes) override {
      control::ControlMessage message;
      EXPECT_TRUE(message.ParseFromString(bytes));
      {
        MutexLock lock(end_->mutex_);
        end_->heard_.push_back(message);
      }
      if (end_->react) end_->react(message);
    }
    void Close(absl::Status) override {}

   private:
    FakeControl* const end_;
  };

  Environment& environment_;
  Reactor* const reactor_;
  // The reactor's thread only, but for the making.
  Channel* channel_ = nullptr;
  ControlChannel::MessageHandler on_message_;
  ControlChannel::ClosedHandler on_closed_;
  std::string first_;
  mutable Mutex mutex_;
  std::vector<control::ControlMessage> heard_ BRAID_GUARDED_BY(mutex_);
};

}  // namespace braid
