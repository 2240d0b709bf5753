// dist::Main: what users type, and how its processes end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "comm/network/network.h"
#include "comm/network/socket.h"
#include "tests/dist/rank_processes.h"
#include "tests/multiprocess/program_run.h"

namespace braid {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

struct MainEnd {
  int code = 0;
  std::string out, err;
};

MainEnd RunMain(std::vector<std::string> command,
                std::map<std::string, std::optional<std::string>> environment = {}) {
  ProgramRun run(std::move(command), ProgramRun::Options{.environment = std::move(environment)});
  const ExitStatus status = run.Wait();
  EXPECT_EQ(status.signal, 0);
  return {status.code, run.out(), run.err()};
}

// The lines "error: ...".
size_t ErrorsIn(const std::string& text) {
  size_t count = text.starts_with("error: ");
  for (size_t at = 0; (at = text.find("\nerror: ", at)) != std::string::npos; ++at) ++count;
  return count;
}

TEST(DistMainTest, OneCommandTriesAProgram) {
  const MainEnd end = RunMain({BRAID_COLLECTIVES, "--spawn=3"});
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_THAT(end.out, AllOf(HasSubstr("rank 2: "), HasSubstr("pi is about 3.14")));
  EXPECT_EQ(RunMain({BRAID_COLLECTIVES}).code, 0) << "a world of one";
}

// One that other machines reach; "": there is none.
std::string OuterInterface() {
  const auto addresses = SystemNetwork()->LocalAddresses();
  EXPECT_TRUE(addresses.ok()) << addresses.status();
  for (const SocketAddress& address : addresses.value_or(std::vector<SocketAddress>())) {
    if (!address.is_loopback() && !address.is_link_local()) {
      return SystemNetwork()->InterfaceOf(address);
    }
  }
  return "";
}

TEST(DistMainTest, RanksThatMeetAtLoopbackTakeAnotherInterfaceForTheirData) {
  const std::string interface = OuterInterface();
  if (interface.empty()) GTEST_SKIP() << "this machine has loopback only";
  const MainEnd end =
      RunMain({BRAID_COLLECTIVES, "--spawn=2", "--transport=tcp", "--interface=" + interface},
              {{"GLOG_v", "1"}, {"GLOG_logtostderr", "1"}});
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_THAT(end.out, HasSubstr("rank 1: "));
  EXPECT_THAT(end.err, HasSubstr("tcp " + interface));
}

TEST(DistMainTest, HelpAndMistakesAreAsOfEveryProgram) {
  EXPECT_THAT(
      RunMain({BRAID_COLLECTIVES, "--help"}).out,
      AllOf(HasSubstr("collectives: Estimates pi"),
            HasSubstr("Flags from Braid, as every program has them:"), HasSubstr("--spawn (Start"),
            HasSubstr("--interface ("), Not(HasSubstr("--nodes")), Not(HasSubstr("Warning"))));
  const std::pair<const char*, const char*> mistakes[] = {
      {"--spwan=3", "error: there is no flag --spwan; the nearest of "},
      {"--devices=cpu:2", "error: there is no flag --devices; the nearest of "},
      {"stray", "error: 'stray' is no flag, and this program takes nothing else"},
      {"--stall_timeout=-1s", "error: --stall_timeout=-1s; 0 or more was expected"},
      {"--event_dump=/nowhere", "error: --event_dump=/nowhere is no folder"},
      {"--spawn=-1", "error: --spawn=-1; a number of ranks was expected"},
      {"--auth_token_file=/nowhere", "error: --auth_token_file=/nowhere cannot be read"},
  };
  for (const auto& [word, says] : mistakes) {
    const MainEnd end = RunMain({BRAID_COLLECTIVES, word});
    EXPECT_EQ(end.code, 1) << word;
    EXPECT_THAT(end.err, HasSubstr(says));
    EXPECT_EQ(end.out, "") << word;
  }
  EXPECT_THAT(RunMain({BRAID_COLLECTIVES, "--spawn=2"}, {{"RANK", "1"}}).err,
              HasSubstr("error: --spawn=2 is to start the ranks, and RANK=1 in the environment"));
}

TEST(DistMainTest, TheErrorIsSaidOnceByTheStarter) {
  const std::pair<const char*, const char*> cases[] = {
      {"own_error", "error: rank 1: no such data\n"},
      {"throws", "error: rank 1: the program threw std::out_of_range: 7 of 3\n"}};
  for (const auto& [what, says] : cases) {
    const MainEnd end = RunMain({BRAID_DIST_PROGRAM, "--spawn=3"}, {{"BRAID_TEST_MAIN", what}});
    EXPECT_EQ(end.code, 1);
    EXPECT_THAT(end.err, HasSubstr(says));
    EXPECT_EQ(ErrorsIn(end.err), 1u) << end.err;
  }
}

TEST(DistMainTest, OutputThatIsLostIsAnError) {
  for (const char* flag : {"", " --spawn=2"}) {
    const MainEnd end =
        RunMain({"/bin/sh", "-c", absl::StrFormat("%s%s >/dev/full", BRAID_COLLECTIVES, flag)});
    EXPECT_EQ(end.code, 1);
    EXPECT_THAT(end.err, HasSubstr("not all of the standard output could be written"));
  }
}

std::vector<std::unique_ptr<ProgramRun>> StartMains(const char* what) {
  return StartRanks(3, {BRAID_DIST_PROGRAM}, {{"BRAID_TEST_MAIN", what}});
}

TEST(DistMainTest, AllRanksSayTheCause) {
  const auto runs = StartMains("own_error");
  for (const auto& run : runs) {
    EXPECT_EQ(run->Wait().code, 1);
    EXPECT_THAT(run->LastErrorLine(), HasSubstr("no such data"));
    EXPECT_EQ(ErrorsIn(run->err()), 1u) << run->err();
  }
  EXPECT_EQ(runs[1]->LastErrorLine(), "error: no such data");
  EXPECT_EQ(runs[0]->LastErrorLine(), "error: rank 1: no such data");
}

TEST(DistMainTest, ASignalEndsAllWithItsName) {
  for (const int signalled : {0, 1}) {
    const auto runs = StartMains("sums");
    for (const auto& run : runs) run->AwaitOutput("summing");
    runs[signalled]->Signal(SIGTERM);
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(runs[rank]->Wait().code, rank == signalled ? 128 + SIGTERM : 1);
      EXPECT_THAT(runs[rank]->LastErrorLine(), HasSubstr(absl::StrFormat("rank %d", signalled)));
      EXPECT_THAT(runs[rank]->LastErrorLine(), HasSubstr("interrupted by SIGTERM"));
    }
  }
}

TEST(DistMainTest, ASignalEndsTheJoining) {
  std::vector<std::unique_ptr<ProgramRun>> runs;  // of two worlds, which the other rank never joins
  for (const char* rank : {"0", "1"}) {
    runs.push_back(std::make_unique<ProgramRun>(
        std::vector<std::string>{BRAID_DIST_PROGRAM},
        ProgramRun::Options{.environment = {{"BRAID_TEST_MAIN", "sums"},
                                            {"RANK", rank},
                                            {"WORLD_SIZE", "2"},
                                            {"MASTER_ADDR", "127.0.0.1"},
                                            {"MASTER_PORT", absl::StrFormat("%d", FreePort())}}}));
  }
  for (const auto& run : runs) {
    run->AwaitError("joining for");
    run->Signal(SIGINT);
    EXPECT_EQ(run->Wait().code, 128 + SIGINT);
    EXPECT_THAT(run->LastErrorLine(), HasSubstr("interrupted by SIGINT"));
  }
}

TEST(DistMainTest, AFailureEndsARankThatComputes) {
  const auto runs = StartMains("computes");
  const auto began = std::chrono::steady_clock::now();
  for (const auto& run : runs) {
    EXPECT_EQ(run->Wait().code, 1);
    EXPECT_THAT(run->LastErrorLine(), HasSubstr("no such data"));
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  EXPECT_LT(took.count(), 6);
}

}  // namespace
}  // namespace braid
