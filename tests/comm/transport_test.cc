// Every transport through one suite: order, bounds, closing, callbacks exactly once.
#include <algorithm>
#include <optional>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/comm/comm_cluster.h"

namespace braid {
namespace {

using ::testing::HasSubstr;

struct Case {
  TransportCase transport;
  uint64_t seed = 0;  // 0: the real environment
};

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const TransportCase& transport : TransportCases()) {
    cases.push_back({transport, 0});
    for (uint64_t seed = 1; transport.simulate && seed <= 10; ++seed) {
      cases.push_back({transport, seed});
    }
  }
  return cases;
}

// Two nodes; node 1 keeps what it receives until `expected` frames have come.
class TransportTest : public ::testing::TestWithParam<Case> {
 protected:
  TransportTest()
      : environment_(GetParam().seed == 0 ? MakeRealEnvironment()
                                          : GetParam().transport.simulate(GetParam().seed)),
        nodes_(std::make_unique<LinkedNodes>(*environment_, GetParam().transport, 2)),
        received_all_(*environment_) {
    for (int node : {0, 1}) {
      closed_[node] = std::make_unique<Outcome>(*environment_);
      link(node).OnClosed(closed_[node]->callback());
    }
  }

  Link& link(int node) { return nodes_->link(node, 1 - node); }

  void Receive(size_t expected) {
    link(1).SetHandler([this, expected](std::span<const std::byte> frame) {
      EXPECT_TRUE(nodes_->reactor(1).InThread());
      if (on_frame_) on_frame_(frame);
      frames_.emplace_back(frame.begin(), frame.end());
      if (frames_.size() == expected) received_all_.Take(absl::OkStatus());
    });
  }

  // The two ends closed; their statuses.
  std::pair<absl::Status, absl::Status> WaitClosed() {
    std::pair<absl::Status, absl::Status> statuses{closed_[0]->Wait(), closed_[1]->Wait()};
    EXPECT_FALSE(statuses.first.ok());
    EXPECT_FALSE(statuses.second.ok());
    return statuses;
  }

  std::unique_ptr<Environment> environment_;
  std::unique_ptr<Outcome> closed_[2];
  std::unique_ptr<LinkedNodes> nodes_;
  Outcome received_all_;
  std::function<void(std::span<const std::byte>)> on_frame_;
  std::vector<std::vector<std::byte>> frames_;
};

TEST_P(TransportTest, SaysWhomItJoins) {
  EXPECT_EQ(link(0).peer(), 1);
  EXPECT_THAT(link(0).Describe(), HasSubstr("node 0 <-> node 1: "));
}

TEST_P(TransportTest, FramesOfEverySizeArriveInOrder) {
  constexpr size_t kFrames = 500;
  Receive(kFrames);
  for (size_t i = 0; i < kFrames; ++i) link(0).Send(PatternBytes(1 + i % kMaxFrameBytes, i));
  ASSERT_TRUE(received_all_.Wait().ok());
  for (size_t i = 0; i < kFrames; ++i)
    EXPECT_EQ(frames_[i], PatternBytes(1 + i % kMaxFrameBytes, i));
  EXPECT_EQ(link(0).counters().frames_sent, kFrames);
  EXPECT_EQ(link(1).counters().frames_received, kFrames);
  EXPECT_EQ(link(0).counters().bytes_sent, 0u);
}

TEST_P(TransportTest, FramesWaitForTheHandler) {
  for (int i = 0; i < 3; ++i) link(0).Send(PatternBytes(8, i));
  Receive(4);
  link(0).Send(PatternBytes(8, 3));
  ASSERT_TRUE(received_all_.Wait().ok());
  for (int i = 0; i < 4; ++i) EXPECT_EQ(frames_[i], PatternBytes(8, i));
}

TEST_P(TransportTest, WhatIsLentIsReadUntilItIsWithdrawn) {
  const std::vector<std::byte> content = PatternBytes(100'000, 1);
  const Memory memory = nodes_->Landing(0, content);
  const std::span<const std::byte> lent(memory.data(), memory.size());
  Receive(1);
  link(0).Send(PatternBytes(8, 1));
  ASSERT_TRUE(received_all_.Wait().ok());
  const std::optional<MemoryKey> key = link(0).Lend(lent.subspan(1000, 90'000));
  ASSERT_EQ(key.has_value(), GetParam().transport.lends);
  const auto nothing = [](std::span<const std::byte>) { FAIL() << "it was not lent"; };
  if (!key.has_value()) {
    EXPECT_FALSE(link(1).ReadLent(1, 1, nothing));
    return;
  }
  EXPECT_TRUE(link(1).can_read_lent());
  const auto expect = [&](std::span<const std::byte> read) {
    EXPECT_TRUE(std::ranges::equal(read, std::span(content).subspan(1000, read.size())));
  };
  EXPECT_TRUE(link(1).ReadLent(key->token, 90'000, expect));
  EXPECT_TRUE(link(1).ReadLent(key->token, 1, expect));
  EXPECT_FALSE(link(1).ReadLent(key->token, 90'001, nothing));
  EXPECT_FALSE(link(1).ReadLent(key->token + 1, 1, nothing));
  EXPECT_FALSE(link(1).ReadLent(0, 1, nothing));
  link(0).Withdraw(*key);
  EXPECT_FALSE(link(1).ReadLent(key->token, 1, nothing));
  EXPECT_EQ(link(0).counters().bytes_sent, 0u);
}

TEST_P(TransportTest, WhatIsLentForWritingIsWritten) {
  const std::vector<std::byte> content = PatternBytes(1000, 1);
  const Memory memory = nodes_->Landing(0, content);
  Receive(1);
  link(0).Send(PatternBytes(8, 1));
  ASSERT_TRUE(received_all_.Wait().ok());
  const std::span<std::byte> lent(memory.data() + 100, 500);
  const std::optional<MemoryKey> key = link(0).LendForWriting(lent);
  ASSERT_EQ(key.has_value(), GetParam().transport.lends);
  const std::vector<std::byte> payload = PatternBytes(200, 2);
  if (!key.has_value()) {
    EXPECT_FALSE(link(1).WriteLent(1, 0, payload));
    return;
  }
  EXPECT_TRUE(link(1).WriteLent(key->token, 300, payload));
  EXPECT_TRUE(link(1).ReadLent(key->token, 500, [&](std::span<const std::byte> read) {
    EXPECT_TRUE(std::ranges::equal(read.subspan(300), payload));
    EXPECT_TRUE(std::ranges::equal(read.first(300), std::span(content).subspan(100, 300)));
  }));
  EXPECT_FALSE(link(1).WriteLent(key->token, 301, payload));
  EXPECT_FALSE(link(1).WriteLent(key->token, ~uint64_t{0} - 10, payload));
  EXPECT_FALSE(link(1).WriteLent(key->token + 1, 0, payload));
  const std::optional<MemoryKey> read_only = link(0).Lend(lent);
  ASSERT_TRUE(read_only.has_value());
  EXPECT_FALSE(link(1).WriteLent(read_only->token, 0, payload));
  link(0).Withdraw(*key);
  EXPECT_FALSE(link(1).WriteLent(key->token, 0, payload));
  // Who has closed its end is not waited for any more.
  const std::optional<MemoryKey> again = link(0).LendForWriting(lent);
  ASSERT_TRUE(again.has_value() && link(1).WriteLent(again->token, 0, payload));
  link(1).Close(absl::CancelledError("the test"));
  EXPECT_FALSE(link(1).WriteLent(again->token, 0, payload));
  EXPECT_FALSE(link(1).ReadLent(again->token, 1, [](std::span<const std::byte>) {}));
}

// It is not to be written.
TEST_P(TransportTest, AWriteToWhatIsLentClosesTheLink) {
  const Memory memory = nodes_->Landing(1, PatternBytes(1000, 1));
  const std::optional<MemoryKey> key =
      link(1).Lend(std::span<const std::byte>(memory.data(), memory.size()));
  ASSERT_EQ(key.has_value(), GetParam().transport.lends);
  if (!key.has_value()) return;
  const std::vector<std::byte> payload = PatternBytes(10, 2);
  Outcome done(*environment_);
  Receive(1);
  WriteTo(link(0), payload, *key, 0, PatternBytes(8, 1), done);
  EXPECT_THAT(std::string(WaitClosed().second.message()), HasSubstr("names none of the 0 regions"));
  EXPECT_TRUE(std::ranges::equal(std::span(memory.data(), memory.size()), PatternBytes(1000, 1)));
}

// Each frame finds the payload that went before it, and a Send in between keeps its place.
TEST_P(TransportTest, PayloadIsThereWhenItsFrameComes) {
  constexpr int kWrites = 40;
  constexpr size_t kSlot = 1000;
  const Memory memory = nodes_->Landing(1, std::vector<std::byte>(kSlot * kWrites));
  const std::span<std::byte> landing(memory.data(), memory.size());
  auto key = link(1).Expose(landing);
  ASSERT_TRUE(key.ok()) << key.status();
  EXPECT_EQ(key->bytes, landing.size());
  Receive(2 * kWrites);
  on_frame_ = [&](std::span<const std::byte> frame) {
    const size_t i = frames_.size() / 2;
    EXPECT_EQ(static_cast<size_t>(frame[0]), i);
    if (frames_.size() % 2 == 1) return;
    const std::vector<std::byte> want = PatternBytes(i % 5 == 4 ? 0 : kSlot - i, i);
    EXPECT_TRUE(std::equal(want.begin(), want.end(), landing.begin() + i * kSlot)) << i;
  };
  std::vector<std::vector<std::byte>> sources;
  std::vector<std::unique_ptr<Outcome>> done;
  for (int i = 0; i < kWrites; ++i) {
    sources.push_back(PatternBytes(i % 5 == 4 ? 0 : kSlot - i, i));
    done.push_back(std::make_unique<Outcome>(*environment_));
    const std::byte frame[] = {static_cast<std::byte>(i), static_cast<std::byte>(1)};
    WriteTo(link(0), sources.back(), *key, i * kSlot, frame, *done.back());
    link(0).Send(frame);
  }
  ASSERT_TRUE(received_all_.Wait().ok());
  uint64_t bytes = 0;
  for (int i = 0; i < kWrites; ++i) {
    EXPECT_TRUE(done[i]->Wait().ok());
    EXPECT_EQ(done[i]->times(), 1);
    bytes += sources[i].size();
  }
  EXPECT_EQ(link(0).counters().bytes_sent, bytes);
  EXPECT_EQ(link(1).counters().bytes_received, bytes);
}

TEST_P(TransportTest, BothDirectionsAtOnce) {
  constexpr int kFrames = 200;
  Receive(kFrames);
  Outcome back(*environment_);
  int answers = 0;
  link(0).SetHandler([&](std::span<const std::byte>) {
    if (++answers == kFrames) back.Take(absl::OkStatus());
  });
  on_frame_ = [&](std::span<const std::byte> frame) { link(1).Send(frame); };
  for (int i = 0; i < kFrames; ++i) link(0).Send(PatternBytes(16, i));
  EXPECT_TRUE(received_all_.Wait().ok());
  EXPECT_TRUE(back.Wait().ok());
}

struct WrongWrite {
  const char* name;
  uint64_t token;
  uint64_t offset;
  size_t bytes;
  const char* message;
};

// Wrong key, offset or size: both ends close with a message that has both values, and nothing
// outside the region is touched.
TEST_P(TransportTest, WrongWritesCloseTheLink) {
  const std::vector<std::byte> before = PatternBytes(300, 1);
  const auto key = link(1).Expose({});
  ASSERT_TRUE(key.ok());
  const WrongWrite wrongs[] = {
      {"key", key->token + 5, 0, 10, "key"},
      {"offset", key->token, 101, 0, "offset 101"},
      {"size", key->token, 1, 100, "100 bytes at offset 1"},
      {"overflow", key->token, ~uint64_t{0} - 4, 10, "10 bytes at offset"},
  };
  for (const WrongWrite& wrong : wrongs) {
    SCOPED_TRACE(wrong.name);
    LinkedNodes nodes(*environment_, GetParam().transport, 2);
    Outcome closed0(*environment_), closed1(*environment_), done(*environment_);
    Link& from = nodes.link(0, 1);
    Link& to = nodes.link(1, 0);
    from.OnClosed(closed0.callback());
    to.OnClosed(closed1.callback());
    to.SetHandler([](std::span<const std::byte>) { ADD_FAILURE() << "a wrong write was told"; });
    const Memory memory = nodes.Landing(1, before);
    const auto own = to.Expose({memory.data() + 100, 100});
    ASSERT_TRUE(own.ok());
    MemoryKey used = *own;
    used.token = used.token - key->token + wrong.token;
    const std::vector<std::byte> source = PatternBytes(wrong.bytes, 2);
    WriteTo(from, source, used, wrong.offset, PatternBytes(4, 0), done);
    const absl::Status here = closed1.Wait(), there = closed0.Wait();
    EXPECT_THAT(std::string(here.message()), HasSubstr("wrong frame from node 0"));
    EXPECT_THAT(std::string(here.message()), HasSubstr(wrong.message));
    EXPECT_FALSE(there.ok());
    done.Wait().IgnoreError();  // a transport may be done before the peer has checked
    EXPECT_EQ(done.times(), 1);
    EXPECT_TRUE(std::equal(before.begin(), before.end(), memory.data()));
  }
}

// The peer may not know of it yet: what it writes goes nowhere, its frame comes, and the link stays
// open. Over rdma it is the peer's device that hears no, and its queue pair fails.
TEST_P(TransportTest, AWithdrawnRegionIsNotWritten) {
  const std::vector<std::byte> before = PatternBytes(100, 1);
  const Memory memory = nodes_->Landing(1, before);
  const auto key = link(1).Expose({memory.data(), memory.size()});
  ASSERT_TRUE(key.ok());
  link(1).Withdraw(*key);
  Receive(2);
  Outcome done(*environment_);
  const std::vector<std::byte> source = PatternBytes(100, 2);
  WriteTo(link(0), source, *key, 0, PatternBytes(4, 0), done);
  link(0).Send(PatternBytes(4, 1));
  if (GetParam().transport.name.starts_with("rdma")) {
    EXPECT_THAT(std::string(WaitClosed().second.message()),
                HasSubstr("which node 1 had withdrawn"));
    done.Wait().IgnoreError();
    EXPECT_TRUE(frames_.empty());
  } else {
    EXPECT_TRUE(received_all_.Wait().ok());
    EXPECT_TRUE(done.Wait().ok());
    EXPECT_EQ(frames_,
              (std::vector<std::vector<std::byte>>{PatternBytes(4, 0), PatternBytes(4, 1)}));
    EXPECT_EQ(closed_[1]->times(), 0);
  }
  EXPECT_TRUE(std::equal(before.begin(), before.end(), memory.data()));
}

TEST_P(TransportTest, CloseTellsBothEndsOnceAndAnswersEveryWrite) {
  constexpr int kWrites = 50;
  const Memory landing = nodes_->Landing(1, std::vector<std::byte>(100));
  const auto key = link(1).Expose({landing.data(), landing.size()});
  ASSERT_TRUE(key.ok());
  Receive(~size_t{0});
  const std::vector<std::byte> source = PatternBytes(100, 2);
  std::vector<std::unique_ptr<Outcome>> done;
  for (int i = 0; i < 2 * kWrites; ++i) {
    if (i == kWrites) link(0).Close(absl::AbortedError("the test said so"));
    done.push_back(std::make_unique<Outcome>(*environment_));
    WriteTo(link(0), source, *key, 0, PatternBytes(4, 0), *done.back());
  }
  link(0).Close(absl::InternalError("too late"));
  for (int i = 0; i < 2 * kWrites; ++i) {
    const absl::Status status = done[i]->Wait();
    if (i >= kWrites) {
      EXPECT_FALSE(status.ok());
    }
  }
  const auto [here, there] = WaitClosed();
  EXPECT_EQ(here, absl::AbortedError("the test said so"));
  EXPECT_THAT(std::string(there.message()), HasSubstr("node 0"));
  link(0).Send(PatternBytes(4, 0));
  link(1).Send(PatternBytes(4, 0));
  RunOn(*environment_, nodes_->reactor(0), [] {});
  RunOn(*environment_, nodes_->reactor(1), [] {});
  for (const auto& outcome : done) EXPECT_EQ(outcome->times(), 1);
  for (const auto& outcome : closed_) EXPECT_EQ(outcome->times(), 1);
}

TEST_P(TransportTest, DestroyingOneEndClosesTheOther) {
  Receive(~size_t{0});
  link(0).Send(PatternBytes(4, 0));
  nodes_->DestroyLink(0, 1);
  EXPECT_THAT(std::string(closed_[1]->Wait().message()), HasSubstr("node 0"));
  EXPECT_EQ(closed_[0]->times(), 0) << "the owner of a destroyed link is not called";
}

TEST_P(TransportTest, TheClosedCallbackMayBeSetLate) {
  LinkedNodes nodes(*environment_, GetParam().transport, 2);
  Outcome first(*environment_), second(*environment_);
  nodes.link(0, 1).OnClosed(first.callback());
  nodes.link(0, 1).Close(absl::AbortedError("early"));
  EXPECT_EQ(first.Wait(), absl::AbortedError("early"));
  nodes.link(1, 0).OnClosed(second.callback());
  EXPECT_THAT(std::string(second.Wait().message()), HasSubstr("node 0"));
}

TEST_P(TransportTest, APeerThatDoesNotComeIsNamed) {
  auto transports = GetParam().transport.make(*environment_, 2);
  auto reactor = environment_->StartReactor("alone");
  std::string addresses[2];
  for (int node : {0, 1}) addresses[node] = *transports->transport(node).Open();
  Outcome outcome(*environment_);
  transports->transport(0).Connect(
      {.peer = 1,
       .peer_address = addresses[1],
       .reactor = reactor.get(),
       .timeout = 50 * kMillisecond},
      [&](absl::StatusOr<std::unique_ptr<Link>> link) { outcome.Take(link.status()); });
  const absl::Status status = outcome.Wait();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), HasSubstr("node 1"));
  EXPECT_EQ(outcome.times(), 1);
}

INSTANTIATE_TEST_SUITE_P(Transports, TransportTest, ::testing::ValuesIn(Cases()),
                         [](const auto& info) {
                           return info.param.transport.name +
                                  (info.param.seed == 0 ? std::string("Real")
                                                        : "Seed" + std::to_string(info.param.seed));
                         });

TEST(MemoryKeyTest, KeepsItsValueOnTheWire) {
  const MemoryKey key{.token = 0x0102030405060708, .base = ~uint64_t{0}, .bytes = 77};
  std::vector<std::byte> bytes(1 + kMemoryKeyBytes);
  PutMemoryKey(bytes, 1, key);
  EXPECT_EQ(GetMemoryKey(bytes, 1), key);
  EXPECT_EQ(bytes[1], std::byte{8}) << "little-endian";
}

}  // namespace
}  // namespace braid
