// How long a node waits for the master to say why a link broke, if its process stands meanwhile.
#include "runtime/control_agent.h"

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/control.pb.h"
#include "tests/actor/hand_reactor.h"

namespace braid {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Its timers are looked at when the test says so.
class SlowReactor final : public HandReactor {
 public:
  TimerId RunAfter(Nanoseconds delay, absl::AnyInvocable<void()> fn) override {
    timers_.emplace_back(now + delay, std::move(fn));
    return timers_.size();
  }

  // Nothing runs until then, and then what is due.
  void StandUntil(Nanoseconds time) {
    now = time;
    std::vector<Timer> timers = std::exchange(timers_, {});
    for (Timer& timer : timers) {
      if (timer.first <= now) {
        timer.second();
      } else {
        timers_.push_back(std::move(timer));
      }
    }
  }

 private:
  using Timer = std::pair<Nanoseconds, absl::AnyInvocable<void()>>;

  std::vector<Timer> timers_;
};

class ControlAgentTest : public ::testing::Test {
 protected:
  ControlAgentTest()
      : agent_({.node = 1,
                .reactor = &reactor_,
                .obey = [](control::ControlMessage&) {},
                .annotate = [](const absl::Status& cause) { return cause; },
                .close_all =
                    [this](const absl::Status& reason) {
                      reasons_.push_back(std::string(reason.message()));
                    }}) {
    agent_.Serve(std::make_unique<Channel>(this), control::Hello(), [](const absl::Status&) {});
    agent_.FailLink(absl::UnavailableError("the link broke"));
  }

  void MasterSaysClose() {
    control::ControlMessage message;
    message.mutable_close();
    on_message_(message.SerializeAsString());
  }

  SlowReactor reactor_;
  ControlChannel::MessageHandler on_message_;
  std::vector<std::string> reasons_;  // for which all was closed
  ControlAgent agent_;

 private:
  class Channel final : public ControlChannel {
   public:
    explicit Channel(ControlAgentTest* test) : test_(test) {}
    void SetHandlers(MessageHandler on_message, ClosedHandler) override {
      test_->on_message_ = std::move(on_message);
    }
    void Send(std::string) override {}
    void Close(absl::Status) override {}

   private:
    ControlAgentTest* const test_;
  };
};

// The process stood from before the master closed the session until just after the wait was over.
TEST_F(ControlAgentTest, WhatTheMasterSaidMeanwhileIsReadFirst) {
  reactor_.StandUntil(7 * kSecond + 300 * kMillisecond);
  EXPECT_THAT(reasons_, IsEmpty());
  MasterSaysClose();
  EXPECT_THAT(reasons_, ElementsAre(HasSubstr("the session was closed")));
  reactor_.StandUntil(9 * kSecond);
  EXPECT_EQ(reasons_.size(), 1u);
}

TEST_F(ControlAgentTest, ACauseThatDoesNotComeIsTheLinksOwn) {
  reactor_.StandUntil(6 * kSecond);
  reactor_.StandUntil(7 * kSecond);
  EXPECT_THAT(reasons_, IsEmpty());
  reactor_.StandUntil(7 * kSecond + 50 * kMillisecond);
  EXPECT_THAT(reasons_, ElementsAre(HasSubstr("the link broke")));
}

// The master waits as long for a node that stands.
TEST_F(ControlAgentTest, ALongStandStillIsAWaitMore) {
  reactor_.StandUntil(20 * kSecond);
  reactor_.StandUntil(20 * kSecond + 500 * kMillisecond);
  EXPECT_THAT(reasons_, IsEmpty());
  reactor_.StandUntil(21 * kSecond);
  EXPECT_THAT(reasons_, ElementsAre(HasSubstr("the link broke")));
}

}  // namespace
}  // namespace braid
