// Ranks as processes, as a launcher starts them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/dist/rank_processes.h"

namespace braid {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(DistProcessTest, TheExampleRuns) {
  const auto runs = StartRanks(3, {BRAID_COLLECTIVES});
  for (const auto& run : runs) EXPECT_EQ(run->Wait().code, 0) << run->err();
  EXPECT_THAT(runs[0]->out(), HasSubstr("pi is about 3.14"));
  EXPECT_EQ(runs[1]->out(), "");
}

// Ranks that do what `word` says, and one of them that is killed.
void ExpectKilledRanksAreNamed(const std::vector<std::string>& command, const std::string& word) {
  for (const int killed : {1, 0}) {
    const auto runs = StartRanks(3, command);
    for (const auto& run : runs) run->AwaitOutput(word);
    const auto began = std::chrono::steady_clock::now();
    runs[killed]->Signal(SIGKILL);
    for (int rank = 0; rank < 3; ++rank) {
      const ExitStatus end = runs[rank]->Wait();
      if (rank == killed) continue;
      EXPECT_EQ(end.code, 1);
      EXPECT_THAT(runs[rank]->LastErrorLine(),
                  ContainsRegex(killed == 0 ? "^error: master lost" : "^error: rank 1 lost"));
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    EXPECT_LT(took.count(), 4);
  }
}

TEST(DistProcessTest, AKilledRankIsNamedByAllOthers) {
  ExpectKilledRanksAreNamed({BRAID_DIST_PROGRAM}, "summing");
}

TEST(DistProcessTest, AKilledRankIsNamedByAllThatPutAndWait) {
  ExpectKilledRanksAreNamed({BRAID_DIST_PROGRAM, "windows"}, "putting");
}

TEST(DistProcessTest, AKilledRankIsNamedByAllThatWaitInTheStore) {
  ExpectKilledRanksAreNamed({BRAID_DIST_PROGRAM, "wait"}, "waiting");
}

TEST(DistProcessTest, RanksThatWaitForEachOtherInSeveralGroupsAreShown) {
  const auto runs = StartRanks(2, {BRAID_DIST_PROGRAM, "groups"});
  for (const auto& run : runs) run->AwaitOutput("\n");
  const std::string port = runs[0]->out().substr(3, runs[0]->out().find('\n') - 3);
  runs[0]->AwaitError("ranks wait for each other in several groups");  // without being asked
  ProgramRun status({BRAID_TOOL, "status", absl::StrCat("127.0.0.1:", port)});
  ASSERT_EQ(status.Wait().ShellCode(), 0) << status.err();
  EXPECT_THAT(status.out(),
              ContainsRegex("^ranks wait for each other in several groups: rank 0 [^;]* is in "
                            "barrier [^;]*, of the world, and waits for a call of rank 1; rank 1 "
                            "[^;]*, of group 2 of ranks 0, 1, and waits for a call of rank 0"));
  EXPECT_THAT(status.out(),
              ContainsRegex("\nthe world: call 1, barrier [^\n]*, of rank 0 [^\n]* has "
                            "waited [0-9.]+ s for rank 1 [^\n]*it is in barrier "));
  runs[0]->Signal(SIGTERM);
  for (const auto& run : runs) EXPECT_NE(run->Wait(), ExitStatus{});
}

TEST(DistProcessTest, AStepThatStandsOnOneRankIsSaidWithoutBeingAsked) {
  const auto runs = StartRanks(2, {BRAID_DIST_PROGRAM, "stands"});
  for (const auto& run : runs) EXPECT_EQ(run->Wait(), ExitStatus{}) << run->err();
  EXPECT_THAT(runs[0]->err(),
              ContainsRegex("no act has ended for [12] s \\(--stall_timeout\\): everything waits "
                            "for: rank 1, device 0: nap [^\n]* has been inside its kernel for "));
  EXPECT_THAT(runs[1]->err(), Not(HasSubstr("stall_timeout")));
}

TEST(DistProcessTest, ARankThatDoesNotComeIsSaidWithoutBeingAsked) {
  const auto runs = StartRanks(3, {BRAID_DIST_PROGRAM, "absent"});
  runs[0]->AwaitError("(--stall_timeout)");
  runs[0]->AwaitError("barrier");
  EXPECT_THAT(
      runs[0]->err(),
      ContainsRegex("a call of a process group has waited for 1 s \\(--stall_timeout\\): "
                    "the world: call 1, barrier \\([^\n]*, of rank [02][^\n]* has waited "
                    "[0-9]+\\.[0-9] s for rank 1 \\(its last call here was call 0, barrier "));
  runs[1]->Signal(SIGTERM);
  for (const auto& run : runs) EXPECT_NE(run->Wait(), ExitStatus{});
}

}  // namespace
}  // namespace braid
