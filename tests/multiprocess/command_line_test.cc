// What users type: a program's help, flags that there are not, standard descriptors that are closed
// or full.

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/multiprocess/program_run.h"

namespace braid {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Not;

struct Ended {
  int code = 0;
  std::string out, err;
};

Ended Run(std::vector<std::string> command) {
  ProgramRun run(std::move(command));
  const ExitStatus status = run.Wait();
  EXPECT_EQ(status.signal, 0);
  return {status.code, run.out(), run.err()};
}

Ended RunMnist(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), BRAID_MNIST);
  return Run(std::move(arguments));
}

// Of a shell, in which $mnist is the program.
Ended RunShell(const std::string& line) {
  return Run({"/bin/sh", "-c", absl::StrCat("mnist=", BRAID_MNIST, "; ", line)});
}

TEST(CommandLineTest, HelpSaysWhatAProgramDoesAndListsAllFlags) {
  const Ended help = RunMnist({"--help"});
  EXPECT_THAT(help.out,
              AllOf(HasSubstr("mnist: Trains an MLP on handwritten digits"),
                    HasSubstr("Flags from mnist.cc:"), HasSubstr("--micro_batches (Parts"),
                    HasSubstr("Flags from Braid, as every program has them:"),
                    HasSubstr("--nodes (Node list file"), Not(HasSubstr("/examples/")),
                    Not(HasSubstr("--fromenv")), Not(HasSubstr("Warning"))));
  EXPECT_EQ(help.err, "");
  EXPECT_EQ(help.code, 0);
  EXPECT_THAT(RunMnist({"--helpfull"}).out,
              AllOf(HasSubstr("Flags from Abseil:"), Not(HasSubstr(".cc:/"))));
  EXPECT_THAT(RunMnist({"--version"}).out, MatchesRegex("Braid [0-9]+\\.[0-9]+\\.[0-9]+\n"));
}

TEST(CommandLineTest, WordsThatMeanNothingAreErrors) {
  const std::pair<std::string, std::string> mistakes[] = {
      {"--stepz=3", "error: there is no flag --stepz; the nearest of "},
      {"-stepz", "--steps"},
      {"--nodry_runs", "--dry_run"},
      {"stray", "error: 'stray' is no flag, and this program takes nothing else"},
      {"--threads_per_device=100000", "error: --threads_per_device=100000; 1 to 1024 was expected"},
      {"--steps=-1", "--steps"},
  };
  for (const auto& [word, says] : mistakes) {
    const Ended ended = RunMnist({word});
    EXPECT_EQ(ended.code, 1) << word;
    EXPECT_THAT(ended.err, HasSubstr(says));
    EXPECT_EQ(ended.out, "") << word;
  }
  // What is meant, and is a value that begins with a dash.
  EXPECT_EQ(RunMnist({"--nodry_run", "--steps", "2", "-lr", "1e-3", "--braid_seed", "3"}).code, 0);
}

TEST(CommandLineTest, ClosedDescriptorsAreNotTaken) {
  const Ended ended = RunShell("$mnist --steps=2 --simulate_nodes=2x1 <&- >&- 2>&-");
  EXPECT_EQ(ended.code, 0);
  EXPECT_EQ(ended.out, "");
}

TEST(CommandLineTest, OutputThatIsLostIsAnError) {
  const Ended ended = RunShell("$mnist --steps=2 >/dev/full");
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.err, HasSubstr("error: not all of the standard output could be written: "));
}

TEST(CommandLineTest, AFileThatMayNotGrowIsAnErrorAndNoSignal) {
  const TempDir folder;
  const Ended ended = RunShell(absl::StrCat(
      "ulimit -f 4; $mnist --steps=2000 --metrics_json=", folder.path(), "/metrics.json"));
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.err, HasSubstr("metrics.json: not all lines could be written: File too large"));
}

}  // namespace
}  // namespace braid
