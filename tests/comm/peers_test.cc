// Links between peers: made on demand, once a pair, checked before they are relied on, lost once
// and with a cause. Over the loopback, in a simulated order of events and in real threads.
#include "comm/peers/peers.h"

#include <array>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/loopback_transport.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/comm/comm_cluster.h"

namespace braid {
namespace {

using ::testing::HasSubstr;

// What is wrong with the links of a node.
struct Fault {
  int node = -1;
  bool loses_payload = false;  // that it sends; small frames pass
  Nanoseconds delay = 0;       // until it hears of what came, as if it had much else to do
};

class FaultyLink final : public Link {
 public:
  FaultyLink(std::unique_ptr<Link> link, Reactor* reactor, const Fault& fault)
      : link_(std::move(link)), reactor_(*reactor), fault_(fault) {}
  ~FaultyLink() override { *handler_ = nullptr; }

  uint16_t peer() const override { return link_->peer(); }
  std::string Describe() const override { return link_->Describe(); }
  absl::StatusOr<MemoryKey> Expose(std::span<std::byte> memory) override {
    return link_->Expose(memory);
  }
  void Withdraw(const MemoryKey& key) override { link_->Withdraw(key); }
  void Send(std::span<const std::byte> frame) override { link_->Send(frame); }
  bool Write(std::span<const std::byte> payload, const MemoryKey& key, uint64_t offset,
             std::span<const std::byte> frame, DoneCallback done) override {
    return fault_.loses_payload || link_->Write(payload, key, offset, frame, std::move(done));
  }
  void SetHandler(FrameHandler handler) override {
    *handler_ = std::move(handler);
    link_->SetHandler([this](std::span<const std::byte> frame) {
      if (fault_.delay == 0) return (*handler_)(frame);
      frames_->emplace_back(frame.begin(), frame.end());
      reactor_.RunAfter(fault_.delay, [handler = handler_, frames = frames_] {
        const std::vector<std::byte> first = std::move(frames->front());
        frames->pop_front();
        if (*handler) (*handler)(first);
      });
    });
  }
  void OnClosed(std::function<void(absl::Status)> closed) override {
    link_->OnClosed([closed = std::move(closed), handler = handler_](const absl::Status& reason) {
      *handler = nullptr;
      closed(reason);
    });
  }
  void Close(absl::Status reason) override { link_->Close(std::move(reason)); }
  LinkCounters counters() const override { return link_->counters(); }

 private:
  const std::unique_ptr<Link> link_;
  Reactor& reactor_;
  const Fault fault_;
  // Both shared with the timers; null: no frame is delivered any more.
  const std::shared_ptr<FrameHandler> handler_ = std::make_shared<FrameHandler>();
  const std::shared_ptr<std::deque<std::vector<std::byte>>> frames_ =
      std::make_shared<std::deque<std::vector<std::byte>>>();
};

// The loopback, whose calls are counted and whose links may be faulty.
class WatchedTransport final : public Transport {
 public:
  WatchedTransport(std::unique_ptr<Transport> transport, int* calls, const Fault& fault)
      : transport_(std::move(transport)), calls_(calls), fault_(fault) {}
  std::string_view name() const override { return transport_->name(); }
  absl::StatusOr<std::string> Open() override { return transport_->Open(); }
  absl::Status Reaches(std::string_view address) const override {
    return transport_->Reaches(address);
  }
  void Connect(LinkRequest request, ConnectCallback done) override {
    ++*calls_;
    Reactor* const reactor = request.reactor;
    transport_->Connect(std::move(request), [done = std::move(done), reactor, fault = fault_](
                                                absl::StatusOr<std::unique_ptr<Link>> link) {
      if (!link.ok()) return done(std::move(link));
      done(std::make_unique<FaultyLink>(*std::move(link), reactor, fault));
    });
  }

 private:
  const std::unique_ptr<Transport> transport_;
  int* const calls_;
  const Fault fault_;
};

class BrokenTransport final : public Transport {
 public:
  std::string_view name() const override { return "broken"; }
  absl::StatusOr<std::string> Open() override { return absl::UnavailableError("no such card"); }
  absl::Status Reaches(std::string_view) const override { return absl::OkStatus(); }
  void Connect(LinkRequest, ConnectCallback) override { ADD_FAILURE() << "it does not work here"; }
};

// One node: its reactor, its Peers, and what they told.
struct TestNode {
  uint16_t node = 0;
  int calls = 0;  // of the transport
  std::vector<uint16_t> links;
  std::vector<LinkLoss> losses;
  std::vector<std::pair<uint16_t, std::vector<std::byte>>> frames;
  absl::Status refusal;  // what the receiver answers
  std::unique_ptr<Peers> peers;
  std::unique_ptr<Reactor> reactor;  // dies first: joins
};

constexpr int kPeers = 3;

// Seed 0: real threads.
class PeersTest : public ::testing::TestWithParam<uint64_t> {
 protected:
  PeersTest()
      : environment_(GetParam() == 0 ? MakeRealEnvironment()
                                     : MakeSimulatedEnvironment(GetParam())) {}

  ~PeersTest() override {
    for (TestNode& node : nodes_) {
      if (node.reactor == nullptr) continue;
      RunOn(*environment_, *node.reactor, [&] { node.peers.reset(); });
    }
  }

  void Start(const Fault& fault = {}) {
    std::array<std::vector<TransportAddress>, kPeers> addresses;
    for (int i = 0; i < kPeers; ++i) {
      TestNode& node = nodes_[i];
      node.node = static_cast<uint16_t>(i);
      node.reactor = environment_->StartReactor("node");
      RunOn(*environment_, *node.reactor, [&] {
        node.peers = std::make_unique<Peers>(Peers::Options{
            .node = node.node,
            .reactor = node.reactor.get(),
            .on_link = [&node](Link& link) { node.links.push_back(link.peer()); },
            .on_loss = [&node](const LinkLoss& loss) { node.losses.push_back(loss); }});
        node.peers->SetReceiver(
            Channel::kActor, [&node](uint16_t peer, std::span<const std::byte> frame) {
              node.frames.emplace_back(peer, std::vector<std::byte>(frame.begin(), frame.end()));
              return node.refusal;
            });
        std::vector<std::unique_ptr<Transport>> transports;
        transports.push_back(std::make_unique<BrokenTransport>());
        transports.push_back(
            std::make_unique<WatchedTransport>(MakeLoopbackTransport(node.node, &network_),
                                               &node.calls, i == fault.node ? fault : Fault()));
        addresses[i] = node.peers->Open(std::move(transports));
      });
    }
    for (TestNode& node : nodes_) {
      RunOn(*environment_, *node.reactor, [&] {
        for (int i = 0; i < kPeers; ++i) {
          if (i != node.node) node.peers->SetAddresses(static_cast<uint16_t>(i), addresses[i]);
        }
      });
    }
  }

  TestNode& node(int i) { return nodes_[i]; }
  void On(int i, const std::function<void()>& fn) { RunOn(*environment_, *nodes_[i].reactor, fn); }
  std::unique_ptr<Outcome> Connect(int from, uint16_t to) {
    auto outcome = std::make_unique<Outcome>(*environment_);
    On(from, [&] {
      node(from).peers->Connect(
          to, [&outcome = *outcome](const absl::Status& status) { outcome.Take(status); });
    });
    return outcome;
  }
  void Join(int a, int b) {
    const auto one = Connect(a, static_cast<uint16_t>(b));
    const auto other = Connect(b, static_cast<uint16_t>(a));
    ASSERT_TRUE(one->Wait().ok());
    ASSERT_TRUE(other->Wait().ok());
  }
  // Waits until a node's state says so.
  void AwaitOn(int i, const std::function<bool()>& is_so) {
    for (int round = 0; round < 20000; ++round) {
      bool holds = false;
      On(i, [&] { holds = is_so(); });
      if (holds) return;
    }
    FAIL() << "node " << i << " did not come to it";
  }
  void Send(int from, uint16_t to, std::vector<std::byte> frame) {
    On(from, [&] { node(from).peers->LinkTo(to)->Send(frame); });
  }

  const std::unique_ptr<Environment> environment_;
  LoopbackNetwork network_;
  std::array<TestNode, kPeers> nodes_;
};

INSTANTIATE_TEST_SUITE_P(Seeds, PeersTest, ::testing::Range<uint64_t>(0, 9));

constexpr auto kFrame = [](Channel channel) {
  return std::vector<std::byte>{static_cast<std::byte>(channel), std::byte{7}};
};

TEST_P(PeersTest, LinksAreMadeWhenTheyAreAskedFor) {
  Start();
  Join(0, 1);
  On(0, [&] {
    EXPECT_TRUE(node(0).peers->IsReady(1));
    EXPECT_NE(node(0).peers->LinkTo(1), nullptr);
    EXPECT_FALSE(node(0).peers->IsReady(2));
    EXPECT_EQ(node(0).peers->LinkTo(2), nullptr);
    EXPECT_EQ(node(0).peers->counters().size(), 1u);
    EXPECT_EQ(node(0).links, std::vector<uint16_t>{1});
  });
  EXPECT_EQ(node(2).calls, 0);
  Join(2, 0);
  Join(1, 2);
  On(0, [&] { EXPECT_EQ(node(0).links, (std::vector<uint16_t>{1, 2})); });
  EXPECT_EQ(node(0).calls, 2);
}

TEST_P(PeersTest, WhoeverAsksSharesTheOneLink) {
  Start();
  const auto first = Connect(0, 1), second = Connect(0, 1);
  const auto other = Connect(1, 0);
  EXPECT_TRUE(first->Wait().ok());
  EXPECT_TRUE(second->Wait().ok());
  EXPECT_TRUE(other->Wait().ok());
  EXPECT_TRUE(Connect(0, 1)->Wait().ok()) << "once it is there, at once";
  EXPECT_EQ(node(0).calls, 1);
  EXPECT_EQ(node(0).links.size(), 1u);
  EXPECT_EQ(first->times(), 1);
}

TEST_P(PeersTest, FramesGoToTheReceiverOfTheirChannel) {
  Start();
  Join(0, 1);
  Send(0, 1, kFrame(Channel::kActor));
  AwaitOn(1, [&] { return !node(1).frames.empty(); });
  On(1, [&] {
    EXPECT_EQ(node(1).frames[0].first, 0);
    EXPECT_EQ(node(1).frames[0].second, kFrame(Channel::kActor));
    EXPECT_TRUE(node(1).losses.empty());
  });
}

TEST_P(PeersTest, AFrameOfAChannelThatNobodyReceivesEndsTheLink) {
  Start();
  Join(0, 1);
  Send(0, 1, kFrame(Channel::kCollective));
  AwaitOn(1, [&] { return !node(1).losses.empty(); });
  On(1, [&] {
    EXPECT_THAT(std::string(node(1).losses[0].reason.message()), HasSubstr("unknown channel 2"));
  });
}

TEST_P(PeersTest, WhatAReceiverRefusesEndsTheLinkOnceAndWithItsReason) {
  Start();
  Join(0, 1);
  Join(0, 2);
  On(1, [&] { node(1).refusal = absl::InvalidArgumentError("register 7 is not known"); });
  Send(0, 1, kFrame(Channel::kActor));
  AwaitOn(1, [&] { return !node(1).losses.empty(); });
  AwaitOn(0, [&] { return !node(0).losses.empty(); });
  On(1, [&] {
    node(1).peers->LinkTo(0)->Close(absl::CancelledError("once more"));
    ASSERT_EQ(node(1).losses.size(), 1u);
    EXPECT_EQ(node(1).losses[0].peer, 0);
    EXPECT_TRUE(node(1).losses[0].was_linked);
    EXPECT_EQ(node(1).losses[0].reason.message(), "register 7 is not known");
    EXPECT_FALSE(node(1).peers->IsReady(0));
  });
  On(0, [&] {
    EXPECT_EQ(node(0).losses.size(), 1u);
    EXPECT_TRUE(node(0).peers->IsReady(2)) << "another link is as it was";
  });
  EXPECT_FALSE(Connect(1, 0)->Wait().ok()) << "it is not made again";
  EXPECT_EQ(node(1).calls, 1);
}

TEST_P(PeersTest, APeerThatNobodyHasSaidWhereItIsIsNotReached) {
  Start();
  const absl::Status status = Connect(0, 9)->Wait();
  EXPECT_THAT(
      std::string(status.message()),
      HasSubstr("node 0: no transport reaches node 9; broken does not work here: no such card"));
  On(0, [&] {
    ASSERT_EQ(node(0).losses.size(), 1u);
    EXPECT_FALSE(node(0).losses[0].was_linked);
  });
}

TEST_P(PeersTest, AfterCloseNobodyIsTold) {
  Start();
  Join(0, 1);
  Outcome outcome(*environment_);
  On(0, [&] {
    node(0).peers->Connect(2, outcome.callback());
    node(0).peers->Close(absl::CancelledError("the end"));
    node(0).peers->Connect(1, outcome.callback());
  });
  AwaitOn(1, [&] { return !node(1).losses.empty(); });
  On(0, [&] { EXPECT_TRUE(node(0).losses.empty()); });
  EXPECT_EQ(outcome.times(), 0);
}

TEST_P(PeersTest, MayEndWhileALinkIsBeingMade) {
  Start();
  Outcome outcome(*environment_);
  On(0, [&] { node(0).peers->Connect(1, outcome.callback()); });
  const auto other = Connect(1, 0);
  On(0, [&] { node(0).peers.reset(); });
  if (other->Wait().ok()) AwaitOn(1, [&] { return !node(1).losses.empty(); });
}

// What takes long needs no real time.
class PeersInSimulatedTime : public PeersTest {};

INSTANTIATE_TEST_SUITE_P(Seeds, PeersInSimulatedTime, ::testing::Range<uint64_t>(1, 9));

TEST_P(PeersInSimulatedTime, APeerThatNeverAnswersIsNamed) {
  Start();
  const absl::Status status = Connect(0, 1)->Wait();
  EXPECT_THAT(std::string(status.message()), HasSubstr("node 1 did not connect to node 0 within"));
  EXPECT_EQ(node(0).losses.size(), 1u);
}

TEST_P(PeersInSimulatedTime, ALinkThatCarriesNoPayloadIsLostByItsCheck) {
  Start({.node = 1, .loses_payload = true});
  const auto heard = Connect(0, 1), deaf = Connect(1, 0);
  const absl::Status status = heard->Wait();
  EXPECT_THAT(std::string(status.message()), HasSubstr("131072 bytes did not come through"));
  EXPECT_TRUE(deaf->Wait().ok()) << "what node 0 sends comes through";
  On(0, [&] {
    ASSERT_EQ(node(0).losses.size(), 1u);
    EXPECT_TRUE(node(0).losses[0].was_linked);
    EXPECT_EQ(node(0).losses[0].reason, status);
  });
  AwaitOn(1, [&] { return !node(1).losses.empty(); });
  On(1, [&] {
    ASSERT_EQ(node(1).losses.size(), 1u);
    EXPECT_THAT(std::string(node(1).losses[0].reason.message()),
                HasSubstr("was closed by node 0: node 0 <-> node 1: loopback: 131072 bytes did"));
  });
}

TEST_P(PeersInSimulatedTime, APeerThatIsBusyIsWaitedFor) {
  Start({.node = 1, .delay = 8 * kSecond});
  const auto one = Connect(0, 1), other = Connect(1, 0);
  EXPECT_EQ(one->Wait(), absl::OkStatus());
  EXPECT_EQ(other->Wait(), absl::OkStatus());
}

TEST_P(PeersInSimulatedTime, ALinkToAPeerThatIsBusyForTooLongIsLost) {
  Start({.node = 1, .delay = 40 * kSecond});
  const auto one = Connect(0, 1), other = Connect(1, 0);
  EXPECT_THAT(std::string(one->Wait().message()),
              HasSubstr("loopback: its check was not answered within 30 s"));
  EXPECT_FALSE(other->Wait().ok());
}

TEST_P(PeersInSimulatedTime, AReactorMayEndWhileItsPeerHasNotAnswered) {
  Start();
  Outcome outcome(*environment_);
  On(0, [&] {
    node(0).peers->Connect(1, outcome.callback());
    node(0).peers.reset();
  });
  node(0).reactor.reset();
  EXPECT_THAT(std::string(Connect(1, 0)->Wait().message()),
              HasSubstr("node 0 did not connect to node 1 within"));
  EXPECT_EQ(outcome.times(), 0);
}

}  // namespace
}  // namespace braid
