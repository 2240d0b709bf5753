// `braid launch --local` with small shell programs.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
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
using ::testing::Not;

// The arguments of braid, `--`, and a script for every node.
std::vector<std::string> Launch(std::vector<std::string> flags, const std::string& script) {
  std::vector<std::string> command = {BRAID_TOOL, "launch"};
  command.insert(command.end(), flags.begin(), flags.end());
  for (const char* word : {"--", "bash", "-c"}) command.push_back(word);
  command.push_back(script);
  return command;
}

// What the nodes print with --tag_output: by node, its lines.
std::map<int, std::vector<std::string>> LinesByNode(const std::string& text) {
  std::map<int, std::vector<std::string>> lines;
  for (const auto line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const std::string tagged(line);
    const size_t end = tagged.find("] ");
    int node = -1;
    EXPECT_TRUE(absl::StartsWith(line, "[node ") && end != std::string::npos &&
                absl::SimpleAtoi(tagged.substr(6, end - 6), &node))
        << line;
    if (node >= 0) lines[node].push_back(tagged.substr(end + 2));
  }
  return lines;
}

// The errors of a launch --local that has ended, after its first line, which says where nodes meet.
std::string ErrorsOf(const ProgramRun& run) {
  const std::string text = run.err();
  const size_t end = text.find('\n');
  EXPECT_THAT(text.substr(0, end),
              MatchesRegex("braid launch: the [0-9]+ nodes meet at .*:[0-9]+"));
  return end == std::string::npos ? "" : text.substr(end + 1);
}

std::string Count(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++count;
  return absl::StrCat(count, " times '", part, "'");
}

TEST(LaunchTest, TellsEveryNodeItsCluster) {
  std::set<std::string> tokens;
  for (int i = 0; i < 2; ++i) {
    ProgramRun run(
        Launch({"--local=3", "--devices=cpu:1,cpu:2,cpu:3", "--tag_output"},
               "echo $BRAID_NODE_RANK of $BRAID_NUM_NODES with $BRAID_DEVICES at $BRAID_MASTER;"
               "echo $BRAID_AUTH_TOKEN; echo [$BRAID_NODE_LIST]"),
        {.environment = {{"BRAID_NODE_LIST", "an outer launch's"},
                         {"BRAID_AUTH_TOKEN", std::nullopt}}});
    EXPECT_EQ(run.Wait(), ExitStatus{}) << run.err();
    std::set<std::string> masters;
    const auto lines = LinesByNode(run.out());
    ASSERT_EQ(lines.size(), 3u);
    for (const auto& [node, own] : lines) {
      ASSERT_EQ(own.size(), 3u);
      const std::string expected = absl::StrCat(node, " of 3 with cpu:", node + 1, " at ");
      EXPECT_THAT(own[0], MatchesRegex(expected + "127\\.0\\.0\\.1:[0-9]+"));
      masters.insert(own[0].substr(expected.size()));
      EXPECT_THAT(own[1], MatchesRegex("[0-9a-f]{64}"));
      tokens.insert(own[1]);
      EXPECT_EQ(own[2], "[]");
    }
    EXPECT_EQ(masters.size(), 1u);
    EXPECT_EQ(run.err(),
              absl::StrCat("braid launch: the 3 nodes meet at ", *masters.begin(), "\n"));
  }
  EXPECT_EQ(tokens.size(), 2u) << "a fresh one for each launch, the same for all its nodes";
}

TEST(LaunchTest, KeepsASecretThatIsExported) {
  ProgramRun run(Launch({"--local=2", "--tag_output"}, "echo $BRAID_AUTH_TOKEN"),
                 {.environment = {{"BRAID_AUTH_TOKEN", "known to others"}}});
  EXPECT_EQ(run.Wait(), ExitStatus{}) << run.err();
  for (const auto& [node, own] : LinesByNode(run.out())) {
    EXPECT_THAT(own, ElementsAre("known to others"));
  }
}

TEST(LaunchTest, TakesTheSecretOfAFile) {
  const TempDir dir;
  PutFile(dir / "secret", "of the file\n");
  ASSERT_EQ(chmod((dir / "secret").c_str(), 0600), 0);
  for (const char* count : {"--local=2", "--nproc_per_node=2"}) {
    ProgramRun run(Launch({count, "--tag_output", "--auth_token_file=" + dir / "secret"},
                          "echo [$BRAID_AUTH_TOKEN]"),
                   {.environment = {{"BRAID_AUTH_TOKEN", "known to others"}}});
    EXPECT_EQ(run.Wait(), ExitStatus{}) << run.err();
    EXPECT_EQ(Count(run.out(), "[of the file]"), "2 times '[of the file]'") << run.out();
  }
}

// Node 0 has the socket, others reach it, and once node 0 has ended nobody listens any more.
void CheckControlSocket(const std::string& host) {
  const TempDir dir;
  ProgramRun run(
      Launch({"--local=2", "--host=" + host, "--tag_output"},
             "if [ $BRAID_NODE_RANK = 0 ]; then "
             "  readlink /proc/$$/fd/$BRAID_CTRL_DESCRIPTOR; "
             "  until [ -e " +
                 dir / "connected" +
                 " ]; do sleep 0.02; done; exit; fi; "
                 "echo [$BRAID_CTRL_DESCRIPTOR] sockets $(ls -l /proc/$$/fd | grep -c socket);"
                 "connect() { host=${BRAID_MASTER%:*}; host=${host#[}; "
                 "  (exec 9<>/dev/tcp/${host%]}/${BRAID_MASTER##*:}) 2>/dev/null; }; "
                 "connect && echo connected; touch " +
                 dir / "connected" +
                 "; "
                 "while connect; do sleep 0.02; done; echo refused"));
  EXPECT_EQ(run.Wait(), ExitStatus{}) << run.err();
  auto lines = LinesByNode(run.out());
  ASSERT_EQ(lines[0].size(), 1u) << run.out();
  EXPECT_THAT(lines[0][0], HasSubstr("socket:"));
  EXPECT_EQ(lines[1], (std::vector<std::string>{"[] sockets 0", "connected", "refused"}));
}

TEST(LaunchTest, GivesNodeZeroTheControlSocket) { CheckControlSocket("127.0.0.1"); }
TEST(LaunchTest, MeetsAtAnotherLoopbackAddress) { CheckControlSocket("127.0.0.2"); }
TEST(LaunchTest, MeetsAtAnIpv6Address) { CheckControlSocket("::1"); }

TEST(LaunchTest, ShowsTheMastersOutputAlone) {
  ProgramRun run(
      Launch({"--local=3"}, "echo out of $BRAID_NODE_RANK; echo err of $BRAID_NODE_RANK >&2"));
  EXPECT_EQ(run.Wait(), ExitStatus{});
  EXPECT_EQ(run.out(), "out of 0\n");
  EXPECT_EQ(ErrorsOf(run), "err of 0\n");
}

TEST(LaunchTest, ReturnsTheExitCodeOfTheFirstThatFails) {
  const TempDir dir;
  // Node 0 fails, too, but only when launch has seen node 1's end.
  ProgramRun run(Launch(
      {"--local=3"}, "file=" + dir / "pid" +
                         "; case $BRAID_NODE_RANK in "
                         "0) echo master; until [ -e $file ]; do sleep 0.02; done; "
                         "   while kill -0 $(cat $file); do sleep 0.02; done 2>/dev/null; exit 4;; "
                         "1) echo some text; echo 'error: mnist: no data' >&2; echo bye; "
                         "   echo $$ >$file.new; mv $file.new $file; exit 3;; "
                         "2) exit 0;; esac"));
  EXPECT_EQ(run.Wait(), ExitStatus{.code = 3});
  EXPECT_EQ(run.out(), "master\n");
  EXPECT_THAT(ErrorsOf(run), MatchesRegex("braid launch: node 1 \\(pid [0-9]+\\) printed:\n"
                                          "some text\nerror: mnist: no data\nbye\n"
                                          "braid launch: node 1 \\(pid [0-9]+\\) failed first: "
                                          "exit code 3: error: mnist: no data\n"));
}

TEST(LaunchTest, KeepsTheEndOfALongOutput) {
  ProgramRun run(
      Launch({"--local=2"}, "[ $BRAID_NODE_RANK = 0 ] && exit; seq 100000 200000; exit 1"));
  EXPECT_EQ(run.Wait(), ExitStatus{.code = 1});
  EXPECT_LT(ErrorsOf(run).size(), 70'000u);
  EXPECT_GT(ErrorsOf(run).size(), 60'000u);
  EXPECT_THAT(ErrorsOf(run),
              MatchesRegex("braid launch: node 1 [^\n]* printed last:\n[0-9]{6}\n.*"));
  EXPECT_THAT(ErrorsOf(run), HasSubstr("\n199999\n200000\nbraid launch: node 1 "));
}

TEST(LaunchTest, NamesTheNodeThatWasKilledAndEndsTheOthers) {
  ProgramRun run(Launch({"--local=3", "--tag_output"},
                        "trap 'echo got TERM; exit 0' TERM; echo pid $$; "
                        "while :; do sleep 0.05; done"));
  for (const char* node : {"0", "1", "2"}) run.AwaitOutput(absl::StrCat("[node ", node, "] pid "));
  const std::string pid_line = LinesByNode(run.out())[1][0];
  int pid = 0;
  ASSERT_TRUE(absl::SimpleAtoi(pid_line.substr(4), &pid)) << pid_line;
  ASSERT_EQ(kill(pid, SIGKILL), 0);
  EXPECT_EQ(run.Wait(), ExitStatus{.code = 137});
  EXPECT_EQ(run.LastErrorLine(),
            absl::StrCat("braid launch: node 1 (pid ", pid, ") failed first: signal 9 (Killed)"));
  EXPECT_EQ(Count(run.out(), "got TERM"), "2 times 'got TERM'");
}

TEST(LaunchTest, KillsNodesThatDoNotEnd) {
  ProgramRun run(Launch({"--local=2", "--tag_output"},
                        "trap '' TERM; echo ready; [ $BRAID_NODE_RANK = 1 ] && exit 9;"
                        "while :; do sleep 0.05; done"));
  EXPECT_EQ(run.Wait(), ExitStatus{.code = 9});
  EXPECT_THAT(
      ErrorsOf(run),
      MatchesRegex("braid launch: node 0 \\(pid [0-9]+\\) has not ended 5 s after the first "
                   "failure and is killed\n"
                   "braid launch: node 1 \\(pid [0-9]+\\) failed first: exit code 9\n"));
}

TEST(LaunchTest, LeavesNothingIfItIsKilled) {
  ProgramRun run(
      Launch({"--local=3", "--tag_output"}, "trap '' TERM; echo ready; exec sleep 1000"));
  for (const char* node : {"0", "1", "2"}) run.AwaitOutput(absl::StrCat("[node ", node, "] ready"));
  run.AwaitProcesses(5);  // launch, its guard, the nodes
  run.Signal(SIGKILL);
  EXPECT_EQ(run.Wait(), ExitStatus{.signal = SIGKILL});
  run.AwaitProcesses(0);
}

// Wrapper scripts do not all end in exec: the parent-death signal does not reach what they started.
TEST(LaunchTest, LeavesNoGrandchildrenIfItIsKilled) {
  ProgramRun run(Launch({"--local=2", "--tag_output"},
                        "bash -c \"trap '' TERM HUP; echo ready; sleep 1000 & sleep 1000\"; :"));
  for (const char* node : {"0", "1"}) run.AwaitOutput(absl::StrCat("[node ", node, "] ready"));
  run.AwaitProcesses(2 + 2 * 4);
  kill(run.pid(), SIGKILL);  // it alone
  EXPECT_EQ(run.Wait(), ExitStatus{.signal = SIGKILL});
  run.AwaitProcesses(0);
}

TEST(LaunchTest, EndsWhatANodeLeavesBehind) {
  ProgramRun run(Launch({"--local=2"}, "sleep 1000 & sleep 1000 & exit 0"));
  EXPECT_EQ(run.Wait(), ExitStatus{});
  run.AwaitProcesses(0);
}

TEST(LaunchTest, PassesSignalsOnOnce) {
  for (const auto& [signal, name] :
       {std::pair(SIGINT, "INT"), std::pair(SIGTERM, "TERM"), std::pair(SIGHUP, "HUP")}) {
    ProgramRun run(Launch({"--local=2", "--tag_output"},
                          absl::StrCat("trap 'echo got ", name, "; sleep 0.2; exit 6' ", name,
                                       "; echo ready; while :; do sleep 0.05; done")));
    run.AwaitOutput("[node 0] ready");
    run.AwaitOutput("[node 1] ready");
    kill(run.pid(), signal);
    EXPECT_EQ(run.Wait(), ExitStatus{.code = 6});
    for (const int node : {0, 1}) {
      EXPECT_EQ(LinesByNode(run.out())[node],
                (std::vector<std::string>{"ready", absl::StrCat("got ", name)}));
    }
    EXPECT_EQ(run.LastErrorLine(), "braid launch: ended by " + DescribeSignal(signal));
  }
}

TEST(LaunchTest, ReturnsZeroIfAllEndWellAfterASignal) {
  ProgramRun run(Launch({"--local=2", "--tag_output"},
                        "trap 'exit 0' TERM; echo ready; while :; do sleep 0.05; done"));
  run.AwaitOutput("[node 0] ready");
  run.AwaitOutput("[node 1] ready");
  kill(run.pid(), SIGTERM);
  EXPECT_EQ(run.Wait(), ExitStatus{});
}

TEST(LaunchTest, ASecondInterruptKills) {
  ProgramRun run(Launch({"--local=2", "--tag_output"},
                        "trap 'echo not yet' INT; echo ready; while :; do sleep 0.05; done"));
  run.AwaitOutput("[node 0] ready");
  run.AwaitOutput("[node 1] ready");
  kill(run.pid(), SIGINT);
  run.AwaitOutput("[node 0] not yet");
  run.AwaitOutput("[node 1] not yet");
  kill(run.pid(), SIGINT);
  EXPECT_EQ(run.Wait(), ExitStatus{.code = 137});
  EXPECT_EQ(ErrorsOf(run), "braid launch: ended by signal 2 (Interrupt)\n") << "killed before 5 s";
}

// The kernel sends SIGINT to the terminal's foreground, which the nodes are not in.
TEST(LaunchTest, CtrlCOnATerminalReachesEveryNodeOnce) {
  const TempDir dir;
  const Descriptor terminal(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  ASSERT_TRUE(terminal.is_open());
  ASSERT_EQ(grantpt(terminal.number()), 0);
  ASSERT_EQ(unlockpt(terminal.number()), 0);
  const Descriptor user(open(ptsname(terminal.number()), O_RDWR | O_NOCTTY | O_CLOEXEC));
  ASSERT_TRUE(user.is_open());
  std::vector<std::string> command = {"setsid", "--ctty", "--wait"};
  const std::string file = dir / "got.$BRAID_NODE_RANK";
  for (const std::string& word :
       Launch({"--local=2"}, "trap 'echo INT >>" + file +
                                 "; sleep 0.2; exit 0' INT; "
                                 "echo ready to be stopped; read line; touch " +
                                 dir / "$BRAID_NODE_RANK" + "; while :; do sleep 0.05; done")) {
    command.push_back(word);
  }
  ProgramRun run(command, {.terminal = user.number()});
  run.AwaitFile(dir / "0");
  run.AwaitFile(dir / "1");
  ASSERT_EQ(write(terminal.number(), "\x03", 1), 1);
  EXPECT_EQ(run.Wait(), ExitStatus{});
  EXPECT_EQ(GetFile(dir / "got.0"), "INT\n");
  EXPECT_EQ(GetFile(dir / "got.1"), "INT\n");
  char printed[4096];
  const ssize_t bytes = read(terminal.number(), printed, sizeof(printed));
  ASSERT_GT(bytes, 0);
  EXPECT_THAT(std::string(printed, bytes), HasSubstr("ready to be stopped"));
}

TEST(LaunchTest, TagsWholeLines) {
  ProgramRun run(Launch({"--local=2", "--tag_output"},
                        "printf 'a'; sleep 0.1; printf 'b\n\nc\nno end'; printf 'to err' >&2"));
  EXPECT_EQ(run.Wait(), ExitStatus{});
  for (const int node : {0, 1}) {
    EXPECT_EQ(LinesByNode(run.out())[node], (std::vector<std::string>{"ab", "", "c", "no end"}));
    EXPECT_EQ(LinesByNode(ErrorsOf(run))[node], std::vector<std::string>{"to err"});
  }
}

TEST(LaunchTest, LosesNoLineOfMuchOutput) {
  ProgramRun run(Launch({"--local=2", "--tag_output"}, "seq 100000"));
  EXPECT_EQ(run.Wait(), ExitStatus{});
  std::vector<std::string> expected;
  for (int i = 1; i <= 100000; ++i) expected.push_back(absl::StrCat(i));
  EXPECT_EQ(LinesByNode(run.out())[0], expected);
  EXPECT_EQ(LinesByNode(run.out())[1], expected);
}

TEST(LaunchTest, EndsWhenNobodyReadsItsOutput) {
  ProgramRun run(Launch({"--local=2", "--tag_output"}, "echo ready; while :; do echo y; done"));
  run.AwaitOutput("ready");
  run.CloseOutput();
  EXPECT_EQ(run.Wait(), ExitStatus{.code = 128 + SIGPIPE});
  EXPECT_EQ(run.LastErrorLine(), "braid launch: nobody reads its output any more");
}

// As behind a pager that waits for its user.
TEST(LaunchTest, ObeysSignalsWhileItsOutputIsStuck) {
  const TempDir dir;
  // More than pipes hold, less than makes launch stop reading; then more.
  ProgramRun run(Launch({"--local=2", "--tag_output"},
                        "cd " + dir.path() +
                            "; seq -f %0200g 1500; touch $BRAID_NODE_RANK;"
                            "until [ -e 0 ] && [ -e 1 ]; do sleep 0.02; done; exec yes"),
                 {.reads_output = false});
  run.AwaitFile(dir / "0");
  run.AwaitFile(dir / "1");
  kill(run.pid(), SIGINT);
  run.AwaitProcesses(2);  // launch itself, which still has output to write, and its guard
  kill(run.pid(), SIGINT);
  EXPECT_EQ(run.Wait(), ExitStatus{.code = 130});
}

// The second signal finds nodes that still run.
TEST(LaunchTest, ObeysSignalsWhileNodesRunAndItsOutputIsStuck) {
  const TempDir dir;
  ProgramRun run(Launch({"--local=2", "--tag_output"},
                        "cd " + dir.path() +
                            "; trap 'touch interrupted$BRAID_NODE_RANK' INT; seq -f %0200g 1500;"
                            "touch $BRAID_NODE_RANK; while :; do sleep 0.02; done"),
                 {.reads_output = false});
  run.AwaitFile(dir / "0");
  run.AwaitFile(dir / "1");
  kill(run.pid(), SIGINT);
  run.AwaitFile(dir / "interrupted0");  // two signals at once would be one
  run.AwaitFile(dir / "interrupted1");
  kill(run.pid(), SIGINT);
  EXPECT_EQ(run.Wait(), ExitStatus{.code = 128 + SIGKILL});
}

TEST(LaunchTest, SaysWhichProgramCannotBeStarted) {
  ProgramRun missing({BRAID_TOOL, "launch", "--local=2", "--", "./no-such-program"});
  EXPECT_EQ(missing.Wait(), ExitStatus{.code = 127});
  EXPECT_EQ(ErrorsOf(missing),
            "braid launch: node 0: cannot start './no-such-program': No such file or directory\n");
  ProgramRun folder({BRAID_TOOL, "launch", "--local=2", "--", "/"});
  EXPECT_EQ(folder.Wait(), ExitStatus{.code = 126});
}

TEST(LaunchTest, SaysWhatIsWrongWithItsArguments) {
  const std::map<std::vector<std::string>, std::string> cases = {
      {{"launch"}, "no program is given"},
      {{"launch", "--local=2"}, "no program is given"},
      {{"launch", "./mnist"}, "'./mnist' is no flag"},
      {{"launch", "--", "true"}, "give --local=N or --nodes=FILE"},
      {{"launch", "--local=2", "--nodes=x", "--", "true"}, "exclude each other"},
      {{"launch", "--local=-1", "--", "true"}, "--local=-1; 1 to 65535 nodes were expected"},
      {{"launch", "--local=3", "--devices=cpu:1,cpu:2", "--", "true"}, "2 nodes, but --local=3"},
      {{"launch", "--local=2", "--devices=TPU:1", "--", "true"}, "--devices: 'TPU:1'"},
      {{"launch", "--local=2", "--host=no.such.host.invalid", "--", "true"},
       "--host=no.such.host.invalid: "},
      {{"launch", "--nodes=/no/such/file", "--", "true"}, "/no/such/file"},
      {{"lunch"}, "'lunch' is no subcommand of braid; the nearest: launch, bench, onnx\nusage: "},
      {{}, "  launch "},
  };
  for (const auto& [arguments, expected] : cases) {
    std::vector<std::string> command = {BRAID_TOOL};
    command.insert(command.end(), arguments.begin(), arguments.end());
    ProgramRun run(command);
    EXPECT_EQ(run.Wait(), ExitStatus{.code = 1}) << expected;
    EXPECT_THAT(run.err(), HasSubstr(expected));
  }
}

TEST(LaunchTest, SaysItsVersion) {
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"--version"}, {"launch", "--version"}}) {
    std::vector<std::string> command = {BRAID_TOOL};
    command.insert(command.end(), words.begin(), words.end());
    ProgramRun run(command);
    EXPECT_EQ(run.Wait(), ExitStatus{});
    EXPECT_THAT(run.out(), MatchesRegex("Braid [0-9]+\\.[0-9]+\\.[0-9]+\n"));
  }
}

TEST(LaunchTest, HelpShowsTheSubcommandsOwnFlags) {
  ProgramRun run({BRAID_TOOL, "launch", "--help"});
  EXPECT_EQ(run.Wait(), ExitStatus{});
  EXPECT_THAT(run.out(), HasSubstr("braid launch: starts a program"));
  EXPECT_THAT(run.out(), HasSubstr("--tag_output"));
  EXPECT_THAT(run.out(), Not(HasSubstr("/api/tool")));
}

}  // namespace
}  // namespace braid
