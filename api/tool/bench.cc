#include "api/tool/bench.h"

#include <string.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "comm/cluster/launcher_environment.h"

namespace braid {
namespace {

constexpr char kProgram[] = "braid_bench";

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

// What is asked for is done by a program of process groups, which this tool is not: it has no
// runtime.
int Run(const ToolArguments& arguments) {
  std::error_code error;
  const std::filesystem::path own = std::filesystem::read_symlink("/proc/self/exe", error);
  std::string path = (own.parent_path() / kProgram).string();
  std::vector<std::string> words = WordsOfProgram(arguments.words);
  std::vector<char*> argv = {path.data()};
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  execv(path.c_str(), argv.data());
  std::cerr << "error: braid bench: cannot start " << path << ": " << strerror(errno) << "\n";
  return 1;
}

}  // namespace

Subcommand BenchSubcommand() {
  return {.name = "bench",
          .summary = "measures a collective between processes of this machine",
          .usage = "",
          .file = "",
          .run = Run};
}

}  // namespace braid
