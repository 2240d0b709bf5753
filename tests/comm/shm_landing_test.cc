// Memory that peers write to by themselves: how it is lent and granted, and what becomes of it when
// one of them stands still in the middle.
#include "comm/shm/shm_landing.h"

#include <unistd.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "glog/logging.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/shared_heap.h"
#include "runtime/base/streaming_copy.h"
#include "tests/comm/comm_cluster.h"

namespace braid {
namespace {

using ::testing::HasSubstr;

const uint64_t kPage = SystemPage();

std::unique_ptr<SharedHeap> MakeHeap(uint64_t bytes) {
  auto heap = SharedHeap::Make(bytes);
  CHECK(heap.ok()) << heap.status();
  return *std::move(heap);
}

Memory Lend(SharedHeap& heap, uint64_t bytes) {
  auto memory = heap.Allocate(bytes);
  CHECK(memory.ok()) << memory.status();
  return *std::move(memory);
}

std::span<std::byte> All(const Memory& memory) { return {memory.data(), memory.size()}; }

TEST(StreamingCopyTest, CopiesAnyBytesToAnyPlace) {
  const std::vector<std::byte> source = PatternBytes(1000, 3);
  for (const size_t bytes : {0, 1, 63, 64, 65, 127, 128, 300, 900}) {
    for (size_t to = 0; to < 66; to += 5) {
      for (const size_t from : {0, 1, 16}) {
        std::vector<std::byte> target(1000), want(1000);
        std::copy_n(source.begin() + from, bytes, want.begin() + to);
        StreamingCopy(target.data() + to, source.data() + from, bytes);
        ASSERT_EQ(target, want) << bytes << " bytes from " << from << " to " << to;
      }
    }
  }
}

TEST(SharedHeapTest, LendsWholePagesAndLendsThemAgain) {
  const auto heap = MakeHeap(10 * kPage);
  Memory a = Lend(*heap, 1), b = Lend(*heap, 2 * kPage + 1), c = Lend(*heap, kPage);
  EXPECT_EQ(heap->OffsetOf(All(a)), 0u);
  EXPECT_EQ(heap->OffsetOf(All(b)), kPage);
  EXPECT_EQ(heap->OffsetOf(All(c).subspan(7)), 4 * kPage + 7);
  std::byte elsewhere{};
  EXPECT_EQ(heap->OffsetOf({&elsewhere, 1}), std::nullopt);
  EXPECT_EQ(heap->OffsetOf({c.data(), 20 * kPage}), std::nullopt);
  // What lay side by side is one run again.
  b.Reset();
  a.Reset();
  Memory d = Lend(*heap, 4 * kPage);
  EXPECT_EQ(heap->OffsetOf(All(d)), 0u);
  d.Reset();
  c.Reset();
  const Memory all = Lend(*heap, 5 * kPage);
  EXPECT_EQ(heap->OffsetOf(All(all)), 0u);
}

TEST(SharedHeapTest, LendsNothingOnceItIsRetired) {
  auto heap = SharedHeap::Make(1 << 20);
  ASSERT_TRUE(heap.ok()) << heap.status();
  (*heap)->Retire();
  EXPECT_TRUE(absl::IsResourceExhausted((*heap)->Allocate(1).status()));
  EXPECT_TRUE(absl::IsResourceExhausted((*heap)->Reserve(1).status()));
}

TEST(SharedHeapTest, SaysWhatItHas) {
  const auto heap = MakeHeap(3 * kPage);
  const Memory a = Lend(*heap, kPage);
  const absl::Status status = heap->Allocate(3 * kPage).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr(absl::StrFormat("%d bytes are asked for, and %d of %d are lent", 3 * kPage,
                                        kPage, 3 * kPage)));
}

// A heap and a segment of one side, and the other side's view of them.
class GrantsTest : public ::testing::Test {
 protected:
  GrantsTest() : heap_(MakeHeap(16 * kPage)) {
    auto own = ShmSegment::Make();
    CHECK(own.ok()) << own.status();
    auto theirs = ShmSegment::Map(Descriptor(dup(own->memory().descriptor())));
    CHECK(theirs.ok()) << theirs.status();
    own_.emplace(*std::move(own));
    theirs_.emplace(*std::move(theirs));
    grants_.emplace(*own_, heap_.get(), [this] { return peer_ended_; });
    CHECK(peer_.Map(Descriptor(dup(heap_->descriptor()))).ok());
  }

  bool Write(uint64_t token, uint64_t offset, std::span<const std::byte> payload) {
    const auto written =
        peer_.Write(*theirs_, {.token = token, .offset = offset, .bytes = payload.size()}, payload);
    CHECK(written.ok()) << written.status();
    return *written;
  }

  const std::unique_ptr<SharedHeap> heap_;
  std::optional<ShmSegment> own_, theirs_;
  bool peer_ended_ = false;
  std::optional<ShmGrants> grants_;
  ShmPeerHeap peer_;
};

TEST_F(GrantsTest, OnlyWhatIsGrantedIsWritten) {
  const Memory memory = Lend(*heap_, 3 * kPage);
  grants_->Grant(3, All(memory).subspan(100, 1000));
  const std::vector<std::byte> payload = PatternBytes(900, 1);
  EXPECT_FALSE(Write(0, 0, payload));
  EXPECT_FALSE(Write(2, 0, payload));
  EXPECT_FALSE(Write(3 + kShmKeys, 0, payload));
  EXPECT_FALSE(Write(3, 101, payload));
  EXPECT_FALSE(Write(3, ~uint64_t{0} - 10, payload));
  const auto is_zero = [](std::byte byte) { return byte == std::byte{0}; };
  EXPECT_TRUE(std::ranges::all_of(All(memory), is_zero));
  EXPECT_TRUE(Write(3, 100, payload));
  EXPECT_TRUE(std::ranges::equal(All(memory).subspan(200, 900), payload));
  EXPECT_TRUE(std::ranges::all_of(All(memory).first(200), is_zero));
  EXPECT_TRUE(std::ranges::all_of(All(memory).subspan(1100), is_zero));
  grants_->RevokeAll();
  EXPECT_FALSE(Write(3, 100, payload));
}

// The second of two regions with one place passes the ring, until the first is withdrawn.
TEST_F(GrantsTest, APlaceHasOneRegion) {
  const Memory memory = Lend(*heap_, kPage);
  const std::vector<std::byte> payload = PatternBytes(8, 1);
  grants_->Grant(3, All(memory).first(8));
  grants_->Grant(3 + kShmKeys, All(memory).subspan(8, 8));
  EXPECT_TRUE(Write(3, 0, payload));
  EXPECT_FALSE(Write(3 + kShmKeys, 0, payload));
  grants_->Revoke(3);
  grants_->Grant(3 + kShmKeys, All(memory).subspan(8, 8));
  EXPECT_TRUE(Write(3 + kShmKeys, 0, payload));
}

TEST_F(GrantsTest, WhatLiesElsewhereIsNotGranted) {
  std::vector<std::byte> memory(100);
  grants_->Grant(3, memory);
  EXPECT_FALSE(Write(3, 0, PatternBytes(8, 1)));
}

TEST_F(GrantsTest, WhatIsLentIsOnlyRead) {
  const Memory memory = Lend(*heap_, kPage);
  const std::vector<std::byte> held = PatternBytes(500, 1);
  std::ranges::copy(held, memory.data());
  ASSERT_TRUE(grants_->Grant(3, All(memory).first(500), ShmAccess::kRead));
  const auto nothing = [](std::span<const std::byte>) { FAIL() << "it was not lent"; };
  EXPECT_FALSE(Write(3, 0, PatternBytes(8, 2)));
  EXPECT_FALSE(peer_.Read(*theirs_, 3, 501, nothing));
  EXPECT_FALSE(peer_.Read(*theirs_, 4, 1, nothing));
  EXPECT_TRUE(peer_.Read(*theirs_, 3, 500, [&](std::span<const std::byte> read) {
    EXPECT_TRUE(std::ranges::equal(read, held));
    EXPECT_EQ(own_->key(3).is_used.load(), 1u);
  }));
  EXPECT_EQ(own_->key(3).is_used.load(), 0u);
  grants_->Revoke(3);
  EXPECT_FALSE(peer_.Read(*theirs_, 3, 1, nothing));
  ASSERT_TRUE(grants_->Grant(3, All(memory)));
  EXPECT_FALSE(peer_.Read(*theirs_, 3, 1, nothing));
}

TEST_F(GrantsTest, WhatIsLentForWritingIsReadAndWritten) {
  const Memory memory = Lend(*heap_, kPage);
  ASSERT_TRUE(grants_->Grant(3, All(memory).first(500), ShmAccess::kBoth));
  const std::vector<std::byte> payload = PatternBytes(100, 2);
  EXPECT_FALSE(Write(3, 0, payload));
  EXPECT_TRUE(peer_.WriteLent(*theirs_, {.token = 3, .offset = 400, .bytes = 100}, payload));
  EXPECT_FALSE(peer_.WriteLent(*theirs_, {.token = 3, .offset = 401, .bytes = 100}, payload));
  EXPECT_FALSE(peer_.WriteLent(*theirs_, {.token = 4, .offset = 0, .bytes = 100}, payload));
  EXPECT_TRUE(peer_.Read(*theirs_, 3, 500, [&](std::span<const std::byte> read) {
    EXPECT_TRUE(std::ranges::equal(read.subspan(400), payload));
  }));
  EXPECT_EQ(own_->key(3).is_used.load(), 0u);
  grants_->Revoke(3);
  EXPECT_FALSE(peer_.WriteLent(*theirs_, {.token = 3, .offset = 0, .bytes = 100}, payload));
}

TEST_F(GrantsTest, RevokeWaitsForWhoWrites) {
  const Memory memory = Lend(*heap_, kPage);
  grants_->Grant(3, All(memory));
  std::atomic<uint32_t>& is_used = theirs_->key(3).is_used;
  is_used = 1;
  std::atomic<bool> is_revoked{false};
  std::thread owner([&] {
    grants_->Revoke(3);
    is_revoked = true;
  });
  while (own_->key(3).token.load() != 0) std::this_thread::yield();
  EXPECT_FALSE(is_revoked);
  is_used = 0;
  owner.join();
  EXPECT_TRUE(heap_->OffsetOf(All(memory)).has_value());
}

// One that was stopped may go on any time later: the memory has another use by then.
TEST_F(GrantsTest, WhoStandsStillWritesToPagesOfItsOwn) {
  Memory memory = Lend(*heap_, 2 * kPage);
  const std::vector<std::byte> held = PatternBytes(2 * kPage, 1);
  std::ranges::copy(held, memory.data());
  grants_->Grant(3, All(memory).first(100));
  auto theirs = SharedMemory::Map(Descriptor(dup(heap_->descriptor())));
  ASSERT_TRUE(theirs.ok());
  theirs_->key(3).is_used = 1;
  grants_->Revoke(3);
  theirs->data()[50] = std::byte{77};
  theirs->data()[kPage + 50] = std::byte{78};
  EXPECT_EQ(memory.data()[50], held[50]);
  EXPECT_EQ(memory.data()[kPage + 50], std::byte{78}) << "the page behind it is shared as before";
  EXPECT_EQ(heap_->OffsetOf(All(memory).first(1)), std::nullopt);
  EXPECT_TRUE(heap_->OffsetOf(All(memory).subspan(kPage)).has_value());
  // It is not lent again, and its key is not granted again.
  memory.Reset();
  const Memory next = Lend(*heap_, 2 * kPage);
  EXPECT_EQ(heap_->OffsetOf(All(next)), 2 * kPage);
  grants_->Grant(3, All(next));
  EXPECT_EQ(own_->key(3).token.load(), 0u);
}

// Its mark says nothing any more.
TEST_F(GrantsTest, WhoHasEndedIsNotWaitedFor) {
  const Memory memory = Lend(*heap_, kPage);
  grants_->Grant(3, All(memory));
  theirs_->key(3).is_used = 1;
  peer_ended_ = true;
  grants_->Revoke(3);
  EXPECT_TRUE(heap_->OffsetOf(All(memory)).has_value());
}

}  // namespace
}  // namespace braid
