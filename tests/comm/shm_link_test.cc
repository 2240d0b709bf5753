// What a shm link makes of a peer that ends, stands still or does not keep to the rules: the other
// end of its socket is the test's.
#include "comm/shm/shm_link.h"

#include <fcntl.h>
#include <linux/sockios.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/network/network.h"
#include "comm/shm/shm_bell.h"
#include "comm/shm/shm_landing.h"
#include "comm/shm/shm_segment.h"
#include "comm/shm/shm_transport.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/comm/comm_cluster.h"

namespace braid {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Parts of an entry as they lie in the memory.
constexpr size_t kKindAt = 0, kFrameBytesAt = 1, kPayloadBytesAt = 24, kPieceBeginAt = 32,
                 kPieceBytesAt = 40;

// The header and the keys, which are followed by the rings.
constexpr size_t kSegmentBytes = (128 << 10) + kShmEntries * kShmEntryBytes + kShmPayloadBytes;

class ShmLinkTest : public ::testing::Test {
 protected:
  ShmLinkTest() : environment_(MakeRealEnvironment()), heap_(MakeHeap()), closed_(*environment_) {
    reactor_ = environment_->StartReactor("link");
    int ends[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
    raw_.emplace(Socket(ends[0]));
    RunOn(*environment_, *reactor_, [&] {
      auto link = MakeShmLink(
          Socket(ends[1]), {.node = 1, .peer = 0, .reactor = reactor_.get(), .heap = heap_.get()});
      CHECK(link.ok()) << link.status();
      link_ = *std::move(link);
    });
    link_->OnClosed(closed_.callback());
  }
  ~ShmLinkTest() override {
    RunOn(*environment_, *reactor_, [this] { link_.reset(); });
  }

  void KeepFrames() {
    link_->SetHandler([this](std::span<const std::byte> frame) {
      frames_.emplace_back(frame.begin(), frame.end());
    });
  }

  // The peer's memory.
  ShmSender& MakeMemory() {
    auto segment = ShmSegment::Make();
    CHECK(segment.ok()) << segment.status();
    return sender_.emplace(*std::move(segment));
  }
  static std::unique_ptr<SharedHeap> MakeHeap() {
    auto heap = SharedHeap::Make(1 << 20);
    CHECK(heap.ok()) << heap.status();
    return *std::move(heap);
  }
  // From here on the link takes what is there.
  void SendMemory() { CHECK(raw_->SendMemory(sender_->segment().memory().descriptor()).ok()); }

  // What the link has sent of its memory.
  ShmReceiver& HearMemory() {
    ShmBell::Heard heard = raw_->Hear();
    CHECK(heard.memory.is_open());
    auto segment = ShmSegment::Map(std::move(heard.memory));
    CHECK(segment.ok()) << segment.status();
    receiver_.emplace(*std::move(segment));
    return *receiver_;
  }

  // The link has read all that came over the socket.
  void AwaitHeard() {
    for (int unread = 1; unread > 0;) {
      ASSERT_EQ(ioctl(raw_->socket().descriptor(), SIOCOUTQ, &unread), 0);
      if (unread > 0) sched_yield();
    }
    RunOn(*environment_, *reactor_, [] {});
  }

  // The link has taken something that was waited for, or has put something for who sleeps.
  void AwaitBell() {
    pollfd bell = {.fd = raw_->socket().descriptor(), .events = POLLIN, .revents = 0};
    ASSERT_EQ(poll(&bell, 1, kTestTimeout / kMillisecond), 1) << "no bell was rung";
    raw_->Hear();
  }

  std::string WaitClosed() { return std::string(closed_.Wait().message()); }

  std::unique_ptr<Environment> environment_;
  const std::unique_ptr<SharedHeap> heap_;  // the link's
  std::unique_ptr<Reactor> reactor_;
  Outcome closed_;
  std::unique_ptr<Link> link_;
  std::optional<ShmBell> raw_;
  std::optional<ShmSender> sender_;
  std::optional<ShmReceiver> receiver_;
  std::vector<std::vector<std::byte>> frames_;
};

TEST_F(ShmLinkTest, WhatWasSentBeforeTheEndArrives) {
  KeepFrames();
  ShmSender& sender = MakeMemory();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(*sender.PutFrame(PatternBytes(8, i)));
  SendMemory();
  raw_->Hear();  // who closes a socket with something unread resets it
  raw_->Close();
  EXPECT_EQ(WaitClosed(), "link node 1 <-> node 0: connection closed by the peer");
  ASSERT_EQ(frames_.size(), 3u);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(frames_[i], PatternBytes(8, i));
}

TEST_F(ShmLinkTest, AReasonArrivesBehindWhatWasSent) {
  KeepFrames();
  ASSERT_TRUE(*MakeMemory().PutFrame(PatternBytes(8, 0)));
  SendMemory();
  raw_->SendReason("no more bread");
  EXPECT_EQ(WaitClosed(), "link node 1 <-> node 0 was closed by node 0: no more bread");
  EXPECT_EQ(frames_.size(), 1u);
}

// Frames and payload wait for room in the order in which they came.
TEST_F(ShmLinkTest, APeerThatStandsStillIsWaitedFor) {
  ShmReceiver& receiver = HearMemory();
  constexpr size_t kFrames = 2 * kShmEntries;
  const std::vector<std::byte> payload = PatternBytes(3 * kShmPayloadBytes, 7);
  for (size_t i = 0; i < kFrames; ++i) link_->Send(PatternBytes(1 + i % 64, static_cast<int>(i)));
  Outcome done(*environment_);
  WriteTo(*link_, payload, {.token = 5, .base = 0, .bytes = payload.size()}, 0, PatternBytes(4, 1),
          done);
  link_->Send(PatternBytes(9, 2));
  EXPECT_EQ(done.times(), 0);
  std::vector<std::byte> taken;
  size_t frames = 0;
  for (bool is_whole = false; !is_whole;) {
    ShmEntry entry;
    const absl::StatusOr<bool> is_there = receiver.Next(entry);
    ASSERT_TRUE(is_there.ok()) << is_there.status();
    if (!*is_there) {
      if (receiver.Sleeps()) AwaitBell();
      continue;
    }
    const std::span<const std::byte> piece = receiver.Payload(entry);
    taken.insert(taken.end(), piece.begin(), piece.end());
    if (entry.kind == ShmEntry::Kind::kFrame && frames < kFrames) {
      const std::vector<std::byte> want = PatternBytes(1 + frames % 64, static_cast<int>(frames));
      ASSERT_EQ(std::vector<std::byte>(entry.frame, entry.frame + entry.frame_bytes), want);
      ++frames;
    } else if (entry.kind == ShmEntry::Kind::kFrame) {
      is_whole = true;
      EXPECT_EQ(entry.frame_bytes, 9);
    } else {
      EXPECT_EQ(frames, kFrames);
      EXPECT_EQ(entry.token, 5u);
    }
    if (receiver.Take(entry)) raw_->Ring();
  }
  EXPECT_EQ(taken, payload);
  EXPECT_TRUE(done.Wait().ok());
}

// The peer could not know: the rest of the payload goes nowhere, and its frame is told.
TEST_F(ShmLinkTest, ARegionMayBeWithdrawnWhileItsPayloadComes) {
  const std::vector<std::byte> payload = PatternBytes(3 * kShmPieceBytes, 2);
  std::vector<std::byte> memory(payload.size());
  const auto key = link_->Expose(memory);
  ASSERT_TRUE(key.ok());
  Outcome told(*environment_);
  link_->SetHandler([&](std::span<const std::byte> frame) {
    frames_.emplace_back(frame.begin(), frame.end());
    told.Take(absl::OkStatus());
  });
  ShmSender& sender = MakeMemory();
  uint64_t put = 0;
  ASSERT_TRUE(*sender.PutWrite(
      {.token = key->token, .offset = 0, .payload = payload, .frame = PatternBytes(4, 3)}, put,
      [] {}));
  // Two pieces first, then the rest.
  std::atomic<uint64_t>& published = sender.segment().header().published;
  published.store(2);
  SendMemory();
  ShmSegment::Header& header = sender.segment().header();
  for (header.sender_waits.store(1); header.taken.load() < 2; header.sender_waits.store(1)) {
    AwaitBell();
  }
  link_->Withdraw(*key);
  published.store(3);
  raw_->Ring();
  ASSERT_TRUE(told.Wait().ok());
  EXPECT_EQ(frames_, (std::vector<std::vector<std::byte>>{PatternBytes(4, 3)}));
  EXPECT_TRUE(std::equal(memory.begin(), memory.begin() + 2 * kShmPieceBytes, payload.begin()));
  EXPECT_EQ(memory[2 * kShmPieceBytes + 5], std::byte{0});
  EXPECT_EQ(closed_.times(), 0);
}

// What the link writes lies there before its frame does, and takes no room of the ring.
TEST_F(ShmLinkTest, WhatThePeerGrantsIsWrittenDirectly) {
  const std::unique_ptr<SharedHeap> heap = MakeHeap();
  const auto memory = heap->Allocate(3 * kShmPayloadBytes / 4);
  ASSERT_TRUE(memory.ok());
  ShmReceiver& receiver = HearMemory();
  MakeMemory();
  ShmGrants grants(sender_->segment(), heap.get(), [] { return false; });
  grants.Grant(5, {memory->data(), memory->size()});
  ASSERT_TRUE(raw_->SendHeap(heap->descriptor()).ok());
  SendMemory();
  AwaitHeard();
  const std::vector<std::byte> payload = PatternBytes(memory->size() - 10, 4);
  Outcome done(*environment_);
  WriteTo(*link_, payload, {.token = 5, .base = 0, .bytes = memory->size()}, 10, PatternBytes(4, 1),
          done);
  EXPECT_TRUE(done.Wait().ok());
  ShmEntry entry;
  ASSERT_TRUE(*receiver.Next(entry));
  EXPECT_EQ(entry.kind, ShmEntry::Kind::kWritten);
  EXPECT_EQ(entry.payload_bytes, payload.size());
  EXPECT_TRUE(std::equal(payload.begin(), payload.end(), memory->data() + 10));
  EXPECT_EQ(memory->data()[9], std::byte{0});
  // What is withdrawn passes the ring, and the peer drops it.
  grants.Revoke(5);
  WriteTo(*link_, payload, {.token = 5, .base = 0, .bytes = memory->size()}, 0, PatternBytes(4, 1),
          done);
  receiver.Take(entry);
  ASSERT_TRUE(*receiver.Next(entry));
  EXPECT_EQ(entry.kind, ShmEntry::Kind::kPiece);
}

TEST_F(ShmLinkTest, WhatThePeerWroteDirectlyIsThereWithItsFrame) {
  const auto memory = heap_->Allocate(5000);
  ASSERT_TRUE(memory.ok());
  const auto key = link_->Expose({memory->data(), memory->size()});
  ASSERT_TRUE(key.ok());
  ShmPeerHeap theirs;
  ShmBell::Heard heard = raw_->Hear();
  ASSERT_TRUE(heard.memory.is_open() && heard.heap.is_open());
  ASSERT_TRUE(theirs.Map(std::move(heard.heap)).ok());
  const auto segment = ShmSegment::Map(std::move(heard.memory));
  ASSERT_TRUE(segment.ok());
  const std::vector<std::byte> payload = PatternBytes(4000, 4);
  Outcome told(*environment_);
  link_->SetHandler([&](std::span<const std::byte>) {
    EXPECT_TRUE(std::equal(payload.begin(), payload.end(), memory->data() + 1000));
    told.Take(absl::OkStatus());
  });
  const LandingWrite write{.token = key->token, .offset = 1000, .bytes = payload.size()};
  ASSERT_TRUE(*theirs.Write(*segment, write, payload));
  ASSERT_TRUE(*MakeMemory().PutFrame(PatternBytes(4, 1), payload.size()));
  SendMemory();
  ASSERT_TRUE(told.Wait().ok());
  EXPECT_EQ(link_->counters().bytes_received, payload.size());
  link_->Withdraw(*key);
  EXPECT_FALSE(*theirs.Write(*segment, write, payload));
}

TEST_F(ShmLinkTest, AGrantOfWhatTheHeapDoesNotHaveClosesIt) {
  const std::unique_ptr<SharedHeap> heap = MakeHeap();
  MakeMemory();
  ShmKey& key = sender_->segment().key(5);
  key.token = 5;
  key.offset = 1 << 20;
  key.bytes = 64;
  ASSERT_TRUE(raw_->SendHeap(heap->descriptor()).ok());
  SendMemory();
  AwaitHeard();
  Outcome done(*environment_);
  const std::vector<std::byte> payload = PatternBytes(64, 4);
  WriteTo(*link_, payload, {.token = 5, .base = 0, .bytes = 64}, 0, PatternBytes(4, 1), done);
  EXPECT_THAT(WaitClosed(), HasSubstr("its key 5 has 64 bytes at 1048576 of its shared memory, "
                                      "which has 1048576"));
  EXPECT_FALSE(done.Wait().ok());
}

TEST_F(ShmLinkTest, AHeapThatMayShrinkIsRefused) {
  const Descriptor open_end(memfd_create("open", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(open_end.number(), 1 << 20), 0);
  ASSERT_TRUE(raw_->SendHeap(open_end.number()).ok());
  EXPECT_THAT(WaitClosed(), HasSubstr("its shared memory has seals 0, must be 7"));
}

TEST_F(ShmLinkTest, MemoryOfAnotherSizeIsRefused) {
  const Descriptor small(memfd_create("small", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(small.number(), 4096), 0);
  ASSERT_TRUE(raw_->SendMemory(small.number()).ok());
  EXPECT_THAT(WaitClosed(), AllOf(HasSubstr("wrong frame from node 0: its shared memory has 4096 "
                                            "bytes, must be "),
                                  HasSubstr(std::to_string(kSegmentBytes))));
}

// Who could shrink it would end this process by a signal.
TEST_F(ShmLinkTest, MemoryThatMayShrinkIsRefused) {
  const Descriptor open_end(memfd_create("open", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(open_end.number(), kSegmentBytes), 0);
  ASSERT_TRUE(raw_->SendMemory(open_end.number()).ok());
  EXPECT_THAT(WaitClosed(), HasSubstr("its shared memory has seals 0, must be 7"));
}

TEST_F(ShmLinkTest, MemoryComesOnce) {
  MakeMemory();
  SendMemory();
  SendMemory();
  EXPECT_THAT(WaitClosed(),
              HasSubstr("its message has kind 1, must be 1 or 4, once and with memory"));
}

TEST_F(ShmLinkTest, UnknownMessagesCloseIt) {
  const std::byte message[] = {std::byte{9}, std::byte{0}, std::byte{0}, std::byte{0}};
  ASSERT_EQ(raw_->socket().Write(message).bytes, sizeof(message));
  EXPECT_THAT(WaitClosed(), HasSubstr("wrong frame from node 0: its message has kind 9"));
}

TEST_F(ShmLinkTest, LongMessagesCloseIt) {
  const std::byte message[] = {std::byte{3}, std::byte{0}, std::byte{0xff}, std::byte{0xff}};
  ASSERT_EQ(raw_->socket().Write(message).bytes, sizeof(message));
  EXPECT_THAT(WaitClosed(), HasSubstr("has 65535 bytes, must have at most 1024"));
}

TEST_F(ShmLinkTest, MoreFramesThanThereIsRoomForAreWrong) {
  KeepFrames();
  MakeMemory().segment().header().published.store(kShmEntries + 1);
  SendMemory();
  EXPECT_THAT(WaitClosed(), HasSubstr("it has sent 1025 frames, must be from 0 to 1024"));
}

TEST_F(ShmLinkTest, WhatIsTakenWasSent) {
  ShmSegment::Header* header = nullptr;
  {
    ShmBell::Heard heard = raw_->Hear();
    ASSERT_TRUE(heard.memory.is_open());
    auto segment = ShmSegment::Map(std::move(heard.memory));
    ASSERT_TRUE(segment.ok()) << segment.status();
    header = &segment->header();
    header->taken.store(77);
  }
  link_->Send(PatternBytes(4, 0));
  EXPECT_THAT(WaitClosed(), HasSubstr("it has taken 77 frames and 0 bytes, must be from 0 to 0"));
}

struct WrongEntry {
  size_t at;
  uint64_t value;
  size_t bytes;
  const char* message;
};

class WrongEntryTest : public ShmLinkTest, public ::testing::WithParamInterface<WrongEntry> {};

TEST_P(WrongEntryTest, ClosesTheLinkAndTouchesNothing) {
  KeepFrames();
  std::vector<std::byte> memory = PatternBytes(300, 1);
  const std::vector<std::byte> before = memory;
  const auto key = link_->Expose(memory);
  ASSERT_TRUE(key.ok());
  ShmSender& sender = MakeMemory();
  const std::vector<std::byte> payload = PatternBytes(100, 2), frame = PatternBytes(4, 3);
  uint64_t put = 0;
  ASSERT_TRUE(*sender.PutWrite(
      {.token = key->token, .offset = 0, .payload = payload, .frame = frame}, put, [] {}));
  std::memcpy(sender.segment().entry(0) + GetParam().at, &GetParam().value, GetParam().bytes);
  SendMemory();
  EXPECT_THAT(WaitClosed(),
              AllOf(HasSubstr("wrong frame from node 0: "), HasSubstr(GetParam().message)));
  EXPECT_EQ(memory, before);
  EXPECT_TRUE(frames_.empty());
}

INSTANTIATE_TEST_SUITE_P(
    All, WrongEntryTest,
    ::testing::Values(
        WrongEntry{kKindAt, 5, 1, "it has kind 5, must be 1 to 4"},
        WrongEntry{kKindAt, 4, 1, "its payload is written and its piece has 100 bytes"},
        WrongEntry{kKindAt, 1, 1, "it is no write and has 100 and 100 bytes"},
        WrongEntry{kKindAt, 2, 1, "its frame has 4 bytes, must be 0"},
        WrongEntry{kFrameBytesAt, 65, 1, "its frame has 65 bytes, must be 1 to 64"},
        WrongEntry{kFrameBytesAt, 0, 1, "its frame has 0 bytes"},
        WrongEntry{kPayloadBytesAt, 301, 8, "its piece has 100 bytes at 0 of a write of 301"},
        WrongEntry{kPieceBeginAt, 1, 8, "its piece has 100 bytes at 1 of a write of 100"},
        WrongEntry{kPieceBytesAt, 1 << 20, 8, "its piece has 1048576 bytes at 0"},
        WrongEntry{kPieceBytesAt, ~uint64_t{0}, 8, "its piece has 18446744073709551615 bytes"}));

// Who shares no memory with this process is told so, whatever shm there is.
TEST(ShmTransportTest, SaysWhomItDoesNotReach) {
  const auto environment = MakeRealEnvironment();
  const auto reactor = environment->StartReactor("shm");
  const auto transport = MakeShmTransport({.node = 0, .reactor = reactor.get()});
  const auto address = transport->Open();
  ASSERT_TRUE(address.ok()) << address.status();
  EXPECT_TRUE(transport->Reaches(*address).ok());
  for (const std::string& other : {"x" + *address, std::string("10.0.0.1:5"), std::string()}) {
    EXPECT_THAT(std::string(transport->Reaches(other).message()),
                HasSubstr("of another machine, namespace or user"));
  }
}

// What a link does not use of its rings takes no memory.
TEST(ShmMemoryTest, RingsTakeMemoryAsFarAsTheyWereWritten) {
  auto segment = ShmSegment::Make();
  ASSERT_TRUE(segment.ok()) << segment.status();
  ShmSender sender(*std::move(segment));
  const auto taken = [&sender] {
    struct stat file = {};
    EXPECT_EQ(fstat(sender.segment().memory().descriptor(), &file), 0);
    return static_cast<size_t>(file.st_blocks) * 512;
  };
  constexpr size_t kPiece = 16 << 10;
  constexpr size_t kMade = 4096 + kShmKeys * sizeof(ShmKey) + kPiece;
  if (taken() > kMade) GTEST_SKIP() << "shared memory comes in large pages here, or at once";
  const std::vector<std::byte> frame(1);
  const auto put = [&](size_t bytes) {
    const std::vector<std::byte> payload(bytes);
    uint64_t begin = 0;
    const auto is_put = sender.PutWrite({.payload = payload, .frame = frame}, begin, [] {});
    EXPECT_TRUE(is_put.ok()) << is_put.status();
  };
  ASSERT_TRUE(sender.PutFrame(frame).ok());
  EXPECT_EQ(taken(), kMade);
  put(100);
  EXPECT_EQ(taken(), kMade + kPiece);
  put(2 * kPiece);
  EXPECT_EQ(taken(), kMade + 3 * kPiece);
  put(kShmPayloadBytes);
  put(1);
  EXPECT_EQ(taken(), kMade + kShmPayloadBytes);
}

// The system would end the process by a signal.
TEST(ShmMemoryTest, ALimitOfFilesIsSaid) {
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit limited = before;
  limited.rlim_cur = 1 << 20;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limited), 0);
  const absl::Status status = SharedMemory::Reserve("of a test", 2 << 20).status();
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_EQ(status.message(),
            "cannot reserve 2097152 bytes of shared memory: files may have 1048576 (ulimit -f)");
}

// Nothing of a link is left in this process.
TEST(ShmMemoryTest, EndsWithItsLink) {
  const auto count = [] {
    std::ifstream maps("/proc/self/maps");
    int lines = 0;
    for (std::string line; std::getline(maps, line);)
      lines += line.find("memfd:braid") != line.npos;
    return lines;
  };
  const auto environment = MakeRealEnvironment();
  {
    const auto cases = TransportCases();
    const auto shm = std::ranges::find(cases, "shm", &TransportCase::name);
    ASSERT_NE(shm, cases.end());
    LinkedNodes nodes(*environment, *shm, 3);
    // Of each node its heap, and of each of its links its own rings; the peers' are on their way.
    EXPECT_GE(count(), 3 + 3 * 2);
  }
  EXPECT_EQ(count(), 0);
}

}  // namespace
}  // namespace braid
