// What an rdma link makes of a peer that ends, is silent or does not keep to the rules: the other
// end, its queue pair and its notes, is the test's. Needs an RDMA port (tests/rdma/vm.sh).
#include "comm/rdma/rdma_link.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/rdma/rdma_queue_pair.h"
#include "comm/rdma/rdma_route.h"
#include "comm/rdma/rdma_wire.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/comm/comm_cluster.h"

namespace braid {
namespace {

using ::testing::HasSubstr;

// The link is node 1's, and the test is node 0.
class RdmaLinkTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::getenv("BRAID_TEST_RDMA") == nullptr) GTEST_SKIP() << "needs an RDMA port";
    const auto routes = FindRdmaRoutes({}, nullptr);
    ASSERT_TRUE(routes.ok()) << routes.status();
    route_ = routes->back();
    environment_ = MakeRealEnvironment();
    reactor_ = environment_->StartReactor("link");
    closed_ = std::make_unique<Outcome>(*environment_);
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
    notes_.emplace(Socket(ends[0]));
    RunOn(*environment_, *reactor_, [&] {
      auto link = MakeRdmaLink(Socket(ends[1]),
                               {.node = 1, .peer = 0, .route = *route_, .reactor = reactor_.get()});
      ASSERT_TRUE(link.ok()) << link.status();
      link_ = *std::move(link);
    });
    ASSERT_NE(link_, nullptr);
    link_->OnClosed(closed_->callback());
    auto pair = RdmaQueuePair::Make(*route_);
    ASSERT_TRUE(pair.ok()) << pair.status();
    pair_ = *std::move(pair);
  }
  void TearDown() override {
    if (link_ == nullptr) return;
    RunOn(*environment_, *reactor_, [this] { link_.reset(); });
  }

  static bool WaitFor(const std::function<bool()>& is_true) {
    for (int i = 0; i < 20'000; ++i) {
      if (is_true()) return true;
      usleep(1000);
    }
    return false;
  }

  // What the link notes, until that has come.
  RdmaNotes::Heard HearUntil(const std::function<bool(const RdmaNotes::Heard&)>& has_come) {
    RdmaNotes::Heard all;
    EXPECT_TRUE(WaitFor([&] {
      RdmaNotes::Heard heard = notes_->Hear();
      if (heard.hello.has_value()) all.hello = heard.hello;
      if (heard.reason.has_value()) all.reason = heard.reason;
      all.is_ready = all.is_ready || heard.is_ready;
      all.status.Update(heard.status);
      return has_come(all);
    }));
    return all;
  }

  // Both queue pairs take messages. `receives`: so many the link is told that the test takes.
  void Join(uint32_t receives = kRdmaReceives) {
    const RdmaNotes::Heard heard = HearUntil([](const auto& all) { return all.hello.has_value(); });
    RdmaHello own = pair_->hello();
    own.receives = receives;
    ASSERT_TRUE(notes_->SendHello(own).ok());
    HearUntil([](const auto& all) { return all.is_ready; });
    ASSERT_EQ(pair_->Connect(*heard.hello, own.mtu_bytes), absl::OkStatus());
    ASSERT_TRUE(notes_->SendReady().ok());
  }

  void SendMessage(const RdmaMessage& message) {
    std::array<std::byte, kRdmaMessageBytes> bytes{};
    PutRdmaHead(message, bytes);
    ASSERT_TRUE(
        pair_->Send({.message = std::span(bytes).first(kRdmaHeadBytes + message.frame_bytes)})
            .ok());
  }

  // The next message of the link's.
  std::optional<RdmaMessage> ReceiveMessage() {
    const ibv_wc* received = nullptr;
    if (!WaitFor([&] { return (received = pair_->received().Next()) != nullptr; })) return {};
    const auto message = ReadRdmaMessage(pair_->Received(received->wr_id, received->byte_len));
    return message.ok() ? std::optional(*message) : std::nullopt;
  }
  bool ReceivesNothing() {
    usleep(100'000);
    return !pair_->received().HasNext();
  }

  std::optional<RdmaRoute> route_;
  std::unique_ptr<Environment> environment_;
  std::unique_ptr<Reactor> reactor_;
  std::unique_ptr<Outcome> closed_;
  std::optional<RdmaNotes> notes_;
  std::unique_ptr<RdmaQueuePair> pair_;
  std::unique_ptr<Link> link_;
};

TEST_F(RdmaLinkTest, SaysByWhatItLeaves) {
  Join();
  EXPECT_TRUE(WaitFor([&] {
    return link_->Describe().find(", path MTU 4096") != std::string::npos;
  })) << link_->Describe();
  EXPECT_THAT(link_->Describe(), HasSubstr("node 1 <-> node 0: rdma " + route_->ToString()));
}

TEST_F(RdmaLinkTest, AQueuePairThatIsGoneClosesTheLink) {
  Join();
  pair_.reset();
  link_->Send(PatternBytes(8, 1));
  const std::string reason(closed_->Wait().message());
  EXPECT_THAT(reason, HasSubstr("link node 1 <-> node 0: RDMA port " + route_->PortName()));
  EXPECT_THAT(reason, HasSubstr("transport retry counter exceeded: nothing answers; look at"));
  const auto heard = HearUntil([](const auto& all) { return all.reason.has_value(); });
  EXPECT_THAT(*heard.reason, HasSubstr("transport retry counter exceeded"));
}

// Nobody says anything.
TEST_F(RdmaLinkTest, ASilentLinkAsksThePeersDevice) {
  Join();
  pair_.reset();
  EXPECT_THAT(std::string(closed_->Wait().message()), HasSubstr("retry counter exceeded"));
}

TEST_F(RdmaLinkTest, TheEndOfThePeersProcessClosesTheLinkAtOnce) {
  Join();
  const Nanoseconds began = environment_->Now();
  notes_->Close();
  pair_.reset();
  EXPECT_EQ(closed_->Wait(),
            absl::UnavailableError("link node 1 <-> node 0: connection closed by the peer"));
  EXPECT_LT(environment_->Now() - began, 2 * kSecond);
}

TEST_F(RdmaLinkTest, ThePeersReasonIsTold) {
  Join();
  notes_->SendReason("it had enough");
  EXPECT_EQ(closed_->Wait(),
            absl::UnavailableError("link node 1 <-> node 0 was closed by node 0: it had enough"));
}

// One credit is kept for credits.
TEST_F(RdmaLinkTest, NoMoreIsSentThanThePeerHasPostedReceivesFor) {
  Join(4);
  for (int i = 0; i < 10; ++i) link_->Send(PatternBytes(8, i));
  for (uint32_t i = 0; i < 3; ++i) {
    const auto message = ReceiveMessage();
    ASSERT_TRUE(message.has_value());
    EXPECT_EQ(message->sequence, i);
  }
  EXPECT_TRUE(ReceivesNothing());
  SendMessage({.kind = RdmaMessage::Kind::kCredits, .credits = 2});
  EXPECT_TRUE(ReceiveMessage().has_value());
  EXPECT_TRUE(ReceiveMessage().has_value());
  EXPECT_TRUE(ReceivesNothing());
}

struct WrongMessage {
  const char* what;
  RdmaMessage message;
};

TEST_F(RdmaLinkTest, AWrongMessageClosesTheLink) {
  const WrongMessage wrongs[] = {
      {"it has sequence number 7, must be 0", {.frame_bytes = 1, .sequence = 7}},
      {"it gives back 3 receives, must be at most 0", {.frame_bytes = 1, .credits = 3}},
      {"its frame has 0 bytes, must be 1 to 64", {}},
      {"it has kind 9, must be 1 to 3",
       {.kind = static_cast<RdmaMessage::Kind>(9), .frame_bytes = 1}},
      {"key 77 names none of the 0 regions that node 1 exposes to it",
       {.kind = RdmaMessage::Kind::kWrite, .frame_bytes = 1, .write = {.token = 77}}},
      {"it is no write and has key 0, offset 5 and 0 bytes, must be 0",
       {.frame_bytes = 1, .write = {.offset = 5}}},
  };
  for (const WrongMessage& wrong : wrongs) {
    SCOPED_TRACE(wrong.what);
    TearDown();
    SetUp();
    link_->SetHandler([](std::span<const std::byte>) { ADD_FAILURE() << "it was told"; });
    Join();
    SendMessage(wrong.message);
    const std::string text = std::string("wrong frame from node 0: ") + wrong.what;
    EXPECT_EQ(closed_->Wait(), absl::InvalidArgumentError(text));
    const auto heard = HearUntil([](const auto& all) { return all.reason.has_value(); });
    EXPECT_EQ(heard.reason, text);
  }
}

// The device refused what the peer says that it asked for.
TEST_F(RdmaLinkTest, AWriteThatIsRefusedIsTheWritersFault) {
  std::vector<std::byte> memory(100);
  const auto key = link_->Expose(memory);
  ASSERT_TRUE(key.ok()) << key.status();
  Join();
  notes_->SendRefused({.token = key->token, .offset = 60, .bytes = 50});
  EXPECT_THAT(std::string(closed_->Wait().message()),
              HasSubstr("wrong frame from node 0: it writes 50 bytes at offset 60 of key"));
}

TEST_F(RdmaLinkTest, AWrongHelloClosesTheLink) {
  RdmaHello hello = pair_->hello();
  hello.mtu_bytes = 1500;
  ASSERT_TRUE(notes_->SendHello(hello).ok());
  EXPECT_EQ(closed_->Wait(), absl::InvalidArgumentError(
                                 "wrong frame from node 0: its port has an MTU of 1500, must be "
                                 "256, 512, 1024, 2048 or 4096"));
}

}  // namespace
}  // namespace braid
