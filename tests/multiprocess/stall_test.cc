// What real nodes say while they stand still: three processes, one of which is stopped, held up in
// a kernel or slow. The report names it, through `braid status` and by itself.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

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

  // Three nodes, each in a working directory of its own; node 1 with `arguments`.
  void StartNodes(const std::vector<std::string>& arguments) {
    for (int node : {1, 2, 0}) {
      const std::string folder = FolderOf(node);
      std::filesystem::create_directory(folder);
      std::vector<std::string> command = {"/bin/sh",
                                          "-c",
                                          "cd " + folder + " && exec \"$0\" \"$@\"",
                                          BRAID_STALL_PROGRAM,
                                          "--nodes=" + folder_ / "nodes.txt",
                                          absl::StrFormat("--node_rank=%d", node),
                                          "--event_dump=" + dumps(),
                                          "--stall_timeout=1s"};
      if (node == 1) command.insert(command.end(), arguments.begin(), arguments.end());
      command.insert(command.end(), of_all_.begin(), of_all_.end());
      runs_[node] = std::make_unique<ProgramRun>(command, ProgramRun::Options{runtime()});
    }
  }

  // Where sessions leave word of themselves.
  std::map<std::string, std::optional<std::string>> runtime() const {
    return {{"XDG_RUNTIME_DIR", folder_.path()}};
  }

  // Every node reads a text as well.
  void PutText() {
    of_all_ = {"--text=text.txt"};
    for (int node : {0, 1, 2}) {
      std::filesystem::create_directory(FolderOf(node));
      PutFile(FolderOf(node) + "/text.txt", std::string(1000, 'a'));
    }
  }

  std::string FolderOf(int node) const { return folder_ / absl::StrFormat("node%d", node); }

  // The same, and all of them step.
  void Start(const std::vector<std::string>& arguments) {
    StartNodes(arguments);
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
  std::vector<std::string> of_all_;  // arguments
  std::unique_ptr<ProgramRun> runs_[3];
};

TEST_F(StallProcessTest, StatusFindsTheSessionsOfThisMachine) {
  const auto find = [&] {
    ProgramRun status({BRAID_TOOL, "status"}, {runtime()});
    status.Wait();
    return status.out() + status.err();
  };
  EXPECT_THAT(find(), HasSubstr("no session of this user has its master on this machine"));
  Start({});
  EXPECT_THAT(find(), ContainsRegex(absl::StrFormat("^process [0-9]+ at 127.0.0.1:%d: .*stall_"
                                                    "program .*\nstepping job 'train', which",
                                                    port_)));
  run(0).Signal(SIGKILL);
  for (int node : {0, 1, 2}) run(node).Wait();
  EXPECT_THAT(find(), HasSubstr("no session of this user")) << "its file is stale";
  EXPECT_TRUE(std::filesystem::is_empty(folder_ / "braid"));
  std::filesystem::permissions(folder_ / "braid", std::filesystem::perms::others_read,
                               std::filesystem::perm_options::add);
  EXPECT_THAT(find(), HasSubstr("it has mode 0704"));
}

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

// Nobody waits for a factory without a word, and the session goes on when it comes back.
TEST_F(StallProcessTest, AFactoryThatSleepsIsNamed) {
  PutFile(hold(), "");
  StartNodes({"--hold_factory=" + hold()});
  run(0).AwaitError("the loading of a job has stood for");
  // Said within a second of the limit.
  EXPECT_THAT(run(0).err(),
              ContainsRegex("the loading of a job has stood for [12] s \\(--stall_timeout\\): "
                            "everything waits for: node 1 \\(127.0.0.2\\) has been making nap "
                            "'[^']*' \\(stall_program.cc:[0-9]+\\) for 1\\.[0-9] s\n"));
  EXPECT_THAT(Status(), ContainsRegex("^everything waits for: node 1 \\(127.0.0.2\\) has been "
                                      "making nap '[^']*' \\(stall_program.cc:[0-9]+\\) for "
                                      "[1-9][0-9]*\\.[0-9] s\n"));
  for (int node : {1, 2}) EXPECT_THAT(run(node).err(), Not(HasSubstr("has stood")));
  std::filesystem::remove(hold());
  run(0).AwaitOutput("steps");
  Interrupt();
}

// A node hears of a failure whatever users' code it is inside of.
TEST_F(StallProcessTest, ANodeInsideAFactoryHearsOfAFailure) {
  PutFile(hold(), "");
  StartNodes({"--hold_factory=" + hold()});
  run(0).AwaitError("has been making nap");
  run(2).Signal(SIGKILL);
  for (int node : {0, 1}) {
    EXPECT_EQ(run(node).Wait().ShellCode(), 1);
    EXPECT_THAT(run(node).LastErrorLine(),
                ContainsRegex("^error: node 2 \\(127.0.0.3\\) lost while .*job 'train'"));
  }
}

// A file system that does not answer holds up the loading, and is named as a factory is.
TEST_F(StallProcessTest, ADataFileThatDoesNotAnswerIsNamed) {
  PutText();
  PutFile(hold(), "");
  StartNodes({"--hold_reads=" + hold()});
  run(0).AwaitError("the loading of a job has stood for");
  EXPECT_THAT(run(0).err(),
              ContainsRegex("the loading of a job has stood for [12] s \\(--stall_timeout\\): "
                            "everything waits for: node 1 \\(127.0.0.2\\) has been making read "
                            "'[^']*' \\(stall_program.cc:[0-9]+\\) for 1\\.[0-9] s\n"));
  std::filesystem::remove(hold());
  run(0).AwaitOutput("steps");
  Interrupt();
}

// The master opens it first, while the program records the job.
TEST_F(StallProcessTest, ADataFileThatDoesNotAnswerTheMasterIsNamed) {
  PutText();
  PutFile(hold(), "");
  of_all_.push_back("--hold_reads=" + hold());
  StartNodes({});
  run(0).AwaitError("the loading of a job has stood for");
  const std::string root =
      "everything waits for: node 0 \\(127.0.0.1\\) has been opening the data of read 'read' "
      "\\(stall_program.cc:[0-9]+\\) for [1-9][0-9]*\\.[0-9] s\n";
  EXPECT_THAT(run(0).err(), ContainsRegex("has stood for 1 s \\(--stall_timeout\\): " + root));
  EXPECT_THAT(Status(), ContainsRegex("^" + root));
  std::filesystem::remove(hold());
  run(0).AwaitOutput("steps");
  Interrupt();
}

// A pipe without a writer would be waited for for ever; it is refused instead.
TEST_F(StallProcessTest, APipeAsDataFileIsAnErrorThatNamesTheReader) {
  PutText();
  const std::string path = FolderOf(1) + "/text.txt";
  std::filesystem::remove(path);
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  StartNodes({});
  for (int node : {0, 1, 2}) run(node).Wait();
  EXPECT_THAT(run(0).LastErrorLine(),
              ContainsRegex("node 1.*read '[^']*': cannot read 'text.txt': it is a device, pipe or "
                            "socket, not a regular file \\(stall_program.cc:[0-9]+\\)"));
}

}  // namespace
}  // namespace braid
