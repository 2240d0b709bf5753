// Memory that the ranks of a machine reach by themselves: calls on it give what they give
// elsewhere.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "api/dist_memory.h"
#include "runtime/base/status.h"
#include "tests/dist/dist_case.h"

namespace braid {
namespace {

using ::testing::HasSubstr;

class AllocTest : public TransportTest {};

// Of several chunks for each rank, so that what is lent and what is placed are there.
constexpr int64_t kCount = 700'001;

void Fill(const dist::Elements<int32_t>& elements, int rank) {
  std::iota(elements.begin(), elements.end(), 1000 * rank);
}

absl::Status Expect(bool is_so, const char* what, int64_t at) {
  if (is_so) return absl::OkStatus();
  return absl::InternalError(absl::StrFormat("%s: element %d is wrong", what, at));
}

TEST_P(AllocTest, CallsGiveTheSame) {
  const bool is_near = std::string(GetParam()) != "tcp";
  for (const int ranks : {2, 3}) {
    ExpectAllWell(RunWorld(ranks, [is_near](dist::World& world) -> absl::Status {
      const int p = world.size(), rank = world.rank();
      BRAID_ASSIGN_OR_RETURN(const auto one, dist::Alloc<int32_t>(world, kCount));
      BRAID_ASSIGN_OR_RETURN(const auto all, dist::Alloc<int32_t>(world, kCount * p));
      BRAID_RETURN_IF_ERROR(Expect(one[0] == 0 && one[kCount - 1] == 0, "new memory", 0));
      for (int round = 0; round < 3; ++round) {
        Fill(one, rank);
        BRAID_RETURN_IF_ERROR(world.AllReduce(one));
        BRAID_RETURN_IF_ERROR(Expect(world.IsDirect() == is_near, "direct", 0));
        const int32_t ranks_sum = 1000 * p * (p - 1) / 2;
        for (int64_t i = 0; i < kCount; ++i) {
          BRAID_RETURN_IF_ERROR(
              Expect(one[i] == p * static_cast<int32_t>(i) + ranks_sum, "all_reduce", i));
        }
        Fill(one, rank);
        BRAID_RETURN_IF_ERROR(world.AllGather(one, all));
        for (int64_t i = 0; i < p * kCount; ++i) {
          const auto from = static_cast<int32_t>(i / kCount);
          BRAID_RETURN_IF_ERROR(
              Expect(all[i] == 1000 * from + static_cast<int32_t>(i % kCount), "all_gather", i));
        }
        BRAID_RETURN_IF_ERROR(world.ReduceScatter(all, one));
        for (int64_t i = 0; i < kCount; ++i) {
          BRAID_RETURN_IF_ERROR(
              Expect(one[i] == p * (1000 * rank + static_cast<int32_t>(i)), "reduce_scatter", i));
        }
        Fill(one, rank);
        BRAID_RETURN_IF_ERROR(world.Broadcast(one, p - 1));
        for (int64_t i = 0; i < kCount; ++i) {
          BRAID_RETURN_IF_ERROR(
              Expect(one[i] == 1000 * (p - 1) + static_cast<int32_t>(i), "broadcast", i));
        }
        BRAID_ASSIGN_OR_RETURN(const auto sent, dist::Alloc<int32_t>(world, kCount * p));
        Fill(sent, rank);
        BRAID_RETURN_IF_ERROR(world.AllToAll(sent, all));
        for (int64_t i = 0; i < p * kCount; ++i) {
          const int64_t from = i / kCount, there = rank * kCount + i % kCount;
          BRAID_RETURN_IF_ERROR(
              Expect(all[i] == 1000 * static_cast<int32_t>(from) + static_cast<int32_t>(there),
                     "all_to_all", i));
        }
      }
      return absl::OkStatus();
    }));
  }
}

TEST_P(AllocTest, OutlivesTheWorld) {
  std::vector<std::optional<dist::Elements<float>>> kept(2);
  ExpectAllWell(RunWorld(2, [&](dist::World& world) -> absl::Status {
    BRAID_ASSIGN_OR_RETURN(kept[world.rank()], dist::Alloc<float>(world, 1000));
    return world.AllReduce(*kept[world.rank()]);
  }));
  for (const auto& elements : kept) {
    EXPECT_TRUE(std::ranges::all_of(*elements, [](float element) { return element == 0; }));
  }
}

TEST_P(AllocTest, WrongCountsAreErrors) {
  ExpectAllWell(RunWorld(1, [](dist::World& world) -> absl::Status {
    EXPECT_EQ(dist::Alloc<double>(world, 0)->size(), 0u);
    for (const int64_t count : {int64_t{-1}, std::numeric_limits<int64_t>::max() / 4}) {
      const absl::Status status = dist::Alloc<double>(world, count).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(status.message(), HasSubstr("elements of 8 bytes: 0 to "));
    }
    EXPECT_EQ(world.Allocate(-1).status().code(), absl::StatusCode::kInvalidArgument);
    const absl::Status too_large = dist::Alloc<double>(world, int64_t{1} << 59).status();
    EXPECT_EQ(too_large.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(too_large.message(),
                HasSubstr("4611686018427387904 bytes of memory are asked for"));
    return absl::OkStatus();
  }));
}

INSTANTIATE_TEST_SUITE_P(Transports, AllocTest, ::testing::ValuesIn(kTransports));

}  // namespace
}  // namespace braid
