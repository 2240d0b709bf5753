// Collectives by a library that is opened in the place of NCCL (tests/support/fake_nccl.cc),
// against their definition: what the library is asked for, in which type, in place and not, blocks
// of equal sizes and of unequal ones.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/half.h"
#include "runtime/cuda/nccl_table.h"
#include "tests/cuda/collective_parts.h"

namespace braid::cuda {
namespace {

constexpr int kMembers = 3;

using Bytes = std::vector<std::byte>;

struct Case {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  DType dtype = DType::kF32;
  int32_t reduction = 0;
  // As in a call; of an all_to_all those of each member, one after the other.
  std::vector<int64_t> counts;
  bool in_place = false;
};

int64_t Sum(const std::vector<int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

// One member's memory: whole numbers, which all types have, and the output behind or around them.
struct MemberMemory {
  Bytes bytes;
  std::vector<int64_t> counts, receives;
  NcclCall call;
};

void PutNumber(DType dtype, std::byte* at, int value) {
  const auto put = [&](auto number) { std::memcpy(at, &number, sizeof number); };
  switch (dtype) {
    case DType::kF64:
      return put(static_cast<double>(value));
    case DType::kBF16:
      return put(BFloat16(static_cast<float>(value)));
    case DType::kF16:
      return put(Float16(static_cast<float>(value)));
    case DType::kI32:
      return put(int32_t{value});
    case DType::kI64:
      return put(int64_t{value});
    case DType::kU8:
      return put(static_cast<uint8_t>(value));
    default:
      return put(static_cast<float>(value));
  }
}

class NcclTest : public ::testing::Test {
 protected:
  NcclTest() {
    char text[1024] = {};
    library_ = table_.open(BRAID_FAKE_NCCL, text, sizeof text);
    EXPECT_NE(library_, nullptr) << text;
  }

  // Until it is done.
  Error Settle(Error error, void* communicator) const {
    while (error == kNotReady) {
      std::this_thread::yield();
      error = table_.state(communicator);
    }
    return error;
  }

  // `part` of every member, each on a thread of its own.
  template <class Part>
  static void OnThreads(const Part& part) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kMembers; ++rank) threads.emplace_back([&part, rank] { part(rank); });
    for (std::thread& thread : threads) thread.join();
  }

  void Join() {
    std::byte word[kNcclWordBytes];
    ASSERT_EQ(table_.make_word(library_, word), kDone);
    OnThreads([&](int rank) {
      const Error error = table_.join(library_, word, kMembers, rank, &communicators_[rank]);
      EXPECT_EQ(Settle(error, communicators_[rank]), kDone);
    });
  }
  void End() {
    for (void* communicator : communicators_) table_.end(communicator);
  }

  static MemberMemory MemoryOf(const Case& c, int rank) {
    MemberMemory memory{.bytes = {}, .counts = c.counts, .receives = {}, .call = {}};
    if (c.kind == CollectiveKind::kAllToAll) {
      memory.counts.clear();
      for (int other = 0; other < kMembers; ++other) {
        memory.counts.push_back(c.counts[rank * kMembers + other]);
        memory.receives.push_back(c.counts[other * kMembers + rank]);
      }
    }
    const auto size = static_cast<int64_t>(SizeOf(c.dtype));
    const int64_t most = std::max(Sum(memory.counts), Sum(memory.receives)) + 1;
    memory.bytes.resize(static_cast<size_t>(2 * most * size));
    for (int64_t i = 0; i < 2 * most; ++i) {
      PutNumber(c.dtype, memory.bytes.data() + i * size, static_cast<int>((i * 7 + rank * 5) % 40));
    }
    const auto own =
        c.kind == CollectiveKind::kAllGather || c.kind == CollectiveKind::kReduceScatter
            ? std::accumulate(c.counts.begin(), c.counts.begin() + rank, int64_t{0})
            : 0;
    const bool gathers = c.kind == CollectiveKind::kAllGather;
    memory.call = {.kind = c.kind,
                   .dtype = c.dtype,
                   .element_bytes = size,
                   .reduction = c.reduction,
                   .members = kMembers,
                   .rank = rank,
                   .root = 1};
    std::byte* const begin = memory.bytes.data();
    memory.call.input = begin + (c.in_place && gathers ? own * size : 0);
    memory.call.output = c.in_place ? begin + (gathers ? 0 : own * size) : begin + most * size;
    return memory;
  }

  void Check(const Case& c) {
    std::vector<MemberMemory> members, expected;
    for (int rank = 0; rank < kMembers; ++rank) {
      members.push_back(MemoryOf(c, rank));
      expected.push_back(MemoryOf(c, rank));
    }
    std::vector<CollectivePart> parts;
    for (MemberMemory& member : expected) parts.push_back({member.call, member.counts});
    CarryOut(parts);
    OnThreads([&](int rank) {
      NcclCall call = members[rank].call;
      call.counts = members[rank].counts.data();
      call.receives = members[rank].receives.data();
      void* const communicator = communicators_[rank];
      EXPECT_EQ(Settle(table_.collect(communicator, call, nullptr), communicator), kDone);
    });
    for (int rank = 0; rank < kMembers; ++rank) {
      EXPECT_TRUE(members[rank].bytes == expected[rank].bytes) << "member " << rank;
    }
  }

  const NcclTable table_ = MakeNcclTable();
  void* library_ = nullptr;
  void* communicators_[kMembers] = {};
};

TEST_F(NcclTest, SaysItsVersion) { EXPECT_EQ(table_.version(library_), 22809); }

TEST_F(NcclTest, WhatReduces) {
  Join();
  for (const DType dtype :
       {DType::kF32, DType::kF64, DType::kBF16, DType::kF16, DType::kI32, DType::kI64}) {
    for (const int32_t reduction : {0, 1, 2}) {
      for (const bool in_place : {false, true}) {
        SCOPED_TRACE(std::string(ToString(dtype)) + " by " + std::to_string(reduction));
        Check({CollectiveKind::kAllReduce, dtype, reduction, {11}, in_place});
        Check({CollectiveKind::kReduceScatter, dtype, reduction, {4, 4, 4}, in_place});
        Check({CollectiveKind::kReduceScatter, dtype, reduction, {3, 0, 5}, in_place});
      }
    }
  }
  End();
}

TEST_F(NcclTest, WhatOnlyMoves) {
  Join();
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kU8}) {
    SCOPED_TRACE(std::string(ToString(dtype)));
    for (const bool in_place : {false, true}) {
      Check({CollectiveKind::kAllGather, dtype, 0, {4, 4, 4}, in_place});
      Check({CollectiveKind::kAllGather, dtype, 0, {3, 0, 5}, in_place});
      Check({CollectiveKind::kBroadcast, dtype, 0, {7}, in_place});
    }
    Check({CollectiveKind::kAllToAll, dtype, 0, {1, 2, 0, 4, 0, 3, 5, 1, 2}});
    Check({CollectiveKind::kAllToAll, dtype, 0, std::vector<int64_t>(9, 0)});
  }
  End();
}

TEST_F(NcclTest, WhatMembersDisagreeAboutIsAnError) {
  Join();
  OnThreads([&](int rank) {
    const int64_t count = rank == 2 ? 3 : 4;
    float numbers[4] = {};
    const NcclCall call{.members = kMembers,
                        .rank = rank,
                        .counts = &count,
                        .receives = nullptr,
                        .input = numbers,
                        .output = numbers};
    const Error error =
        Settle(table_.collect(communicators_[rank], call, nullptr), communicators_[rank]);
    EXPECT_EQ(std::string(table_.error_text(library_, error)), "invalid usage");
  });
  End();
}

}  // namespace
}  // namespace braid::cuda
