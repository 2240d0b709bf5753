// `braid launch --nproc_per_node`: ranks of a process group.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/multiprocess/program_run.h"
#include "tests/runtime/temp_dir.h"

namespace braid {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::StartsWith;

std::vector<std::string> LaunchRanks(std::vector<std::string> flags,
                                     const std::vector<std::string>& program) {
  std::vector<std::string> command = {BRAID_TOOL, "launch"};
  command.insert(command.end(), flags.begin(), flags.end());
  command.emplace_back("--");
  command.insert(command.end(), program.begin(), program.end());
  return command;
}

std::vector<std::string> Script(const std::string& script) { return {"bash", "-c", script}; }

std::vector<std::string> SortedLines(const std::string& text) {
  std::vector<std::string> lines = absl::StrSplit(text, '\n', absl::SkipEmpty());
  std::ranges::sort(lines);
  return lines;
}

constexpr char kTell[] =
    "echo $RANK of $WORLD_SIZE, $LOCAL_RANK of $LOCAL_WORLD_SIZE here, at "
    "$MASTER_ADDR:$MASTER_PORT, $RESTART_COUNT, secret of ${#BRAID_AUTH_TOKEN}";

TEST(LaunchRanksTest, TellsEveryRankItsWorld) {
  ProgramRun run(LaunchRanks({"--nproc_per_node=2", "--standalone", "--tag_output"}, Script(kTell)),
                 {.environment = {{"BRAID_AUTH_TOKEN", std::nullopt}}});
  EXPECT_EQ(run.Wait(), ExitStatus{}) << run.err();
  const std::string rest = " of 2 here, at 127\\.0\\.0\\.1:[0-9]+, 0, secret of 64";
  EXPECT_THAT(SortedLines(run.out()), ElementsAre(MatchesRegex("\\[rank 0\\] 0 of 2, 0" + rest),
                                                  MatchesRegex("\\[rank 1\\] 1 of 2, 1" + rest)));
}

TEST(LaunchRanksTest, TheyMakeAWorld) {
  ProgramRun run(LaunchRanks({"--nproc_per_node=3"}, {BRAID_COLLECTIVES}));
  EXPECT_EQ(run.Wait(), ExitStatus{}) << run.err();
  EXPECT_THAT(run.out(), HasSubstr("rank 2: "));
  EXPECT_THAT(run.out(), HasSubstr("pi is about 3.14"));
}

// The last number that the program prints with so many ranks.
double LastNumber(const char* program, int ranks) {
  ProgramRun run(LaunchRanks({absl::StrCat("--nproc_per_node=", ranks)}, {program}));
  EXPECT_EQ(run.Wait(), ExitStatus{}) << run.err();
  const std::vector<std::string> words = absl::StrSplit(run.out(), absl::ByAnyChar(" \n"));
  double number = -1;
  EXPECT_TRUE(words.size() > 2 && absl::SimpleAtod(words[words.size() - 2], &number)) << run.out();
  return number;
}

TEST(LaunchRanksTest, GradientsAveragedByHandAreThoseOfTheWholeBatch) {
  const double alone = LastNumber(BRAID_DDP_BY_HAND, 1);  // the loss
  EXPECT_GT(alone, 0);
  EXPECT_LT(alone, 0.01);
  for (const int ranks : {2, 4}) EXPECT_NEAR(LastNumber(BRAID_DDP_BY_HAND, ranks), alone, 2e-4);
}

TEST(LaunchRanksTest, ASessionOnTheRanksTrainsAsOnOne) {
  const double alone = LastNumber(BRAID_DDP_MNIST, 1);  // the accuracy
  EXPECT_GT(alone, 0.98);
  EXPECT_NEAR(LastNumber(BRAID_DDP_MNIST, 2), alone, 0.01);
}

TEST(LaunchRanksTest, StartsAllRanksAgainWhenOneFails) {
  const TempDir dir;
  // Rank 1 fails twice; rank 0 waits for it, and is ended with it.
  ProgramRun run(LaunchRanks({"--nproc_per_node=2", "--max_restarts=2"},
                             Script("echo started >> " + dir / "rank" +
                                    "$RANK; if [ $RANK = 1 -a $RESTART_COUNT -lt 2 ]; then "
                                    "kill -9 $$; fi; if [ $RESTART_COUNT -lt 2 ]; then "
                                    "exec sleep 30; fi; echo rank $RANK ends well")));
  EXPECT_EQ(run.Wait(), ExitStatus{}) << run.err();
  EXPECT_THAT(run.out(), HasSubstr("rank 0 ends well"));
  const std::string failed = "braid launch: rank 1 \\(pid [0-9]+\\) failed first: signal 9 .*";
  EXPECT_THAT(SortedLines(run.err()), ElementsAre(MatchesRegex(failed + "; restart 1 of 2"),
                                                  MatchesRegex(failed + "; restart 2 of 2")));
}

// Rank 1 is killed after the first epoch, and again after the second; in the end the weights are
// those of a run that nothing disturbed.
TEST(LaunchRanksTest, RanksThatAreStartedAgainGoOnFromTheirCheckpoint) {
  const TempDir dir;
  const auto train = [&](const std::string& name) {
    return absl::StrCat(BRAID_DDP_MNIST, " --epochs=4 --checkpoints=", dir / name,
                        " --weights=", dir / name, ".safetensors");
  };
  ProgramRun undisturbed(LaunchRanks({"--nproc_per_node=2"}, Script("exec " + train("well"))));
  EXPECT_EQ(undisturbed.Wait(), ExitStatus{}) << undisturbed.err();
  ProgramRun run(LaunchRanks(
      {"--nproc_per_node=2", "--max_restarts=2"},
      Script("if [ $RANK = 0 -o $RESTART_COUNT = 2 ]; then exec " + train("killed") + "; fi; " +
             train("killed") + " & until [ -e " + dir / "killed" +
             "/step-$((90 * (RESTART_COUNT + 1))) ]; do sleep 0.01; done; kill -9 $!; wait $!")));
  EXPECT_EQ(run.Wait(), ExitStatus{}) << run.err();
  EXPECT_THAT(run.err(), HasSubstr("; restart 2 of 2"));
  EXPECT_THAT(run.out(), HasSubstr("epoch 4: "));
  const std::string weights = GetFile(dir / "well.safetensors");
  EXPECT_GT(weights.size(), 1'000'000u);
  EXPECT_TRUE(weights == GetFile(dir / "killed.safetensors"));
}

TEST(LaunchRanksTest, EndsWithTheFailureAfterTheLastRestart) {
  ProgramRun run(LaunchRanks({"--nproc_per_node=2", "--max_restarts=1"},
                             Script("if [ $RANK = 1 ]; then echo no bread >&2; exit 7; fi")));
  EXPECT_EQ(run.Wait().code, 7) << run.err();
  EXPECT_THAT(run.LastErrorLine(), MatchesRegex("braid launch: rank 1 \\(pid [0-9]+\\) failed "
                                                "first: .*7.*"));
  EXPECT_THAT(run.err(), HasSubstr("no bread"));
  EXPECT_THAT(run.err(), HasSubstr("; restart 1 of 1\n"));
}

TEST(LaunchRanksTest, ASignalEndsItForGood) {
  ProgramRun run(LaunchRanks({"--nproc_per_node=2", "--max_restarts=5"},
                             Script("echo started; exec sleep 60")));
  run.AwaitOutput("started");
  run.Signal(SIGTERM);
  EXPECT_EQ(run.Wait().code, 128 + SIGTERM);
  EXPECT_THAT(run.LastErrorLine(), StartsWith("braid launch: ended by signal 15"));
}

TEST(LaunchRanksTest, WrongFlagsAreSaid) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> mistakes = {
      {{"--nproc_per_node=-1"}, "--nproc_per_node=-1 with --nnodes=1; 1 or more each"},
      {{"--nproc_per_node=2", "--local=2"}, "--nproc_per_node=2 starts ranks of a process group"},
      {{"--nproc_per_node=2", "--nnodes=2"},
       "--nnodes=2 and --master_port=0 without --master_addr"},
      {{"--nproc_per_node=2", "--nnodes=2", "--node_rank=2", "--master_addr=a"},
       "--node_rank=2 with --nnodes=2; 0 to 1 was expected"},
      {{"--nproc_per_node=2", "--standalone", "--master_addr=a"}, "it excludes --master_addr=a"},
      {{"--nproc_per_node=2", "--max_restarts=-1"}, "--max_restarts=-1; 0 or more was expected"},
      {{"--nproc_per_node=2", "--nnodes=2", "--master_addr=a", "--join_timeout=0s"},
       "--join_timeout=0; more than zero was expected"},
      {{}, "--nproc_per_node=N for ranks of a process group"},
  };
  for (const auto& [flags, words] : mistakes) {
    ProgramRun run(LaunchRanks(flags, Script("true")));
    EXPECT_EQ(run.Wait().code, 1);
    EXPECT_THAT(run.LastErrorLine(), HasSubstr(words));
  }
}

}  // namespace
}  // namespace braid
