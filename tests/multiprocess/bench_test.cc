// `braid bench`, as a user starts it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/multiprocess/program_run.h"

namespace braid {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::vector<std::string> Bench(std::vector<std::string> words) {
  std::vector<std::string> command = {BRAID_TOOL, "bench"};
  command.insert(command.end(), words.begin(), words.end());
  return command;
}

// The number of a field of a JSON object.
double NumberIn(const std::string& line, const std::string& field) {
  const std::string name = absl::StrCat("\"", field, "\":");
  const size_t at = line.find(name);
  EXPECT_NE(at, std::string::npos) << field << " in " << line;
  return at == std::string::npos ? 0 : std::atof(line.c_str() + at + name.size());
}

class BenchTest : public ::testing::TestWithParam<const char*> {};

// The program checks the results: it ends well only if they are right.
TEST_P(BenchTest, MeasuresAndChecks) {
  for (const char* const flags : {"--dtype=f32 --transport=shm", "--dtype=bf16 --ranks=3",
                                  "--dtype=i64 --transport=shm --ranks=3"}) {
    const std::string collective = GetParam();
    std::vector<std::string> words = absl::StrSplit(flags, ' ');
    words.insert(words.begin(), collective);
    words.insert(words.end(), {"--sizes=4,40KiB", "--seconds=0.02", "--json"});
    ProgramRun run(Bench(words));
    EXPECT_EQ(run.Wait(), ExitStatus{}) << run.err();
    const std::vector<std::string> lines = absl::StrSplit(run.out(), '\n', absl::SkipEmpty());
    ASSERT_EQ(lines.size(), 2u) << run.out();
    const double ranks = std::string(flags).find("--ranks=3") == std::string::npos ? 2 : 3;
    for (const std::string& line : lines) {
      EXPECT_THAT(line, HasSubstr(absl::StrCat("\"collective\":\"", collective, "\"")));
      EXPECT_EQ(NumberIn(line, "ranks"), ranks);
      EXPECT_GT(NumberIn(line, "p50_us"), 0);
      EXPECT_GE(NumberIn(line, "p99_us"), NumberIn(line, "p50_us"));
      EXPECT_GT(NumberIn(line, "cpu_us"), 0);
    }
    EXPECT_GE(NumberIn(lines[1], "bytes"), 40 << 10);
    const double share = collective == "broadcast"    ? 1
                         : collective == "all_reduce" ? 2 * (ranks - 1) / ranks
                                                      : (ranks - 1) / ranks;
    const double bus = 1e-3 * NumberIn(lines[1], "bytes") * share / NumberIn(lines[1], "p50_us");
    EXPECT_NEAR(NumberIn(lines[1], "bus_gb_s"), bus, 0.01 * bus + 1e-4);
  }
}

INSTANTIATE_TEST_SUITE_P(All, BenchTest,
                         ::testing::Values("all_reduce", "all_gather", "reduce_scatter",
                                           "broadcast", "all_to_all"),
                         [](const auto& info) { return std::string(info.param); });

TEST(BenchMessagesTest, PrintsATable) {
  ProgramRun run(Bench({"all_reduce", "--sizes=1KiB", "--seconds=0.02"}));
  EXPECT_EQ(run.Wait(), ExitStatus{}) << run.err();
  EXPECT_THAT(run.out(), AllOf(HasSubstr("all_reduce of f32, 2 ranks"), HasSubstr("bus GB/s")));
}

TEST(BenchMessagesTest, ShowsTheTableOfAlgorithms) {
  ProgramRun run(Bench(
      {"all_gather", "--ranks=3", "--table", "--transport=tcp", "--sizes=3KiB", "--seconds=0.02"}));
  EXPECT_EQ(run.Wait(), ExitStatus{}) << run.err();
  EXPECT_THAT(run.out(), AllOf(HasSubstr("hierarchical, chunks of 262144"),
                               HasSubstr("3072 all_gather: table doubling, best ")));
}

TEST(BenchMessagesTest, MeasuresOneAlgorithm) {
  ProgramRun run(Bench({"all_reduce", "--algorithm=ring", "--sizes=4", "--seconds=0.02"}));
  EXPECT_EQ(run.Wait(), ExitStatus{}) << run.err();
  EXPECT_THAT(run.out(), HasSubstr(" ring "));
}

TEST(BenchMessagesTest, RanksOfALauncherTakePart) {
  for (const std::vector<std::string>& launcher :
       {std::vector<std::string>{"--standalone", "--nproc_per_node=3"}, {"--local=3"}}) {
    std::vector<std::string> command = {BRAID_TOOL, "launch"};
    command.insert(command.end(), launcher.begin(), launcher.end());
    command.insert(command.end(),
                   {"--", BRAID_TOOL, "bench", "broadcast", "--sizes=1KiB", "--seconds=0.02"});
    ProgramRun run(command);
    EXPECT_EQ(run.Wait(), ExitStatus{}) << run.err();
    EXPECT_THAT(run.out(), HasSubstr("broadcast of f32, 3 ranks"));
  }
}

TEST(BenchMessagesTest, SaysWhatIsWrong) {
  const std::pair<std::vector<std::string>, const char*> wrongs[] = {
      {{"all_reduced"}, "'all_reduced' is no collective that is measured; the nearest: all_reduce"},
      {{"all_reduce", "--sizes=4,many"}, "--sizes=many; a number of bytes was expected"},
      {{"all_reduce", "--dtype=f31"}, "--dtype=f31; f32, f64, i32, i64, bf16 or f16 was expected"},
      {{"all_reduce", "--seconds=0"}, "--seconds=0; a time above 0 was expected"},
      {{"all_reduce", "--ranks=-1"}, "a number of ranks was expected"},
      {{"all_reduce", "--transport=pigeon"}, "--transport=pigeon; one of these was expected"},
      {{"all_reduce", "--algorithm=star"}, "'star' is no algorithm of process groups"},
      {{"all_reduce", "--algorithm=hierarchical"}, "of 2 members there are 2 on the 1 hosts"},
      {{"all_reduce", "--rank=2"}, "--rank"},
  };
  for (const auto& [words, message] : wrongs) {
    ProgramRun run(Bench(words));
    EXPECT_NE(run.Wait(), ExitStatus{}) << message;
    EXPECT_THAT(run.err(), HasSubstr(message));
    EXPECT_EQ(run.out(), "");
  }
}

TEST(BenchMessagesTest, HelpShowsItsFlags) {
  ProgramRun run(Bench({"--help"}));
  EXPECT_EQ(run.Wait(), ExitStatus{});
  EXPECT_THAT(run.out(), AllOf(HasSubstr("braid bench COLLECTIVE"), HasSubstr("--dtype")));
}

}  // namespace
}  // namespace braid
