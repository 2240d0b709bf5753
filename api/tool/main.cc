// The `braid` tool: its verbs, and how a command line is divided among them.

#include <glog/logging.h>
#include <signal.h>

#include <algorithm>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "absl/flags/usage.h"
#include "absl/flags/usage_config.h"
#include "absl/strings/str_format.h"
#include "api/command_line.h"
#include "api/tool/bench.h"
#include "api/tool/launch.h"
#include "api/tool/node.h"
#include "api/tool/onnx.h"
#include "api/tool/status.h"
#include "api/tool/subcommand.h"
#include "runtime/base/nearest_names.h"

namespace braid {
namespace {

std::vector<Subcommand> Subcommands() {
  return {LaunchSubcommand(), StatusSubcommand(), BenchSubcommand(), OnnxSubcommand(),
          NodeSubcommand()};
}

void PrintSubcommands(std::ostream& out) {
  out << "usage: braid SUBCOMMAND [FLAGS]; braid SUBCOMMAND --help lists the flags\n";
  for (const Subcommand& subcommand : Subcommands()) {
    if (subcommand.summary.empty()) continue;
    out << absl::StrFormat("  %-8s %s\n", subcommand.name, subcommand.summary);
  }
}

// Abseil knows one set of flags; of these, --help shows the subcommand's own.
void SetHelp(const Subcommand& subcommand) {
  absl::SetProgramUsageMessage(std::string(subcommand.usage));
  const auto normalize = [](absl::string_view path) {
    const std::string_view text(path.data(), path.size());
    const size_t begin = text.rfind("api/tool/");
    return std::string(begin == std::string_view::npos ? text : text.substr(begin));
  };
  const auto is_own = [normalize, files = subcommand.files](absl::string_view path) {
    return std::ranges::find(files, normalize(path)) != files.end();
  };
  absl::SetFlagsUsageConfig({.contains_helpshort_flags = is_own,
                             .contains_help_flags = is_own,
                             .contains_helppackage_flags = is_own,
                             .version_string = VersionLine,
                             .normalize_filename = normalize});
}

int RunTool(int argc, char** argv) {
  const std::string_view name = argc > 1 ? argv[1] : "";
  if (name.empty() || name == "help" || name == "--help" || name == "-h") {
    PrintSubcommands(name.empty() ? std::cerr : std::cout);
    return name.empty() ? 1 : 0;
  }
  if (name == "--version") {
    std::cout << VersionLine();
    return 0;
  }
  const std::vector<Subcommand> subcommands = Subcommands();
  const auto subcommand = std::find_if(subcommands.begin(), subcommands.end(),
                                       [&](const Subcommand& s) { return s.name == name; });
  if (subcommand == subcommands.end()) {
    std::vector<std::string> names;
    for (const Subcommand& other : subcommands) {
      if (!other.summary.empty()) names.emplace_back(other.name);
    }
    std::cerr << "error: '" << name
              << "' is no subcommand of braid; the nearest: " << NearestNames(name, names) << "\n";
    PrintSubcommands(std::cerr);
    return 1;
  }
  if (subcommand->files.empty()) return subcommand->run({.words = {argv + 2, argv + argc}});
  SetHelp(*subcommand);
  // What comes after `--` belongs to the program.
  char** const end = argv + argc;
  char** const separator =
      std::find_if(argv + 2, end, [](const char* word) { return std::string_view(word) == "--"; });
  ToolArguments arguments;
  if (separator != end) arguments.program.assign(separator + 1, end);
  std::string title = "braid " + std::string(name);  // of --help
  std::vector<char*> own(argv + 1, separator);
  own[0] = title.data();
  if (const absl::Status known = CheckFlagNames(static_cast<int>(own.size()), own.data());
      !known.ok()) {
    std::cerr << "error: " << known.message() << "\n";
    return 1;
  }
  const std::vector<char*> words = ParseFlags(static_cast<int>(own.size()), own.data());
  arguments.words.assign(words.begin() + 1, words.end());
  return subcommand->run(arguments);
}

}  // namespace
}  // namespace braid

int main(int argc, char** argv) {
  braid::OpenStandardDescriptors();
  google::InitGoogleLogging(argv[0]);
  FLAGS_logtostderr = true;
  // How children end is asked for; whoever started this may ignore it.
  signal(SIGCHLD, SIG_DFL);
  return braid::RunTool(argc, argv);
}
