// What real nodes say while they stand still: three processes, one of which is stopped, held up in
// a kernel or slow. The report names it, through `braid status` and by itself.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

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
using ::testing::IsEmpty;
using ::testing::Matches;
using ::testing::Not;

std::string FirstLine(const std::string& text) { return text.substr(0, text.find('\n')); }

class StallProcessTest : public ::testing::Test {
 protected:
  StallProcessTest() {
    std::filesystem::create_directory(dumps());
    std::ofstream list(folder_ / "nodes.txt");
    for (int node = 0; node < 3; ++node) {
      list << absl::StrFormat("127.0.0.%d:%d cpu:1\n", node + 1, port_);
    }
  }

  std::string dumps() const { return folder_ / "dumps"; }
  std::string hold() const { return folder_ / "hold"; }

  // Three nodes that step; node 1 with `arguments`.
  void Start(const std::vector<std::string>& arguments) {
    for (int node : {1, 2, 0}) {
      std::vector<std::string> command = {BRAID_STALL_PROGRAM, "--nodes=" + folder_ / "nodes.txt",
                                          absl::StrFormat("--node_rank=%d", node),
                                          "--event_dump=" + dumps(), "--stall_timeout=1s"};
      if (node == 1) command.insert(command.end(), arguments.begin(), arguments.end());
      runs_[node] = std::make_unique<ProgramRun>(command);
    }
    runs_[0]->AwaitOutput("steps");
    // The run that goes on has reached every node.
    while (!Status().starts_with("stepping job 'train', which advances") && !HasFailure()) {
    }
  }

  ProgramRun& run(int node) { return *runs_[node]; }

  // What `braid status` prints.
  std::string Status() const {
    ProgramRun status({BRAID_TOOL, "status", absl::StrFormat("127.0.0.1:%d", port_)});
    EXPECT_EQ(status.Wait().ShellCode(), 0) << status.err();
    return status.out();
  }

  // Files of last events that were left.
  std::vector<std::string> Dumps() const {
    std::vector<std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(dumps())) {
      files.push_back(entry.path());
    }
    return files;
  }

  void Interrupt() {
    run(0).Signal(SIGINT);
    for (int node : {0, 1, 2}) run(node).Wait();
    EXPECT_THAT(Dumps(), IsEmpty());
  }

  TempDir folder_;
  const int port_ = FreePort();
  std::unique_ptr<ProgramRun> runs_[3];
};

// The silence of a stopped process ends the session after 5 s; before that, all can ask.
TEST_F(StallProcessTest, AStoppedPeerIsTheRootUntilItIsLost) {
  Start({});
  run(1).Signal(SIGSTOP);
  const std::string root =
      "everything waits for: node 1 \\(127.0.0.2\\) does not answer since [0-9.]+ s";
  EXPECT_THAT(FirstLine(Status()), ContainsRegex(root));
  run(0).AwaitError("no act has ended for");
  for (int node : {0, 2}) {
    EXPECT_EQ(run(node).Wait().ShellCode(), 1);
    const std::string error = run(node).LastErrorLine();
    EXPECT_THAT(error,
                ContainsRegex("^error: node 1 \\(127.0.0.2\\) lost while .*; its last events: "
                              "[^ ]*-node" +
                              std::to_string(node) + ".txt$"));
    const std::string file = error.substr(error.rfind(' ') + 1);
    EXPECT_THAT(GetFile(file), ContainsRegex("act [0-9]+ (began|ended|goes on)"));
  }
  EXPECT_THAT(run(0).err(),
              ContainsRegex("no act has ended for [12] s \\(--stall_timeout\\): " + root));
  EXPECT_EQ(Dumps().size(), 2u);
  run(1).Signal(SIGKILL);
}

TEST_F(StallProcessTest, AStoppedMasterLeavesTheOthersWithTheirPart) {
  Start({});
  run(0).Signal(SIGSTOP);
  for (int node : {1, 2}) {
    run(node).AwaitError("and the master does not answer; this node's part:");
    EXPECT_THAT(run(node).err(),
                ContainsRegex("this node's part: (everything waits|[0-9]+ of [0-9]+ actors that "
                              "wait, wait) for: node [012], device 0"));
  }
  run(0).Signal(SIGCONT);
  Interrupt();
}

TEST_F(StallProcessTest, AKernelThatSleepsIsTheRoot) {
  Start({"--hold=" + hold()});
  PutFile(hold(), "");
  run(0).AwaitError("no act has ended for");
  const std::string root =
      "everything waits for: node 1 \\(127.0.0.2\\), device 0: nap '[^']*' "
      "\\(stall_program.cc:[0-9]+\\) has been inside its kernel for [0-9.]+ s\n";
  EXPECT_THAT(Status(), ContainsRegex("^" + root));
  EXPECT_THAT(run(0).err(),
              ContainsRegex("no act has ended for [12] s \\(--stall_timeout\\): " + root));
  for (int node : {1, 2}) EXPECT_THAT(run(node).err(), Not(HasSubstr("no act has ended")));
  std::filesystem::remove(hold());
  Interrupt();
}

TEST_F(StallProcessTest, ASlowNodeIsNamed) {
  Start({"--nap=20ms"});
  // Shares of time need some.
  const auto is_named = ContainsRegex("\\n  node 1 \\(127.0.0.2\\) +([6-9][0-9]|100) %.* nap ");
  std::string text = Status();
  for (int i = 0; i < 100 && !Matches(is_named)(text); ++i) text = Status();
  EXPECT_THAT(FirstLine(text), HasSubstr("stepping job 'train', which advances; just now "));
  EXPECT_THAT(text, ContainsRegex("\n  node +waited for  waits  busy  slowest\n"
                                  "  node 1 \\(127.0.0.2\\) +([6-9][0-9]|100) %.* nap '.*: "
                                  "[2-9][0-9]\\.[0-9]+ ms"));
  Interrupt();
}

}  // namespace
}  // namespace braid
