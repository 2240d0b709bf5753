// `braid launch --nodes`: nodes here and on other machines. Instead of ssh, a script runs the
// command on this machine, in a session of its own, joined to the launch by its standard input and
// output alone.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/multiprocess/program_run.h"
#include "tests/runtime/temp_dir.h"

namespace braid {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

// Not this machine's, nor anybody's (RFC 5737).
constexpr char kFar[] = "192.0.2.1";

class LaunchSshTest : public testing::Test {
 protected:
  LaunchSshTest() {
    PutFile(ssh_, R"(#!/usr/bin/env bash
printf '%s\n' "$@" >"$0.log"
echo $$ >"$0.pid"
if [[ $1 = 192.0.2.9 ]]; then
  echo "ssh: connect to host $1 port 22: Connection refused" >&2
  exit 255
fi
exec 3<&0
setsid sh -c "$2" < <(exec cat <&3) 3<&- &
wait $!
)");
    chmod(ssh_.c_str(), 0700);
    List("127.0.0.1 cpu:1", kFar);
  }

  void List(const std::string& master, const std::string& other) {
    PutFile(nodes_, "# a comment\n" + master + "\n\n" + other + " cpu:2\n");
  }
  std::vector<std::string> Launch(const std::vector<std::string>& flags,
                                  const std::vector<std::string>& program) const {
    std::vector<std::string> command = {BRAID_TOOL, "launch", "--nodes=" + nodes_, "--ssh=" + ssh_};
    command.insert(command.end(), flags.begin(), flags.end());
    command.push_back("--");
    command.insert(command.end(), program.begin(), program.end());
    return command;
  }
  // A script for the far node; node 0 has nothing to do.
  std::vector<std::string> LaunchFar(const std::string& script) const {
    return Launch({}, {"bash", "-c", "[ $BRAID_NODE_RANK = 0 ] && exit; " + script});
  }

  const TempDir dir_;
  const std::string ssh_ = dir_ / "ssh";
  const std::string nodes_ = dir_ / "nodes.txt";
};

TEST_F(LaunchSshTest, TellsEveryNodeTheList) {
  ProgramRun run(Launch({"--tag_output", "--ctrl_port=7777"},
                        {"bash", "-c",
                         "echo $BRAID_NODE_RANK; echo \"$BRAID_NODE_LIST\"; echo $BRAID_AUTH_TOKEN;"
                         "echo [$BRAID_MASTER$BRAID_NUM_NODES$BRAID_CTRL_DESCRIPTOR]; pwd"}),
                 {.environment = {{"BRAID_MASTER", "an outer launch's"}}});
  EXPECT_EQ(run.Wait(), ExitStatus{}) << run.err();
  std::string tokens[2];
  for (const std::string node : {"0", "1"}) {
    std::string own;
    size_t end;
    const std::string text = run.out();
    for (size_t begin = 0; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
      const std::string line = text.substr(begin, end - begin);
      if (line.starts_with("[node " + node + "] ")) own += line.substr(9) + "\n";
    }
    EXPECT_THAT(own, MatchesRegex(node + "\n127.0.0.1:7777 cpu:1\n192.0.2.1:7777 cpu:2\n\n"
                                         "[0-9a-f]{64}\n\\[\\]\n/.*\n"));
    EXPECT_THAT(own, EndsWith("]\n" + std::filesystem::current_path().string() + "\n"));
    const size_t token = own.find("cpu:2\n\n") + 7;
    tokens[node == "1"] = own.substr(token, 64);
  }
  EXPECT_EQ(tokens[0], tokens[1]);
  const std::string command_line = GetFile(ssh_ + ".log");
  EXPECT_THAT(command_line, HasSubstr("192.0.2.1\n"));
  EXPECT_THAT(command_line, Not(HasSubstr(tokens[0])));
}

TEST_F(LaunchSshTest, QuotesForTheShellThere) {
  ProgramRun run(Launch(
      {"--tag_output"},
      {"bash", "-c", "printf '<%s>' \"$0\" \"$@\" | tr '\\n' '^'; echo", "it's", "two  blanks",
       "$HOME `id` \\", "", "new\nline", "*", "\"", "--flag=1", "~", "\xc3\xbc", ";#&|"}));
  EXPECT_EQ(run.Wait(), ExitStatus{}) << run.err();
  const std::string expected =
      "<it's><two  blanks><$HOME `id` \\><><new^line><*><\"><--flag=1><~><\xc3\xbc><;#&|>\n";
  EXPECT_THAT(run.out(), HasSubstr("[node 0] " + expected));
  EXPECT_THAT(run.out(), HasSubstr("[node 1] " + expected));
}

TEST_F(LaunchSshTest, PassesTheExitCodeAndTheErrorOn) {
  ProgramRun run(LaunchFar("echo text; echo 'error: no data' >&2; exit 5"));
  EXPECT_EQ(run.Wait(), ExitStatus{.code = 5});
  EXPECT_EQ(run.err(),
            "braid launch: node 1 (192.0.2.1) printed:\ntext\nerror: no data\n"
            "braid launch: node 1 (192.0.2.1) failed first: exit code 5: error: no data\n");
}

TEST_F(LaunchSshTest, SaysWhichSignalEndedAProgramThere) {
  ProgramRun run(LaunchFar("kill -9 $$"));
  EXPECT_EQ(run.Wait(), ExitStatus{.code = 137});
  EXPECT_EQ(run.LastErrorLine(),
            "braid launch: node 1 (192.0.2.1) failed first: exit code 137 (128 + signal 9, "
            "Killed)");
}

TEST_F(LaunchSshTest, SaysWhatSshSays) {
  List("127.0.0.1", "192.0.2.9");
  ProgramRun worker(Launch({}, {"true"}));
  EXPECT_EQ(worker.Wait(), ExitStatus{.code = 255});
  EXPECT_EQ(worker.LastErrorLine(),
            "braid launch: node 1 (192.0.2.9) failed first: exit code 255 of ssh or the program: "
            "ssh: connect to host 192.0.2.9 port 22: Connection refused");
  List("192.0.2.9", "127.0.0.1");
  ProgramRun master(Launch({}, {"true"}));
  EXPECT_EQ(master.Wait(), ExitStatus{.code = 255});
  EXPECT_EQ(master.err(),
            "ssh: connect to host 192.0.2.9 port 22: Connection refused\n"
            "braid launch: node 0 (192.0.2.9) failed first: exit code 255 of ssh or the program: "
            "ssh: connect to host 192.0.2.9 port 22: Connection refused\n");
}

TEST_F(LaunchSshTest, SaysThatTheToolOrTheProgramIsMissingThere) {
  ProgramRun tool(Launch({"--node_program_dir=/no/such/folder"}, {"true"}));
  EXPECT_EQ(tool.Wait(), ExitStatus{.code = 127});
  EXPECT_THAT(tool.LastErrorLine(),
              MatchesRegex("braid launch: node 1 \\(192.0.2.1\\) failed first: exit code 127: .*"
                           "/no/such/folder/braid.*"));
  List(kFar, "127.0.0.1");
  ProgramRun program(Launch({}, {"./no-such-program"}));
  EXPECT_EQ(program.Wait(), ExitStatus{.code = 127});
}

TEST_F(LaunchSshTest, TheMastersOutputComesFromThere) {
  List(kFar, "127.0.0.1");
  ProgramRun run(Launch({}, {"bash", "-c", "echo out $BRAID_NODE_RANK; echo err >&2"}));
  EXPECT_EQ(run.Wait(), ExitStatus{});
  EXPECT_EQ(run.out(), "out 0\n");
  EXPECT_EQ(run.err(), "err\n");
}

TEST_F(LaunchSshTest, PassesSignalsOn) {
  const std::string file = dir_ / "ready";
  ProgramRun run(LaunchFar("trap 'echo error: got INT; exit 6' INT; touch " + file +
                           "; while :; do sleep 0.05; done"));
  run.AwaitFile(file);
  kill(run.pid(), SIGINT);
  EXPECT_EQ(run.Wait(), ExitStatus{.code = 6});
  EXPECT_EQ(run.LastErrorLine(), "braid launch: ended by signal 2 (Interrupt)");
  run.AwaitProcesses(0);
}

TEST_F(LaunchSshTest, EndsWhatDoesNotEndByItself) {
  const std::string file = dir_ / "ready";
  ProgramRun run(LaunchFar("trap '' TERM INT; touch " + file + "; while :; do sleep 0.05; done"));
  run.AwaitFile(file);
  kill(run.pid(), SIGTERM);
  EXPECT_EQ(run.Wait(), ExitStatus{.code = 137});
  EXPECT_THAT(run.err(), HasSubstr("node 1 (192.0.2.1) has not ended 5 s after signal 15"));
  run.AwaitProcesses(0);
}

TEST_F(LaunchSshTest, LeavesNothingThereIfItIsKilled) {
  const std::string file = dir_ / "ready";
  ProgramRun run(LaunchFar("trap '' TERM; touch " + file + "; sleep 1000 & exec sleep 1000"));
  run.AwaitFile(file);
  run.Signal(SIGKILL);
  run.Wait();
  run.AwaitProcesses(0);
}

TEST_F(LaunchSshTest, LeavesNothingThereIfSshIsKilled) {
  const std::string file = dir_ / "ready";
  ProgramRun run(LaunchFar("touch " + file + "; exec sleep 1000"));
  run.AwaitFile(file);
  ASSERT_EQ(kill(std::stoi(GetFile(ssh_ + ".pid")), SIGKILL), 0);
  EXPECT_EQ(run.Wait(), ExitStatus{.code = 137});
  EXPECT_EQ(run.LastErrorLine(),
            "braid launch: node 1 (192.0.2.1) failed first: signal 9 (Killed) of ssh");
  run.AwaitProcesses(0);
}

TEST_F(LaunchSshTest, TheFarEndNeedsALaunch) {
  ProgramRun run({"sh", "-c", std::string(BRAID_TOOL) + " node -- true </dev/null"});
  EXPECT_EQ(run.Wait(), ExitStatus{.code = 126});
  EXPECT_THAT(run.err(), HasSubstr("braid node is only for braid launch"));
}

}  // namespace
}  // namespace braid
