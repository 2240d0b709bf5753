#include "api/command_line.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <iostream>
#include <string_view>
#include <vector>

#include "absl/flags/parse.h"
#include "absl/flags/reflection.h"
#include "absl/flags/usage.h"
#include "absl/flags/usage_config.h"
#include "absl/strings/str_format.h"
#include "runtime/base/nearest_names.h"

namespace braid {
namespace {

constexpr char kAbseil[] = "Abseil";

// By what a flag's file is called in --help: the part after the last folder, or Braid.
std::string GroupOf(absl::string_view path) {
  const std::string_view text(path.data(), path.size());
  if (text.ends_with("api/flags.cc")) return "Braid, as every program has them";
  if (text.find("absl/flags/") != std::string_view::npos) return kAbseil;
  return std::string(text.substr(text.rfind('/') + 1));
}

// Abseil's own, --flagfile and the like, are of interest to few; --helpfull lists them.
bool IsListed(absl::string_view group) { return group != kAbseil; }

std::vector<std::string> FlagNames() {
  std::vector<std::string> names;
  for (const auto& [name, flag] : absl::GetAllFlags()) names.push_back("--" + std::string(name));
  return names;
}

}  // namespace

void OpenStandardDescriptors() {
  int descriptor;
  do {
    descriptor = open("/dev/null", O_RDWR);
  } while (descriptor >= 0 && descriptor <= STDERR_FILENO);
  if (descriptor >= 0) close(descriptor);
}

std::string VersionLine() { return "Braid " BRAID_VERSION "\n"; }

void DescribeProgram(const std::string& about) {
  // Abseil takes a message only once, and has this one before.
  const absl::string_view said = absl::ProgramUsageMessage();
  if (said.find("SetProgramUsageMessage() never called") == absl::string_view::npos) return;
  absl::SetProgramUsageMessage(about);
  absl::SetFlagsUsageConfig({.contains_helpshort_flags = IsListed,
                             .contains_help_flags = IsListed,
                             .contains_helppackage_flags = IsListed,
                             .version_string = VersionLine,
                             .normalize_filename = GroupOf});
}

absl::Status CheckFlagNames(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--") break;
    if (word.size() < 2 || word[0] != '-') continue;
    const std::string_view text = word.substr(word[1] == '-' ? 2 : 1);
    const std::string name(text.substr(0, text.find('=')));
    if (name == "undefok") break;  // Abseil's way to allow others
    // Abseil has these without registering them.
    if (name.starts_with("help") || name == "version" || name == "only_check_args") continue;
    const absl::CommandLineFlag* const flag = absl::FindCommandLineFlag(name);
    if (flag != nullptr) {
      // Its value may be the next word, and begin with a dash.
      if (text.size() == name.size() && !flag->IsOfType<bool>()) ++i;
      continue;
    }
    if (name.starts_with("no") && absl::FindCommandLineFlag(name.substr(2)) != nullptr) continue;
    const std::vector<std::string> names = FlagNames();
    return absl::NotFoundError(
        absl::StrFormat("there is no flag --%s; the nearest of %d: %s; --help lists them", name,
                        names.size(), NearestNames("--" + name, names)));
  }
  return absl::OkStatus();
}

absl::Status ParseProgramLine(int argc, char** argv) {
  if (absl::Status known = CheckFlagNames(argc, argv); !known.ok()) return known;
  const std::vector<char*> words = absl::ParseCommandLine(argc, argv);
  if (words.size() < 2) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "'%s' is no flag, and this program takes nothing else; flags are written --name=value, and "
      "--help lists them",
      words[1]));
}

absl::Status FlushStandardOutput() {
  errno = 0;
  const bool is_written = static_cast<bool>(std::cout << std::flush);
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0 && is_written) return absl::OkStatus();
  // The program may have met the error itself, and gone on.
  if (errno == 0) {
    return absl::DataLossError(
        "not all of the standard output could be written: its disk is full, or its reader is gone");
  }
  return absl::ErrnoToStatus(errno, "not all of the standard output could be written");
}

}  // namespace braid
