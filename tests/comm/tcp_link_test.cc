// A tcp link against a peer that is played by hand: packets that are wrong, cut up or half there,
// and the ways in which a connection ends.
#include "comm/tcp/tcp_link.h"

#include <algorithm>
#include <map>
#include <random>

#include "comm/tcp/tcp_transport.h"
#include "glog/logging.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/comm/comm_cluster.h"
#include "tests/comm/raw_peer.h"

namespace braid {
namespace {

using ::testing::HasSubstr;
using Kind = TcpHeader::Kind;

// Node 0 has the link; node 1 is played.
class TcpLinkTest : public ::testing::Test {
 protected:
  TcpLinkTest()
      : environment_(MakeRealEnvironment()),
        reactor_(environment_->StartReactor("tcp")),
        transport_(MakeTcpTransport({.reactor = reactor_.get(), .host = "127.0.0.1"})) {
    auto address = transport_->Open();
    CHECK(address.ok()) << address.status();
    address_ = *NodeAddress::Parse(*address);
    Join();
  }

  ~TcpLinkTest() override {
    Destroy();
    transport_.reset();
  }

  // A new connection and a new link.
  void Join() {
    Destroy();
    closed_ = std::make_unique<Outcome>(*environment_);
    Outcome joined(*environment_);
    NodeAddress played;
    played.candidates = address_.candidates;  // never dialed: node 1 dials
    transport_->Connect({.peer = 1, .peer_address = played.ToString(), .reactor = reactor_.get()},
                        [&](absl::StatusOr<std::unique_ptr<Link>> link) {
                          CHECK(link.ok()) << link.status();
                          link_ = *std::move(link);
                          link_->OnClosed(closed_->callback());
                          joined.Take(absl::OkStatus());
                        });
    peer_ = std::make_unique<RawPeer>(RawPeer::Dial(address_.candidates[0]));
    peer_->Say({.from = 1, .to = 0, .cookie = address_.cookie});
    CHECK_EQ(peer_->Hear(2 * kNodeGreetingBytes).size(), 2 * kNodeGreetingBytes);
    peer_->Say(
        {.stage = NodeGreeting::Stage::kConfirmed, .from = 1, .to = 0, .cookie = address_.cookie});
    CHECK(joined.Wait().ok());
  }

  void Destroy() {
    if (link_) RunOn(*environment_, *reactor_, [&] { link_.reset(); });
  }

  void Receive() {
    link_->SetHandler([this](std::span<const std::byte> frame) {
      MutexLock lock(mutex_);
      frames_.emplace_back(frame.begin(), frame.end());
    });
  }
  // What has come; waits until there are `count`.
  std::vector<std::vector<std::byte>> Frames(size_t count) {
    const Nanoseconds end = environment_->Now() + kTestTimeout;
    while (true) {
      {
        MutexLock lock(mutex_);
        if (frames_.size() >= count || environment_->Now() > end) return frames_;
      }
      RunOn(*environment_, *reactor_, [] {});
    }
  }

  std::unique_ptr<Environment> environment_;
  std::unique_ptr<Reactor> reactor_;
  std::unique_ptr<Transport> transport_;
  NodeAddress address_;
  std::unique_ptr<Outcome> closed_;
  std::unique_ptr<Link> link_;
  std::unique_ptr<RawPeer> peer_;
  Mutex mutex_;
  std::vector<std::vector<std::byte>> frames_;
};

struct WrongPacket {
  const char* name;
  std::vector<std::byte> bytes;
  const char* message;
};

// Both ends learn what was wrong, and memory stays as it was, although payload came along.
TEST_F(TcpLinkTest, WrongPacketsCloseTheLink) {
  std::vector<std::byte> memory = PatternBytes(300, 1);
  const std::vector<std::byte> before = memory;
  const std::vector<std::byte> frame = PatternBytes(8, 2), payload = PatternBytes(100, 3);
  const TcpHeader write{.kind = Kind::kWrite, .token = 1};
  const auto changed = [&](size_t at, int value) {
    std::vector<std::byte> packet = RawPacket(write, frame, payload);
    packet[at] = static_cast<std::byte>(value);
    return packet;
  };
  // A field of the header with another value and a checksum that fits.
  const auto resealed = [&](const std::function<void(TcpHeader&)>& change) {
    std::vector<std::byte> packet = RawPacket(write, frame, payload);
    TcpHeader header = write;
    header.frame_bytes = frame.size();
    header.payload_bytes = payload.size();
    change(header);
    SealTcpPacket(header, std::span(packet).first(kTcpHeaderBytes + frame.size()));
    return packet;
  };
  const WrongPacket wrongs[] = {
      {"garbage", std::vector<std::byte>(200, std::byte{0x33}), "magic 33333333"},
      {"magic", changed(4, 0), "magic"},
      {"version", changed(43, 9), "version 9, must be 1"},
      {"kind 0", changed(42, 0), "kind 0"},
      {"kind 4", changed(42, 4), "kind 4"},
      {"checksum", changed(0, 1), "checksum"},
      {"sequence without its checksum", changed(8, 1), "checksum"},
      {"token without its checksum", changed(16, 2), "checksum"},
      {"frame without its checksum", changed(kTcpHeaderBytes + 7, 0xee), "checksum"},
      {"sequence", resealed([](TcpHeader& h) { h.sequence = 1; }), "sequence number 1, must be 0"},
      {"no frame", resealed([](TcpHeader& h) { h.frame_bytes = 0; }), "frame has 0 bytes"},
      {"long frame", resealed([](TcpHeader& h) { h.frame_bytes = 65; }), "frame has 65 bytes"},
      {"longest frame", resealed([](TcpHeader& h) { h.frame_bytes = 65535; }), "65535 bytes"},
      {"key", resealed([](TcpHeader& h) { h.token = 2; }),
       "key 2 names none of the 1 regions that node 0 exposes"},
      {"key 0", resealed([](TcpHeader& h) { h.token = 0; }), "key 0"},
      {"offset", resealed([](TcpHeader& h) { h.offset = 1; }), "100 bytes at offset 1"},
      {"far offset", resealed([](TcpHeader& h) { h.offset = ~uint64_t{0}; }), "at offset"},
      {"size", resealed([](TcpHeader& h) { h.payload_bytes = 101; }), "101 bytes at offset 0"},
      {"huge size", resealed([](TcpHeader& h) { h.payload_bytes = ~uint64_t{0}; }), "bytes at"},
      {"payload of a frame", resealed([](TcpHeader& h) { h.kind = Kind::kFrame; }), "no write"},
      {"payload of a close", resealed([](TcpHeader& h) { h.kind = Kind::kClose; }), "no write"},
      {"long reason",
       resealed([](TcpHeader& h) { h = {.kind = Kind::kClose, .frame_bytes = kMaxCloseText + 1}; }),
       "1025 bytes, must be 0 to 1024"},
  };
  for (const WrongPacket& wrong : wrongs) {
    SCOPED_TRACE(wrong.name);
    Join();
    const auto key = link_->Expose(std::span(memory).subspan(100, 100));
    ASSERT_TRUE(key.ok());
    ASSERT_EQ(key->token, write.token);
    Receive();
    peer_->Say(wrong.bytes);
    const absl::Status status = closed_->Wait();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("wrong frame from node 1: "));
    EXPECT_THAT(std::string(status.message()), HasSubstr(wrong.message));
    EXPECT_EQ(peer_->HearFarewell(), status.message());
    EXPECT_EQ(memory, before);
    EXPECT_TRUE(Frames(0).empty());
    EXPECT_EQ(closed_->times(), 1);
  }
}

// The same packets in pieces of every size give the same frames.
TEST_F(TcpLinkTest, PacketsMayComeInPieces) {
  std::vector<std::byte> memory(5000);
  std::vector<std::byte> stream;
  std::vector<std::vector<std::byte>> want;
  for (uint64_t i = 0; i < 12; ++i) {
    want.push_back(PatternBytes(1 + i * 5, i));
    const std::vector<std::byte> packet =
        i % 3 == 1 ? RawPacket({.kind = Kind::kWrite, .sequence = i, .token = 1, .offset = i * 200},
                               want.back(), PatternBytes(i * 17, i))
                   : RawPacket({.sequence = i}, want.back());
    stream.insert(stream.end(), packet.begin(), packet.end());
  }
  for (const size_t piece : {1, 2, 7, 43, 44, 45, 200, 100000}) {
    SCOPED_TRACE(piece);
    Join();
    std::fill(memory.begin(), memory.end(), std::byte{0});
    ASSERT_EQ(link_->Expose(memory)->token, 1u);
    frames_.clear();
    Receive();
    for (size_t at = 0; at < stream.size(); at += piece) {
      peer_->Say(std::span(stream).subspan(at, std::min(piece, stream.size() - at)));
    }
    EXPECT_EQ(Frames(want.size()), want);
    for (int i = 1; i < 12; i += 3) {
      const std::vector<std::byte> payload = PatternBytes(i * 17, i);
      EXPECT_TRUE(std::equal(payload.begin(), payload.end(), memory.begin() + i * 200)) << i;
    }
  }
}

TEST_F(TcpLinkTest, TheEndOfTheConnectionIsToldInWords) {
  const std::vector<std::byte> packet = RawPacket({}, PatternBytes(8, 0));
  peer_->Leave();
  EXPECT_EQ(closed_->Wait(),
            absl::UnavailableError("link node 0 <-> node 1: connection closed by the peer"));
  Join();
  peer_->Say(std::span(packet).first(kTcpHeaderBytes / 2));
  peer_->Leave();
  EXPECT_EQ(closed_->Wait(), absl::UnavailableError("link node 0 <-> node 1: connection closed by "
                                                    "the peer in the middle of a frame"));
  Join();
  peer_->Say(std::span(packet).first(packet.size() - 1));
  peer_->LeaveWithReset();
  EXPECT_EQ(closed_->Wait(),
            absl::UnavailableError("link node 0 <-> node 1: Connection reset by peer"));
}

// Seen first by a write, the end has the same words; what the peer said before it still counts.
TEST_F(TcpLinkTest, AWriteThatFailsFindsTheReason) {
  const std::string reason = "the peer had enough";
  Receive();
  peer_->Say(RawPacket({}, PatternBytes(8, 0)));
  peer_->Say(RawPacket({.kind = Kind::kClose, .sequence = 1},
                       std::as_bytes(std::span(reason.data(), reason.size()))));
  link_->Send(PatternBytes(4, 0));  // unread when the peer leaves, which therefore resets
  peer_->Leave();
  for (int i = 0; i < 100; ++i) link_->Send(PatternBytes(4, 0));
  EXPECT_EQ(closed_->Wait(),
            absl::UnavailableError("link node 0 <-> node 1 was closed by node 1: " + reason));
  EXPECT_EQ(Frames(1).size(), 1u);
}

TEST_F(TcpLinkTest, AHalfLandedPayloadStopsAtWithdraw) {
  std::vector<std::byte> memory(1000);
  const std::vector<std::byte> payload = PatternBytes(1000, 5), frame = PatternBytes(8, 1);
  const auto key = link_->Expose(memory);
  ASSERT_TRUE(key.ok());
  Receive();
  const std::vector<std::byte> packet =
      RawPacket({.kind = Kind::kWrite, .token = key->token}, frame, payload);
  const std::span<const std::byte> bytes(packet);
  peer_->Say(bytes.first(packet.size() - 300));
  const auto has_landed = [&] {
    bool has = false;
    RunOn(*environment_, *reactor_, [&] { has = memory[699] == payload[699]; });
    return has;
  };
  while (!has_landed()) {
  }
  link_->Withdraw(*key);
  const std::vector<std::byte> before = memory;
  peer_->Say(bytes.last(300));
  peer_->Say(RawPacket({.sequence = 1}, frame));
  EXPECT_EQ(Frames(2).size(), 2u) << "the stream goes on after what was thrown away";
  EXPECT_EQ(memory, before);
  EXPECT_EQ(closed_->times(), 0);
}

// Peers that do not read: the writes are answered, the owner is told, nothing hangs.
TEST_F(TcpLinkTest, ClosingDoesNotWaitForAPeerThatDoesNotRead) {
  for (const bool destroys : {false, true}) {
    SCOPED_TRACE(destroys);
    Join();
    const std::vector<std::byte> payload(64 << 20);
    std::vector<std::unique_ptr<Outcome>> done;
    for (int i = 0; i < 3; ++i) {
      done.push_back(std::make_unique<Outcome>(*environment_));
      WriteTo(*link_, payload, {.token = 1}, 0, PatternBytes(4, 0), *done.back());
    }
    RunOn(*environment_, *reactor_, [] {});
    const Nanoseconds start = environment_->Now();
    if (destroys) {
      Destroy();
    } else {
      link_->Close(absl::AbortedError("enough"));
      EXPECT_EQ(closed_->Wait(), absl::AbortedError("enough"));
    }
    for (const auto& outcome : done) {
      EXPECT_FALSE(outcome->Wait().ok());
      EXPECT_EQ(outcome->times(), 1);
    }
    EXPECT_LT(environment_->Now() - start, 5 * kSecond);
    EXPECT_EQ(closed_->times(), destroys ? 0 : 1);
  }
}

// Its machine confirms the full window, so the pair is not broken, however long it takes.
TEST_F(TcpLinkTest, APeerThatDoesNotReadForLongIsNotLost) {
  const std::vector<std::byte> payload(64 << 20);
  Outcome done(*environment_);
  WriteTo(*link_, payload, {.token = 1}, 0, PatternBytes(4, 0), done);
  const std::unique_ptr<Event> never = environment_->MakeEvent();
  EXPECT_FALSE(environment_->Await(*never, (kTcpSilenceSeconds + 3) * kSecond).ok());
  EXPECT_EQ(closed_->times(), 0);
  EXPECT_EQ(peer_->Hear(kTcpHeaderBytes + 4 + payload.size()).size(),
            kTcpHeaderBytes + 4 + payload.size());
  EXPECT_TRUE(done.Wait().ok());
  EXPECT_EQ(closed_->times(), 0);
}

TEST_F(TcpLinkTest, AWriteThatTheKernelTakesWholeIsNotAnswered) {
  const std::vector<std::byte> payload = PatternBytes(20000, 1), frame = PatternBytes(4, 0);
  Outcome small(*environment_);
  EXPECT_TRUE(link_->Write(payload, {.token = 1}, 0, frame, small.callback()));
  const std::vector<std::byte> much(64 << 20);
  Outcome large(*environment_), behind(*environment_);
  EXPECT_FALSE(link_->Write(much, {.token = 1}, 0, frame, large.callback()));
  EXPECT_FALSE(link_->Write(payload, {.token = 1}, 0, frame, behind.callback()));
  const size_t head = kTcpHeaderBytes + frame.size();
  const size_t all = 3 * head + 2 * payload.size() + much.size();
  EXPECT_EQ(peer_->Hear(all).size(), all);
  EXPECT_TRUE(large.Wait().ok());
  EXPECT_TRUE(behind.Wait().ok());
  EXPECT_EQ(small.times(), 0);
}

// The rest of a payload that is on its way goes out, so that the reason can follow it.
TEST_F(TcpLinkTest, AReasonFollowsAPayloadThatWasBegun) {
  const std::vector<std::byte> payload(16 << 20);
  Outcome done(*environment_);
  WriteTo(*link_, payload, {.token = 1}, 0, PatternBytes(4, 0), done);
  Outcome not_begun(*environment_);
  WriteTo(*link_, payload, {.token = 1}, 0, PatternBytes(4, 0), not_begun);
  RunOn(*environment_, *reactor_, [] {});
  link_->Close(absl::AbortedError("enough"));
  EXPECT_EQ(peer_->Hear(kTcpHeaderBytes + 4 + payload.size()).size(),
            kTcpHeaderBytes + 4 + payload.size());
  EXPECT_EQ(peer_->HearFarewell(), "enough");
  EXPECT_EQ(closed_->Wait(), absl::AbortedError("enough"));
  EXPECT_TRUE(done.Wait().ok());
  EXPECT_EQ(not_begun.Wait(), absl::AbortedError("enough"));
}

TEST_F(TcpLinkTest, ALinkMayGoInItsOwnHandler) {
  Outcome done(*environment_);
  link_->SetHandler([&](std::span<const std::byte>) {
    link_.reset();
    done.Take(absl::OkStatus());
  });
  for (uint64_t i = 0; i < 3; ++i) peer_->Say(RawPacket({.sequence = i}, PatternBytes(8, 0)));
  EXPECT_TRUE(done.Wait().ok());
  EXPECT_EQ(done.times(), 1);
  EXPECT_EQ(peer_->HearFarewell(), "node 0 gave up the link to node 1");
  EXPECT_EQ(closed_->times(), 0);
  Join();
  link_->SetHandler(
      [this](std::span<const std::byte>) { link_->Close(absl::AbortedError("in the handler")); });
  for (uint64_t i = 0; i < 3; ++i) peer_->Say(RawPacket({.sequence = i}, PatternBytes(8, 0)));
  EXPECT_EQ(closed_->Wait(), absl::AbortedError("in the handler"));
  EXPECT_EQ(link_->counters().frames_received, 1u);
  EXPECT_EQ(peer_->HearFarewell(), "in the handler");
}

// Frames before the handler wait here, and then with the peer: memory for them is bounded.
TEST_F(TcpLinkTest, ManyFramesWaitForTheHandler) {
  constexpr uint64_t kFrames = 30000;
  std::vector<std::byte> stream;
  for (uint64_t i = 0; i < kFrames; ++i) {
    const std::vector<std::byte> packet = RawPacket({.sequence = i}, PatternBytes(64, i));
    stream.insert(stream.end(), packet.begin(), packet.end());
  }
  peer_->Say(std::span(stream).first(stream.size() / 2));
  for (int i = 0; i < 100; ++i) RunOn(*environment_, *reactor_, [] {});
  Receive();
  peer_->Say(std::span(stream).last(stream.size() - stream.size() / 2));
  const auto frames = Frames(kFrames);
  ASSERT_EQ(frames.size(), kFrames);
  for (uint64_t i = 0; i < kFrames; ++i) ASSERT_EQ(frames[i], PatternBytes(64, i));
}

// Many threads on one link: each one's frames keep their order, every write lands and is answered.
TEST_F(TcpLinkTest, ThreadsShareALink) {
  constexpr int kThreads = 4, kEach = 200;
  std::vector<std::unique_ptr<Reactor>> threads;
  std::vector<std::unique_ptr<Outcome>> done;
  for (int i = 0; i < kThreads; ++i) threads.push_back(environment_->StartReactor("sender"));
  for (int i = 0; i < kThreads * kEach; ++i) {
    done.push_back(std::make_unique<Outcome>(*environment_));
  }
  const std::vector<std::byte> payload = PatternBytes(20000, 1);
  for (int thread = 0; thread < kThreads; ++thread) {
    threads[thread]->Post([&, thread] {
      for (int i = 0; i < kEach; ++i) {
        const std::byte frame[] = {static_cast<std::byte>(thread), static_cast<std::byte>(i)};
        WriteTo(*link_, payload, {.token = 1}, 0, frame, *done[thread * kEach + i]);
        link_->Send(frame);
      }
    });
  }
  int next[kThreads] = {};
  for (uint64_t i = 0; i < 2 * kThreads * kEach; ++i) {
    const std::vector<std::byte> head = peer_->Hear(kTcpHeaderBytes + 2);
    ASSERT_EQ(head.size(), kTcpHeaderBytes + 2);
    ASSERT_TRUE(CheckTcpChecksum(head).ok());
    const auto header = ReadTcpHeader(std::span(head).first(kTcpHeaderBytes));
    ASSERT_TRUE(header.ok()) << header.status();
    EXPECT_EQ(header->sequence, i);
    const int thread = static_cast<int>(head[kTcpHeaderBytes]);
    ASSERT_LT(thread, kThreads);
    EXPECT_EQ(static_cast<int>(head[kTcpHeaderBytes + 1]), next[thread] / 2);
    EXPECT_EQ(header->kind, next[thread] % 2 == 0 ? Kind::kWrite : Kind::kFrame);
    ++next[thread];
    if (header->kind == Kind::kWrite) {
      ASSERT_EQ(peer_->Hear(header->payload_bytes), payload);
    }
  }
  for (const auto& outcome : done) {
    EXPECT_TRUE(outcome->Wait().ok());
    EXPECT_EQ(outcome->times(), 1);
  }
}

// A frame that may wait goes in front of the next one, or when the reactor has nothing to do.
TEST_F(TcpLinkTest, WhatIsSentLater) {
  const auto frame = [](int value) { return std::vector<std::byte>(1, std::byte(value)); };
  uint64_t sequence = 0;
  const auto expect = [&](int value) {
    const std::vector<std::byte> packet = peer_->Hear(kTcpHeaderBytes + 1);
    EXPECT_EQ(packet, RawPacket({.kind = Kind::kFrame, .sequence = sequence++}, frame(value)));
  };
  RunOn(*environment_, *reactor_, [&] {
    link_->SendLater(frame(1));
    link_->SendLater(frame(2));
    EXPECT_TRUE(peer_->HearsNothing());
    link_->Send(frame(3));
    for (const int value : {1, 2, 3}) expect(value);
  });
  RunOn(*environment_, *reactor_, [&] { link_->SendLater(frame(4)); });
  expect(4);
  link_->SendLater(frame(5));  // by another thread: at once
  expect(5);
  EXPECT_EQ(link_->counters().frames_sent, 5u);
  RunOn(*environment_, *reactor_, [&] {
    link_->SendLater(frame(6));
    link_.reset();
  });
  EXPECT_THAT(peer_->HearFarewell(), HasSubstr("node 0 gave up the link to node 1"));
}

TEST_F(TcpLinkTest, WhatIsSentLaterAmongWritesOfOtherThreads) {
  constexpr int kEach = 300;
  const std::unique_ptr<Reactor> thread = environment_->StartReactor("sender");
  const std::vector<std::byte> payload = PatternBytes(20000, 1);
  std::vector<std::unique_ptr<Outcome>> done;
  for (int i = 0; i < kEach; ++i) done.push_back(std::make_unique<Outcome>(*environment_));
  const auto frame_of = [](Kind kind, int number) {
    return std::vector<std::byte>{std::byte(kind), std::byte(number % 256)};
  };
  thread->Post([&] {
    for (int i = 0; i < kEach; ++i) {
      WriteTo(*link_, payload, {.token = 1}, 0, frame_of(Kind::kWrite, i), *done[i]);
    }
  });
  for (int i = 0; i < kEach; ++i) {
    reactor_->Post([&, i] { link_->SendLater(frame_of(Kind::kFrame, i)); });
  }
  std::map<Kind, int> next;
  for (uint64_t i = 0; i < 2 * kEach; ++i) {
    const std::vector<std::byte> head = peer_->Hear(kTcpHeaderBytes + 2);
    ASSERT_EQ(head.size(), kTcpHeaderBytes + 2);
    const auto header = ReadTcpHeader(std::span(head).first(kTcpHeaderBytes));
    ASSERT_TRUE(header.ok()) << header.status();
    EXPECT_EQ(header->sequence, i);
    const std::vector<std::byte> frame(head.begin() + kTcpHeaderBytes, head.end());
    EXPECT_EQ(frame, frame_of(header->kind, next[header->kind]++));
    if (header->kind == Kind::kWrite) {
      ASSERT_EQ(peer_->Hear(header->payload_bytes), payload);
    }
  }
  for (const auto& outcome : done) EXPECT_TRUE(outcome->Wait().ok());
}

// Streams with a few bytes changed, cut or repeated: the link closes or goes on, and memory outside
// the region stays as it was.
TEST_F(TcpLinkTest, RandomDamageDoesNoHarm) {
  std::mt19937 random(7);
  const auto below = [&](size_t n) { return random() % n; };
  int closed = 0;
  for (int round = 0; round < 300; ++round) {
    SCOPED_TRACE(round);
    Join();
    std::vector<std::byte> memory = PatternBytes(600, round);
    const std::vector<std::byte> before = memory;
    ASSERT_TRUE(link_->Expose(std::span(memory).subspan(200, 200)).ok());
    Receive();
    std::vector<std::byte> stream;
    for (uint64_t i = 0; i < 10; ++i) {
      const std::vector<std::byte> packet =
          below(2) == 0 ? RawPacket({.sequence = i}, PatternBytes(1 + below(64), i))
                        : RawPacket({.kind = Kind::kWrite, .sequence = i, .token = 1},
                                    PatternBytes(1 + below(64), i), PatternBytes(below(200), i));
      stream.insert(stream.end(), packet.begin(), packet.end());
    }
    for (size_t i = 0; i <= below(3); ++i) {
      const size_t at = below(stream.size() - 1), bytes = 1 + below(stream.size() - at - 1);
      switch (below(3)) {
        case 0:
          stream[at] ^= static_cast<std::byte>(1 + below(255));
          break;
        case 1:
          stream.erase(stream.begin() + at, stream.begin() + at + bytes % 50);
          break;
        default: {
          const std::vector<std::byte> part(stream.begin() + at, stream.begin() + at + bytes);
          stream.insert(stream.begin() + below(stream.size()), part.begin(), part.end());
        }
      }
    }
    peer_->Say(stream);
    peer_->Leave();
    const absl::Status status = closed_->Wait();
    EXPECT_FALSE(status.ok());
    closed += absl::IsInvalidArgument(status) ? 1 : 0;
    EXPECT_TRUE(std::equal(memory.begin(), memory.begin() + 200, before.begin()));
    EXPECT_TRUE(std::equal(memory.end() - 200, memory.end(), before.end() - 200));
  }
  EXPECT_GT(closed, 100) << "the damage was hardly ever seen";
}

}  // namespace
}  // namespace braid
