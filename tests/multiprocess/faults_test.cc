// What goes wrong between real nodes, the mnist example as processes that a node list file joins:
// starts that cannot succeed, and ends that are wanted. What peers, networks and strangers do to a
// session is in fault_matrix.py.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "tests/multiprocess/program_run.h"
#include "tests/runtime/temp_dir.h"

namespace braid {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using Clock = std::chrono::steady_clock;

// From an event to the end of every survivor.
constexpr double kEndLimit = 4 * BRAID_SLACK;

const char kSteps[] = "--epochs=100000";

class FaultsTest : public ::testing::Test {
 protected:
  FaultsTest() { WriteList(3); }

  void WriteList(int nodes) {
    std::ofstream file(list());
    for (int node = 0; node < nodes; ++node) {
      file << absl::StrFormat("127.0.0.%d:%d cpu:1\n", node + 1, port_);
    }
  }
  std::string list() const { return folder_.path() + "/nodes.txt"; }

  // The command of node `node`.
  std::vector<std::string> Command(int node, std::vector<std::string> arguments = {}) const {
    std::vector<std::string> command = {BRAID_MNIST, "--nodes=" + list(), "--event_dump=none",
                                        absl::StrFormat("--node_rank=%d", node)};
    command.insert(command.end(), arguments.begin(), arguments.end());
    return command;
  }

  // Three nodes that step.
  void StartTraining() {
    for (int node : {1, 2, 0}) {
      runs_[node] = std::make_unique<ProgramRun>(
          Command(node, node == 0 ? std::vector<std::string>{kSteps} : std::vector<std::string>{}));
    }
    runs_[0]->AwaitOutput("epoch 1 ");
    began_ = Clock::now();
  }

  ProgramRun& run(int node) { return *runs_[node]; }
  double Seconds() const { return std::chrono::duration<double>(Clock::now() - began_).count(); }

  // Each of `survivors` ends with `code` within `limit` seconds of the event, for the same cause.
  void ExpectEnd(const std::vector<int>& survivors, double limit, const std::string& cause,
                 int code = 1) {
    for (int node : survivors) {
      SCOPED_TRACE(node);
      EXPECT_EQ(run(node).Wait().ShellCode(), code);
      EXPECT_LT(Seconds(), limit);
      EXPECT_THAT(run(node).LastErrorLine(), ContainsRegex("^error: .*" + cause));
    }
  }

  TempDir folder_;
  const int port_ = FreePort();
  std::unique_ptr<ProgramRun> runs_[3];
  Clock::time_point began_ = Clock::now();
};

TEST_F(FaultsTest, AMissingNodeIsNamedAndEndsTheStart) {
  ProgramRun worker(Command(1));
  ProgramRun master(Command(0, {"--join_timeout=6500ms"}));
  began_ = Clock::now();
  for (ProgramRun* run : {&worker, &master}) run->AwaitError("node 2 (127.0.0.3)");
  EXPECT_LT(Seconds(), 6 * BRAID_SLACK);
  for (ProgramRun* run : {&master, &worker}) {
    EXPECT_EQ(run->Wait().ShellCode(), 1);
    EXPECT_THAT(run->LastErrorLine(),
                HasSubstr("error: joining: node 2 (127.0.0.3) did not join within 6.5 s"));
  }
  EXPECT_LT(Seconds(), 6.5 + kEndLimit);
}

TEST_F(FaultsTest, AnotherBinary) {
  const std::string other = folder_.path() + "/other";
  std::filesystem::copy_file(BRAID_MNIST, other);
  std::ofstream(other, std::ios::app) << '\0';
  std::vector<std::string> command = Command(1);
  command[0] = other;
  ProgramRun worker(command);
  ProgramRun master(Command(0));
  for (ProgramRun* run : {&master, &worker}) {
    EXPECT_EQ(run->Wait().ShellCode(), 1);
    EXPECT_THAT(run->LastErrorLine(),
                AllOf(HasSubstr("joining: node 1"), HasSubstr("runs another binary: build")));
  }
  EXPECT_LT(Seconds(), kEndLimit);
}

TEST_F(FaultsTest, AnotherNodeList) {
  const std::string other = folder_.path() + "/other.txt";
  std::ofstream(other) << absl::StrFormat("127.0.0.1:%d cpu:1\n127.0.0.2:%d cpu:4\n127.0.0.3:%d\n",
                                          port_, port_, port_);
  std::vector<std::string> command = Command(1);
  command[1] = "--nodes=" + other;
  ProgramRun worker(command);
  ProgramRun master(Command(0));
  for (ProgramRun* run : {&master, &worker}) {
    EXPECT_EQ(run->Wait().ShellCode(), 1);
    EXPECT_THAT(run->LastErrorLine(),
                AllOf(HasSubstr("joining: node 1"), HasSubstr("another node list"),
                      HasSubstr("cpu:1"), HasSubstr("cpu:4")));
  }
  EXPECT_LT(Seconds(), kEndLimit);
}

TEST_F(FaultsTest, ARankTakenTwice) {
  ProgramRun first(Command(1));
  ProgramRun second(Command(1));
  ProgramRun master(Command(0));
  for (ProgramRun* run : {&master, &first, &second}) {
    EXPECT_EQ(run->Wait().ShellCode(), 1);
    EXPECT_THAT(run->LastErrorLine(), HasSubstr("node rank 1 is taken twice: by process"));
  }
  EXPECT_LT(Seconds(), kEndLimit);
}

TEST_F(FaultsTest, BadListsAndNames) {
  struct Case {
    const char* text;
    std::vector<const char*> words;
  };
  const Case cases[] = {
      {"127.0.0.1\nno-such-host.invalid\n", {"no-such-host.invalid"}},
      {"127.0.0.1\n127.0.0.2:99999\n", {"nodes.txt:2", "99999"}},
      {"127.0.0.1\n127.0.0.2 GPU:1\n", {"nodes.txt:2", "GPU:1"}},
      {"# nobody\n", {"nodes.txt"}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.text);
    std::ofstream(list(), std::ios::trunc) << c.text;
    ProgramRun run({BRAID_MNIST, "--nodes=" + list()});
    EXPECT_EQ(run.Wait().ShellCode(), 1);
    for (const char* word : c.words) EXPECT_THAT(run.LastErrorLine(), HasSubstr(word));
  }
}

TEST_F(FaultsTest, AnInterruptedMasterEndsAll) {
  StartTraining();
  run(0).Signal(SIGINT);
  ExpectEnd({0}, kEndLimit, "node 0 \\(127.0.0.1\\): interrupted by SIGINT", 130);
  ExpectEnd({1, 2}, kEndLimit, "node 0 \\(127.0.0.1\\): interrupted by SIGINT");
}

TEST_F(FaultsTest, ATerminatedWorkerEndsAll) {
  StartTraining();
  run(2).Signal(SIGTERM);
  ExpectEnd({2}, kEndLimit, "node 2 \\(127.0.0.3\\): interrupted by SIGTERM", 143);
  ExpectEnd({0, 1}, kEndLimit, "node 2 \\(127.0.0.3\\): interrupted by SIGTERM");
}

// A terminal's Ctrl-C goes to every process of the foreground group at once.
TEST_F(FaultsTest, EverybodyInterruptedEnds) {
  StartTraining();
  for (int signal : {SIGSTOP, SIGINT, SIGCONT}) {
    for (int node : {0, 1, 2}) run(node).Signal(signal);
  }
  ExpectEnd({0, 1, 2}, kEndLimit, "interrupted by SIGINT", 130);
}

// Whichever node meets it first, all end and say where it was: node, device, operator, step, line.
TEST_F(FaultsTest, ANumberThatIsNoneEndsAll) {
  const std::vector<std::string> arguments = {"--check_numerics", "--lr=1e30"};
  for (int node : {1, 2, 0}) runs_[node] = std::make_unique<ProgramRun>(Command(node, arguments));
  run(0).AwaitError("error: ");
  began_ = Clock::now();
  ExpectEnd({0, 1, 2}, kEndLimit,
            "node [0-2] failed while stepping job 'train': .*on cpu 0, matmul '[a-z0-9.]+': it "
            "makes (NaN|an infinity) in step 1: .*\\(mnist_model.cc:[0-9]+\\)");
  EXPECT_EQ(run(0).out(), "");
}

// Promise 5: nobody needs the master for a step, so one that sleeps is not noticed by them before
// its heartbeats are missed.
TEST_F(FaultsTest, AMasterWithoutTasksMaySleep) {
  const std::string ticks[] = {folder_ / "ticks1", folder_ / "ticks2"};
  for (int node : {1, 2, 0}) {
    std::vector<std::string> command = Command(node);
    command[0] = BRAID_IDLE_MASTER;
    if (node > 0) command.push_back("--ticks=" + ticks[node - 1]);
    runs_[node] = std::make_unique<ProgramRun>(command);
  }
  for (int node : {1, 2}) run(node).AwaitFile(ticks[node - 1]);
  run(0).Signal(SIGSTOP);
  began_ = Clock::now();
  const auto steps = [&](int node) { return std::filesystem::file_size(ticks[node - 1]); };
  // What was on the way when it stopped is done long before.
  while (Seconds() < 1) usleep(10'000);
  const uintmax_t before[] = {steps(1), steps(2)};
  while (Seconds() < 3) usleep(10'000);
  EXPECT_GT(steps(1), before[0] + 20);
  EXPECT_GT(steps(2), before[1] + 20);
  run(0).Signal(SIGCONT);
  began_ = Clock::now();
  run(0).Signal(SIGTERM);
  ExpectEnd({0}, kEndLimit, "node 0 \\(127.0.0.1\\): interrupted by SIGTERM", 143);
  ExpectEnd({1, 2}, kEndLimit, "node 0 \\(127.0.0.1\\): interrupted by SIGTERM");
}

}  // namespace
}  // namespace braid
