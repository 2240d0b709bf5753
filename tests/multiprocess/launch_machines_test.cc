// `braid launch --nnodes`: the launchers of several machines, which here are several launchers of
// one that meet at a port of loopback.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/multiprocess/program_run.h"
#include "tests/runtime/temp_dir.h"

namespace braid {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

using Words = std::vector<std::string>;

Words Shell(const std::string& script) { return {"bash", "-c", script}; }

// Launchers that find each other at one port.
class Machines {
 public:
  explicit Machines(int count) : count_(count), folders_(count, "/") {}

  // Where its launcher and programs run.
  void PutInto(int number, const std::string& folder) { folders_[number] = folder; }

  // Machine `number`, of one rank unless `flags` say otherwise.
  ProgramRun& Start(int number, const Words& flags, const Words& program,
                    ProgramRun::Options options = {}) {
    Words command = {"env",
                     "-C",
                     folders_[number],
                     BRAID_TOOL,
                     "launch",
                     absl::StrCat("--nnodes=", count_),
                     absl::StrCat("--node_rank=", number),
                     "--nproc_per_node=1",
                     "--master_addr=127.0.0.1",
                     absl::StrCat("--master_port=", port_)};
    command.insert(command.end(), flags.begin(), flags.end());
    command.emplace_back("--");
    command.insert(command.end(), program.begin(), program.end());
    options.environment.emplace("BRAID_AUTH_TOKEN", std::nullopt);
    runs_.push_back(std::make_unique<ProgramRun>(std::move(command), std::move(options)));
    return *runs_.back();
  }
  // All of them, the last one first: who comes before machine 0 waits.
  void StartAll(const Words& flags, const Words& program) {
    for (int number = count_ - 1; number >= 0; --number) Start(number, flags, program);
    std::ranges::reverse(runs_);
  }

  // What machine 0's launcher says of the launch.
  std::string Status() const {
    ProgramRun status({BRAID_TOOL, "status", absl::StrCat("127.0.0.1:", port_)},
                      {.environment = {{"BRAID_AUTH_TOKEN", std::nullopt}}});
    EXPECT_EQ(status.Wait(), ExitStatus{}) << status.err();
    return status.out();
  }
  // Until all have joined but this one, "machine 2".
  void AwaitMissing(const std::string& machine) const {
    while (!Status().ends_with("missing: " + machine + "\n")) {
    }
  }

  ProgramRun& operator[](size_t number) { return *runs_[number]; }
  const std::vector<std::unique_ptr<ProgramRun>>& all() const { return runs_; }
  int port() const { return port_; }

  // That all end with this code and this last line, a regular expression.
  void ExpectEnd(int code, const std::string& line) {
    for (const auto& run : runs_) {
      EXPECT_EQ(run->Wait().ShellCode(), code) << run->err();
      EXPECT_THAT(run->LastErrorLine(), MatchesRegex("braid launch: " + line));
    }
  }

 private:
  const int count_;
  const int port_ = FreePort();
  Words folders_;
  std::vector<std::unique_ptr<ProgramRun>> runs_;
};

Words Lines(const std::string& text) {
  Words lines = absl::StrSplit(text, '\n', absl::SkipEmpty());
  std::ranges::sort(lines);
  return lines;
}

// The pattern of a rank's name in messages.
std::string Rank(int rank, int machine) {
  return absl::StrCat("rank ", rank, " \\(pid [0-9]+, machine ", machine, ", [^)]+\\)");
}

TEST(LaunchMachinesTest, TellEveryRankOneWorld) {
  Machines machines(3);
  machines.StartAll({"--nproc_per_node=2", "--tag_output"},
                    Shell("echo $RANK of $WORLD_SIZE, $LOCAL_RANK of $LOCAL_WORLD_SIZE here, at "
                          "$MASTER_ADDR:$MASTER_PORT, $RESTART_COUNT, [$BRAID_AUTH_TOKEN]"));
  std::string place;
  for (int machine = 0; machine < 3; ++machine) {
    EXPECT_EQ(machines[machine].Wait(), ExitStatus{}) << machines[machine].err();
    const Words lines = Lines(machines[machine].out());
    ASSERT_EQ(lines.size(), 2u);
    for (int local = 0; local < 2; ++local) {
      const int rank = 2 * machine + local;
      const std::string begin =
          absl::StrCat("[rank ", rank, "] ", rank, " of 6, ", local, " of 2 here, at ");
      ASSERT_TRUE(lines[local].starts_with(begin)) << lines[local];
      if (place.empty()) place = lines[local].substr(begin.size());
      EXPECT_EQ(lines[local].substr(begin.size()), place);
    }
  }
  EXPECT_THAT(place, MatchesRegex("127\\.0\\.0\\.1:[0-9]+, 0, \\[\\]"));
  EXPECT_THAT(place, Not(HasSubstr(absl::StrCat(":", machines.port(), ","))));
}

TEST(LaunchMachinesTest, StartAgainTogetherWhenARankFails) {
  const TempDir dir;
  Machines machines(2);
  machines.StartAll(
      {"--nproc_per_node=2", "--max_restarts=2", "--tag_output"},
      Shell("echo $RESTART_COUNT at $MASTER_PORT; until [ $(ls " + dir.path() +
            " | grep -c at$RESTART_COUNT) = 4 ]; do touch " + dir / "rank$RANK.at$RESTART_COUNT" +
            "; sleep 0.02; done; if [ $RANK = 3 -a $RESTART_COUNT -lt 2 ]; then kill -9 $$; fi; "
            "if [ $RESTART_COUNT -lt 2 ]; then exec sleep 30; fi"));
  std::vector<std::string> ports[3];
  for (const auto& run : machines.all()) {
    EXPECT_EQ(run->Wait(), ExitStatus{}) << run->err();
    const std::string failed = "braid launch: " + Rank(3, 1) + " failed first: signal 9 .*";
    EXPECT_THAT(Lines(run->err()), ElementsAre(MatchesRegex(failed + "; restart 1 of 2"),
                                               MatchesRegex(failed + "; restart 2 of 2")));
    for (const std::string& line : Lines(run->out())) {
      const Words words = absl::StrSplit(line, ' ');  // [rank 0] 2 at 41234
      ASSERT_EQ(words.size(), 5u) << line;
      ports[std::stoi(words[2])].push_back(words[4]);
    }
  }
  for (const auto& of_attempt : ports) {
    EXPECT_THAT(of_attempt, testing::SizeIs(4));
    EXPECT_THAT(of_attempt, testing::Each(of_attempt[0]));
  }
  EXPECT_NE(ports[0][0], ports[1][0]) << "nobody of the attempt before can come";
}

TEST(LaunchMachinesTest, AllEndWithTheFirstFailureByTime) {
  for (const int first : {0, 1}) {
    const TempDir dir;
    Machines machines(2);
    machines.StartAll({}, Shell("if [ $RANK = " + absl::StrCat(first) +
                                " ]; then echo error: no bread >&2; echo $$ >" + dir / "failed" +
                                "; exit 7; fi; until [ -s " + dir / "failed" +
                                " ]; do sleep 0.02; done; while kill -0 $(cat " + dir / "failed" +
                                ") 2>/dev/null; do sleep 0.02; done; exit 3"));
    // Rank 0 writes where machine 0 does, others where they are asked for it: then all say it, and
    // machine 0 shows all that was printed.
    machines.ExpectEnd(7, Rank(first, first) + " failed first: exit code 7" +
                              (first == 0 ? "" : ": error: no bread"));
    EXPECT_THAT(machines[0].err(),
                HasSubstr(first == 0 ? "error: no bread\n" : "printed:\nerror: no bread\n"));
  }
}

// Machine 1's launcher is stopped while the order to begin comes: its ranks begin later than
// machine 0's, and its clock says nothing of that.
TEST(LaunchMachinesTest, WhoBeginsLateFailsNoEarlier) {
  const TempDir dir;
  Machines machines(3);
  const std::string late = dir / "late", failed = dir / "failed";
  const Words program =
      Shell("if [ $RANK = 1 ]; then touch " + late + "; until [ -s " + failed +
            " ]; do sleep 0.02; done; while kill -0 $(cat " + failed +
            ") 2>/dev/null; do sleep 0.02; done; exit 3; fi; echo started; until [ -e " + late +
            " ]; do sleep 0.02; done; if [ $RANK = 0 ]; then echo $$ >" + failed +
            "; exit 7; fi; sleep 30");
  machines.Start(0, {}, program);
  machines.Start(1, {}, program);
  machines.AwaitMissing("machine 2");
  machines[1].Signal(SIGSTOP);
  machines.Start(2, {}, program);
  machines[0].AwaitOutput("started");
  // Machine 1 begins later by at least so much.
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  machines[1].Signal(SIGCONT);
  machines.ExpectEnd(7, Rank(0, 0) + " failed first: exit code 7");
}

// Machine 0's launcher sees the end of its own rank and the report of an earlier one at once: it is
// stopped until both ranks have ended.
TEST(LaunchMachinesTest, AReportThatWaitedIsAsOldAsItsFailure) {
  const TempDir dir;
  Machines machines(2);
  const std::string stopped = dir / "stopped", failed = dir / "failed";
  machines.StartAll(
      {"--tag_output"},
      Shell("echo started; until [ -e " + stopped + " ]; do sleep 0.02; done; " +
            "if [ $RANK = 1 ]; then echo $$ >" + failed + "; exit 7; fi; until [ -s " + failed +
            " ]; do sleep 0.02; done; while kill -0 $(cat " + failed +
            ") 2>/dev/null; do sleep 0.02; done; exit 3"));
  for (const auto& run : machines.all()) run->AwaitOutput("started");
  machines[0].Signal(SIGSTOP);
  std::ofstream(stopped).put('\n');
  machines[0].AwaitProcesses(2);  // the launcher and its guard
  machines[0].Signal(SIGCONT);
  machines.ExpectEnd(7, Rank(1, 1) + " failed first: exit code 7");
}

// Who loses a rank may say so before that rank's launcher does.
TEST(LaunchMachinesTest, ASignalIsTheCauseOfErrorsElsewhere) {
  Machines machines(2);
  machines.StartAll({}, Shell("if [ $RANK = 0 ]; then echo error: rank 1 lost >&2; exit 1; fi; "
                              "sleep 0.3; kill -9 $$"));
  machines.ExpectEnd(137, Rank(1, 1) + " failed first: signal 9 \\(Killed\\)");
}

TEST(LaunchMachinesTest, AnErrorAfterTheLastRestartIsTheEnd) {
  Machines machines(2);
  machines.StartAll({"--max_restarts=1"}, Shell("exit $((7 * RANK))"));
  for (const auto& run : machines.all()) run->Wait();
  EXPECT_THAT(machines[0].err(), HasSubstr("; restart 1 of 1\n"));
  machines.ExpectEnd(7, Rank(1, 1) + " failed first: exit code 7");
}

TEST(LaunchMachinesTest, WhatCannotBeStartedIsNamed) {
  Machines machines(2);
  machines.StartAll({}, {"/no/such/program"});
  machines.ExpectEnd(127,
                     "rank [01] \\(machine [01], [^)]+\\): cannot start '/no/such/program': "
                     "No such file or directory");
}

// A launcher that is killed or stopped; meanwhile the others' ranks wait for those that it had.
TEST(LaunchMachinesTest, ALauncherThatIsLostEndsTheOthers) {
  struct Case {
    int lost, signal;
    std::string line;
    std::unique_ptr<Machines> machines = std::make_unique<Machines>(2);
  };
  const std::string ended = "the connection was closed without a word: its process has ended";
  Case cases[] = {
      {0, SIGKILL, "machine 0 \\(127\\.0\\.0\\.1\\) lost: " + ended},
      {1, SIGKILL, "machine 1 \\([^)]+\\) lost: " + ended},
      {1, SIGSTOP, "machine 1 \\([^)]+\\) lost: no heartbeat for 5\\.[0-9] s .*"},
  };
  for (Case& one : cases) {
    one.machines->StartAll({"--max_restarts=3", "--tag_output"},
                           Shell("echo started; exec sleep 60"));
  }
  for (Case& one : cases) {
    for (const auto& run : one.machines->all()) run->AwaitOutput("started");
    (*one.machines)[one.lost].Signal(one.signal);
  }
  for (Case& one : cases) {
    ProgramRun& other = (*one.machines)[1 - one.lost];
    EXPECT_EQ(other.Wait().code, 1) << other.err();
    EXPECT_THAT(other.LastErrorLine(), MatchesRegex("braid launch: " + one.line));
    ProgramRun& lost = (*one.machines)[one.lost];
    if (one.signal == SIGKILL) {
      EXPECT_EQ(lost.Wait().signal, SIGKILL);
      lost.AwaitProcesses(0);
      continue;
    }
    // Its ranks go on as long as it does nothing, but not for longer.
    lost.Signal(SIGCONT);
    EXPECT_EQ(lost.Wait().code, 1);
    EXPECT_THAT(lost.LastErrorLine(), MatchesRegex("braid launch: machine 0 .* lost: .*"));
  }
}

TEST(LaunchMachinesTest, ASignalAtOneEndsAll) {
  for (const auto& [machine, signal] : {std::pair(0, SIGINT), std::pair(1, SIGTERM)}) {
    Machines machines(2);
    machines.StartAll({"--max_restarts=5", "--tag_output"}, Shell("echo started; exec sleep 60"));
    for (const auto& run : machines.all()) run->AwaitOutput("started");
    machines[machine].Signal(signal);
    machines.ExpectEnd(128 + signal, absl::StrCat("machine ", machine, " \\([^)]+\\): ended by ",
                                                  "signal ", signal, " \\(.*\\)"));
  }
}

TEST(LaunchMachinesTest, ASignalEndsThoseThatWaitForOthers) {
  Machines sets[2] = {Machines(3), Machines(3)};
  for (Machines& machines : sets) {
    for (const int number : {0, 1}) machines.Start(number, {}, Shell("true"));
  }
  for (const int signalled : {0, 1}) {
    Machines& machines = sets[signalled];
    machines[0].AwaitError("missing: machine 2");
    machines[signalled].Signal(SIGTERM);
    EXPECT_EQ(machines[signalled].Wait().code, 128 + SIGTERM);
    EXPECT_EQ(machines[signalled].LastErrorLine(), "braid launch: ended by signal 15 (Terminated)");
    ProgramRun& other = machines[1 - signalled];
    EXPECT_EQ(other.Wait().code, 1);
    EXPECT_THAT(
        other.LastErrorLine(),
        ContainsRegex(signalled == 0 ? "error: machine 0 \\(.*\\): its launcher was ended by "
                                       "signal 15 \\(Terminated\\)"
                                     : "error: joining: machine 1 lost: "));
  }
}

TEST(LaunchMachinesTest, ALauncherThatDoesNotComeIsNamed) {
  Machines machines(3);
  // The other one waits for machine 0's.
  ProgramRun& other = machines.Start(1, {}, Shell("true"));
  ProgramRun& master = machines.Start(0, {"--join_timeout=1s"}, Shell("true"));
  for (ProgramRun* run : {&master, &other}) {
    EXPECT_EQ(run->Wait().code, 1);
    EXPECT_THAT(run->LastErrorLine(),
                HasSubstr("machine 2 did not join within 1.0 s (--join_timeout)"));
  }
  Machines alone(2);
  ProgramRun& lonely = alone.Start(1, {"--join_timeout=300ms"}, Shell("true"));
  EXPECT_EQ(lonely.Wait().code, 1);
  EXPECT_THAT(lonely.LastErrorLine(),
              AllOf(HasSubstr("machine 1: joining: did not get through to the master within 0.3 s "
                              "(--join_timeout)"),
                    HasSubstr(absl::StrCat("127.0.0.1:", alone.port()))));
}

TEST(LaunchMachinesTest, LaunchersThatWereToldOtherwiseAreRefused) {
  // The same path leads to one file on machine 0 and to another on machine 1.
  const TempDir folders[2];
  for (const TempDir& folder : folders) {
    PutFile(folder / "program", "#!/bin/sh\n: " + folder.path() + "\n");
    chmod((folder / "program").c_str(), 0700);
  }
  struct Case {
    Words flags, program, other_flags, other_program;
    std::string expected;
  };
  const Words same = {"true"};
  const Case cases[] = {
      {{},
       same,
       {"--nnodes=3"},
       same,
       "counts 3 machines and the master 2; give both the same "
       "--nnodes"},
      {{},
       same,
       {"--nproc_per_node=2"},
       same,
       "was told otherwise: '--nproc_per_node=1' on machine 0, '--nproc_per_node=2' there; give "
       "every launcher the same flags"},
      {{"--max_restarts=2"},
       same,
       {},
       same,
       "'--max_restarts=2' on machine 0, '--max_restarts=0' "},
      {{}, {"true"}, {}, {"false"}, "'program true' on machine 0, 'program false' there"},
      {{}, {"true", "1"}, {}, {"true", "2"}, "'argument 1' on machine 0, 'argument 2' there"},
      {{}, {"true"}, {}, {"true", "more"}, "'no more' on machine 0, 'argument more' there"},
      {{}, {"./program"}, {}, {"./program"}, "'./program: build "},
  };
  for (const Case& one : cases) {
    Machines machines(2);
    for (const int number : {0, 1}) machines.PutInto(number, folders[number].path());
    machines.Start(0, one.flags, one.program);
    machines.Start(1, one.other_flags, one.other_program);
    for (const auto& run : machines.all()) {
      EXPECT_EQ(run->Wait().code, 1) << run->err();
      EXPECT_THAT(run->LastErrorLine(),
                  AllOf(HasSubstr("error: joining: machine 1 ("), HasSubstr(one.expected)));
    }
  }
}

TEST(LaunchMachinesTest, ANumberThatIsTakenIsRefused) {
  Machines machines(3);
  for (const int number : {0, 1, 1}) machines.Start(number, {}, Shell("true"));
  for (const auto& run : machines.all()) {
    EXPECT_EQ(run->Wait().code, 1);
    EXPECT_THAT(run->LastErrorLine(),
                ContainsRegex("node rank 1 is taken twice: by process [0-9]+ on .* and by process "
                              "[0-9]+ on .*; give every process its own --node_rank"));
  }
  // One that comes later changes nothing.
  Machines running(2);
  running.StartAll({"--tag_output"}, Shell("echo started; read -t 60 <> <(:); exit 0"));
  for (const auto& run : running.all()) run->AwaitOutput("started");
  ProgramRun& late =
      running.Start(1, {"--tag_output"}, Shell("echo started; read -t 60 <> <(:); exit 0"));
  EXPECT_EQ(late.Wait().code, 1);
  EXPECT_THAT(late.LastErrorLine(), HasSubstr("node rank 1 is taken twice"));
  EXPECT_EQ(running[0].Processes().size(), running[1].Processes().size());
  ProgramRun& second = running.Start(0, {"--tag_output"}, Shell("true"));
  EXPECT_EQ(second.Wait().code, 1);
  EXPECT_THAT(second.LastErrorLine(),
              AllOf(HasSubstr(absl::StrCat("127.0.0.1:", running.port(), ": another process does")),
                    EndsWith("(--master_port)")));
  EXPECT_THAT(running.Status(),
              MatchesRegex("a launch on 2 machines, restarted 0 of 0 times; its ranks meet at port "
                           "[0-9]+ of machine 0 .*\nmachine 0 .*: its ranks run\nmachine 1 .*: "
                           "its ranks run\n"));
  running[0].Signal(SIGTERM);
  EXPECT_EQ(running[0].Wait().code, 128 + SIGTERM);
  EXPECT_EQ(running[1].Wait().code, 128 + SIGTERM);
}

TEST(LaunchMachinesTest, TheSecretIsProvedAndPassedOn) {
  const TempDir dir;
  const std::string file = dir / "secret";
  PutFile(file, "of the file\n");
  chmod(file.c_str(), 0600);
  const Words tell = Shell("echo [$BRAID_AUTH_TOKEN]");
  {
    Machines machines(2);
    machines.Start(0, {"--auth_token_file=" + file, "--tag_output"}, tell);
    machines.Start(1, {"--tag_output"}, tell,
                   {.environment = {{"BRAID_AUTH_TOKEN", "of the file"}}});
    for (const auto& run : machines.all()) {
      EXPECT_EQ(run->Wait(), ExitStatus{}) << run->err();
      EXPECT_THAT(run->out(), EndsWith("[of the file]\n"));
    }
  }
  Machines machines(2);
  ProgramRun& other = machines.Start(1, {}, tell, {.environment = {{"BRAID_AUTH_TOKEN", "wrong"}}});
  ProgramRun& master = machines.Start(0, {"--auth_token_file=" + file, "--join_timeout=1s"}, tell);
  EXPECT_EQ(other.Wait().code, 1);
  EXPECT_THAT(other.LastErrorLine(), HasSubstr("has another shared secret"));
  EXPECT_EQ(master.Wait().code, 1);
  EXPECT_THAT(master.LastErrorLine(), HasSubstr("machine 1 did not join"));
  // Addresses that others reach need one.
  ProgramRun open({BRAID_TOOL, "launch", "--nnodes=2", "--node_rank=1", "--nproc_per_node=1",
                   "--master_addr=192.0.2.1", "--", "true"},
                  {.environment = {{"BRAID_AUTH_TOKEN", std::nullopt}}});
  EXPECT_EQ(open.Wait().code, 1);
  EXPECT_THAT(open.LastErrorLine(),
              HasSubstr("machine 1 would use 192.0.2.1, which other machines reach, without a "
                        "shared secret; give every machine the same one by BRAID_AUTH_TOKEN"));
}

// Rank 1, of the other machine, is killed after the first epoch, and again after the second; in the
// end the weights are those of a run that nothing disturbed.
TEST(LaunchMachinesTest, RanksGoOnFromTheirCheckpoint) {
  const TempDir dir;
  const auto train = [&](const std::string& name) {
    return absl::StrCat(BRAID_DDP_MNIST, " --epochs=4 --checkpoints=", dir / name,
                        " --weights=", dir / name, ".safetensors");
  };
  ProgramRun undisturbed(
      {BRAID_TOOL, "launch", "--nproc_per_node=2", "--", "bash", "-c", "exec " + train("well")});
  EXPECT_EQ(undisturbed.Wait(), ExitStatus{}) << undisturbed.err();
  Machines machines(2);
  machines.StartAll(
      {"--max_restarts=2"},
      Shell("if [ $RANK = 0 -o $RESTART_COUNT = 2 ]; then exec " + train("killed") + "; fi; " +
            train("killed") + " & until [ -e " + dir / "killed" +
            "/step-$((90 * (RESTART_COUNT + 1))) ]; do sleep 0.01; done; kill -9 $!; wait $!"));
  for (const auto& run : machines.all()) {
    EXPECT_EQ(run->Wait(), ExitStatus{}) << run->err();
    EXPECT_THAT(run->err(), HasSubstr("; restart 2 of 2"));
    EXPECT_THAT(run->err(), ContainsRegex(Rank(1, 1) + " failed first: exit code 137"));
  }
  EXPECT_THAT(machines[0].out(), HasSubstr("epoch 4: "));
  const std::string weights = GetFile(dir / "well.safetensors");
  EXPECT_GT(weights.size(), 1'000'000u);
  EXPECT_TRUE(weights == GetFile(dir / "killed.safetensors"));
}

}  // namespace
}  // namespace braid
