// dist::Spawn, through a program: a test has threads of its own.
#include "api/spawn.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "api/rank_report.h"
#include "api/world_error.h"
#include "tests/multiprocess/program_run.h"

namespace braid {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

struct Spawned {
  int code = 0;
  std::string out, err;
  double seconds = 0;
};

Spawned RunSpawn(const std::string& name) {
  const auto began = std::chrono::steady_clock::now();
  ProgramRun run({BRAID_DIST_PROGRAM, name});
  const ExitStatus status = run.Wait();
  EXPECT_EQ(status.signal, 0);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  return {status.code, run.out(), run.LastErrorLine(), took.count()};
}

size_t CountOf(const std::string& word, const std::string& text) {
  size_t count = 0;
  for (size_t at = 0; (at = text.find(word, at)) != std::string::npos; ++at) ++count;
  return count;
}

TEST(SpawnTest, RanksJoinAndEverythingIsPrintedOnce) {
  const Spawned run = RunSpawn("say");
  EXPECT_EQ(run.code, 0) << run.err;
  for (const char* word : {"[rank 0 of 3: sum 6, 0 of 3 here]", "[rank 1 of 3: sum 6, 1 of 3 here]",
                           "[rank 2 of 3: sum 6, 2 of 3 here]", "[before]", "[and]", "[after]",
                           "[last word]", "[at exit]"}) {
    EXPECT_EQ(CountOf(word, run.out), 1u) << word << " in " << run.out;
  }
  EXPECT_EQ(CountOf("[done]", run.out), 3u);
}

TEST(SpawnTest, MayBeCalledAgainAndLeavesNothingOpen) {
  const Spawned run = RunSpawn("again");
  if (run.err == "error: a thread stays") GTEST_SKIP() << "the thread sanitizer's";
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(CountOf("of 2: sum 3", run.out), 4u);
}

TEST(SpawnTest, TheCauseIsReturnedAndNotItsConsequences) {
  const std::pair<const char*, const char*> cases[] = {
      {"own_error", "error: rank 1: no such data"},
      {"own_error_closed", "error: rank 1: "},
      {"throws", "error: rank 1: Spawn's function threw std::out_of_range: 7 of 3"},
      {"segv", "error: rank 1 was ended by signal 11 (Segmentation fault)"},
      {"killed", "error: rank 1 was ended by signal 9 (Killed)"},
      {"exits", "error: rank 1 ended by itself before its function had returned: exit code 3"},
      {"exits_well", "error: rank 1 ended by itself before its function had returned: exit code 0"},
      {"aborts", "error: rank 1 was ended by signal 6 (Aborted)"},
      {"others_abort", "error: rank 1: "},
  };
  for (const auto& [name, says] : cases) {
    const Spawned run = RunSpawn(name);
    EXPECT_EQ(run.code, 1) << name;
    EXPECT_THAT(run.err, HasSubstr(says)) << name;
    if (std::string(name).find("own") != std::string::npos) {
      EXPECT_THAT(run.err, HasSubstr("no such data"));
    }
    EXPECT_LT(run.seconds, 5) << name;
  }
}

TEST(SpawnTest, ARankThatDoesNotListenIsKilled) {
  const Spawned run = RunSpawn("deaf");
  EXPECT_EQ(run.err, "error: rank 1: no such data");
  EXPECT_GT(run.seconds, 2.4) << "SIGTERM comes after a second, SIGKILL 1.5 s after that";
  EXPECT_LT(run.seconds, 6);
}

TEST(SpawnTest, AMessageOfAnyLengthArrives) {
  const Spawned run = RunSpawn("long_error");
  EXPECT_EQ(run.code, 1);
  EXPECT_THAT(run.err, AllOf(HasSubstr("xxxxxxxx"), Not(HasSubstr("the end"))));
}

TEST(SpawnTest, WhatCannotBeIsRefused) {
  const std::pair<const char*, std::vector<const char*>> cases[] = {
      {"with_threads",
       {"error: Spawn forks, and this process has ", "'the other one'",
        "call it before anything that starts threads"}},
      {"no_ranks", {"error: Spawn of 0 ranks; 1 to 65535 were expected"}},
      {"no_function", {"error: Spawn was given no function"}},
      {"sigchld_ignored", {"error: Spawn: SIGCHLD is ignored here", "set it to SIG_DFL"}},
  };
  for (const auto& [name, words] : cases) {
    const Spawned run = RunSpawn(name);
    EXPECT_EQ(run.code, 1) << name;
    for (const char* word : words) EXPECT_THAT(run.err, HasSubstr(word));
    EXPECT_EQ(run.out, "") << name;
  }
}

// In a session of its own, so that nothing but what Spawn does ends the ranks.
TEST(SpawnTest, RanksEndWithTheirStarter) {
  const std::string line = absl::StrFormat("%s sleeps; exit $?", BRAID_DIST_PROGRAM);
  for (const int signal : {SIGKILL, SIGTERM, SIGINT, SIGHUP}) {
    ProgramRun run({"setsid", "--wait", "/bin/sh", "-c", line});
    run.AwaitProcesses(6);  // setsid, the shell, the program and three ranks
    run.AwaitOutput("asleep, started by ");
    const std::string out = run.out();
    int starter = 0;
    ASSERT_EQ(std::sscanf(out.c_str(), "asleep, started by %d", &starter), 1) << out;
    kill(starter, signal);
    EXPECT_EQ(run.Wait().code, 128 + signal) << run.err();
    run.AwaitProcesses(0);
  }
}

TEST(RankReportTest, SurvivesItsWay) {
  const absl::Status own = absl::NotFoundError("two\nlines");
  using dist::FailureOf;
  dist::RankFailure failure = FailureOf(4, {.code = 1}, dist::FormatRankReport(own, 77), 99);
  EXPECT_EQ(failure.status, absl::NotFoundError("rank 4: two\nlines"));
  EXPECT_EQ(failure.kind, dist::FailureKind::kReturned);
  EXPECT_EQ(failure.when, 77);
  failure = FailureOf(4, {.code = 1}, dist::FormatRankReport(dist::MarkWorldError(own), 77), 99);
  EXPECT_EQ(failure.kind, dist::FailureKind::kOfWorld);
  EXPECT_TRUE(FailureOf(4, {}, dist::FormatRankReport(absl::OkStatus(), 77), 99).status.ok());
  const std::string whole = dist::FormatRankReport(own, 77);
  for (size_t length = 0; length < whole.size(); ++length) {
    failure = FailureOf(4, {.code = 1}, whole.substr(0, length), 99);
    EXPECT_EQ(failure.kind, dist::FailureKind::kGaveUp) << length;
  }
}

TEST(RankReportTest, TheCauseIsWhatNobodyElseCaused) {
  using dist::FailureKind;
  using dist::RankFailure;
  const auto failure = [](FailureKind kind, Nanoseconds when) {
    return RankFailure{.kind = kind, .when = when};
  };
  const std::vector<RankFailure> order = {
      failure(FailureKind::kEnded, 30),    failure(FailureKind::kEnded, 40),
      failure(FailureKind::kReturned, 20), failure(FailureKind::kReturned, 25),
      failure(FailureKind::kGaveUp, 10),   failure(FailureKind::kOfWorld, 5)};
  for (size_t i = 0; i < order.size(); ++i) {
    for (size_t j = 0; j < order.size(); ++j) {
      EXPECT_EQ(order[i].IsBefore(order[j]), i < j) << i << " and " << j;
    }
  }
}

}  // namespace
}  // namespace braid
