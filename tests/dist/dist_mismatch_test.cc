// Ranks that do not make the same calls: every rank gets the same error at once, and no number is
// ever wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "tests/dist/mismatches.h"

namespace braid {

void PrintTo(const Mismatch& mismatch, std::ostream* out) { *out << mismatch.name; }

namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::ResultOf;

class MismatchTest : public ::testing::TestWithParam<Mismatch> {
 protected:
  static void Check(const std::string& transport);
};

void MismatchTest::Check(const std::string& transport) {
  constexpr int kRanks = 3;
  const Mismatch& mismatch = GetParam();
  std::vector<absl::Duration> took(kRanks);
  const RankProgram program = [&](dist::World& world) -> absl::Status {
    const MismatchEnd end = RunMismatch(world, mismatch);
    took[world.rank()] = end.took;
    return end.status;
  };
  const WorldEnd end = RunWorld(kRanks, program, transport);
  for (int rank = 0; rank < kRanks; ++rank) {
    for (const std::string& words : mismatch.words) {
      const std::vector<std::string> ways = absl::StrSplit(words, '|');
      EXPECT_THAT(ways, Contains(ResultOf(
                            [&](const std::string& way) {
                              return absl::StrContains(end.programs[rank].message(), way);
                            },
                            true)))
          << "rank " << rank << ": " << end.programs[rank];
    }
    EXPECT_EQ(end.programs[rank], end.programs[0]);
    EXPECT_EQ(end.worlds[rank], end.programs[0]);
    EXPECT_LE(took[rank], mismatch.limit) << "rank " << rank;
  }
}

TEST_P(MismatchTest, IsTheSameErrorOnAllRanksAtOnce) {
  for (const char* const transport : {"tcp", "shm"}) {
    SCOPED_TRACE(transport);
    Check(transport);
  }
}

std::string NameOf(const testing::TestParamInfo<Mismatch>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(Calls, MismatchTest, testing::ValuesIn(PlainMismatches()), NameOf);
INSTANTIATE_TEST_SUITE_P(Batches, MismatchTest, testing::ValuesIn(BatchMismatches()), NameOf);
INSTANTIATE_TEST_SUITE_P(Objects, MismatchTest, testing::ValuesIn(ObjectMismatches()), NameOf);

// The program's own failure ends the others with its words.
TEST(WorldEndTest, ACauseEndsAllRanks) {
  const WorldEnd end = RunWorld(3, [](dist::World& world) -> absl::Status {
    if (world.rank() == 2) return world.Close(absl::NotFoundError("no bread"));
    std::vector<float> data(4);
    return world.AllReduce(data);
  });
  for (const absl::Status& status : end.programs) {
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << status;
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(" 2"), HasSubstr("no bread")));
  }
}

// Who is done with a call as soon as it has sent its part may end before the others know of it.
TEST(WorldEndTest, WhatNobodyTookIsFoundAtTheEnd) {
  const WorldEnd two_roots = RunWorld(2, [](dist::World& world) {
    std::vector<float> data(4);
    return world.Broadcast(data, world.rank());
  });
  for (const absl::Status& status : two_roots.worlds) {
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(
        std::string(status.message()),
        AllOf(HasSubstr("call 0 is not the same on all ranks"),
              HasSubstr("broadcast of 4 f32, root 0"), HasSubstr("broadcast of 4 f32, root 1")));
  }
  const WorldEnd one_call = RunWorld(3, [](dist::World& world) -> absl::Status {
    std::vector<float> data(4);
    return world.rank() == 2 ? absl::OkStatus() : world.Broadcast(data, 0);
  });
  for (const absl::Status& status : one_call.worlds) {
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("rank 2 has ended its part"), HasSubstr("broadcast of 4 f32")));
  }
  for (const WorldEnd* end : {&two_roots, &one_call}) {
    EXPECT_LT(end->wall, BRAID_SLACK * absl::Seconds(3));
  }
}

}  // namespace
}  // namespace braid
