#include "api/tool/bench.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/tool/beside.h"
#include "comm/cluster/launcher_environment.h"

namespace braid {
namespace {

// A launcher says how many ranks there are; one that says it wrong, too.
bool HasLauncher() {
  if (EnvironmentVariable("RANK").has_value()) return true;
  const absl::StatusOr<std::optional<Launcher>> launcher = FindLauncher(EnvironmentVariable);
  return !launcher.ok() || launcher->has_value();
}

// The program's own words for what is said here: the collective, which comes first, is a flag, and
// so is the number of ranks, of which there are two unless a launcher says.
std::vector<std::string> WordsOfProgram(const std::vector<std::string>& words) {
  constexpr std::string_view kRanks = "--ranks";
  std::vector<std::string> of_program;
  bool says_ranks = HasLauncher();
  for (const std::string& word : words) {
    if (of_program.empty() && !word.starts_with('-')) {
      of_program.push_back("--collective=" + word);
    } else if (word == kRanks || word.starts_with(std::string(kRanks) + "=")) {
      of_program.push_back("--spawn" + word.substr(kRanks.size()));
      says_ranks = true;
    } else {
      of_program.push_back(word);
    }
  }
  if (!says_ranks) of_program.emplace_back("--spawn=2");
  return of_program;
}

// What is asked for is done by a program of process groups.
int Run(const ToolArguments& arguments) {
  return BecomeProgram("bench", "braid_bench", WordsOfProgram(arguments.words),
                       "build it: cmake --build --preset release --target braid_bench");
}

}  // namespace

Subcommand BenchSubcommand() {
  return {.name = "bench",
          .summary = "measures a collective between processes of this machine",
          .usage = "",
          .files = {},
          .run = Run};
}

}  // namespace braid
