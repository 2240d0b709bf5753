#include "api/command_line.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
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
constexpr char kHidden[] = "Braid, as this program does not have them";

// By what a flag's file is called in --help: the part after the last folder, or Braid.
std::string GroupOf(absl::string_view path, std::string_view hidden) {
  const std::string_view text(path.data(), path.size());
  if (!hidden.empty() && text.ends_with(hidden)) return kHidden;
  for (const std::string_view file : {kSessionFlags, kGroupFlags, kNetworkFlags, kReportFlags}) {
    if (text.ends_with(file)) return "Braid, as every program has them";
  }
  if (text.find("absl/flags/") != std::string_view::npos) return kAbseil;
  return std::string(text.substr(text.rfind('/') + 1));
}

// Abseil's own, --flagfile and the like, are of interest to few; --helpfull lists them.
bool IsListed(absl::string_view group) { return group != kAbseil && group != kHidden; }

// The file may be shown as its group already.
bool IsHidden(const absl::CommandLineFlag& flag, std::string_view hidden) {
  const std::string file = flag.Filename();
  return file == kHidden || (!hidden.empty() && file.ends_with(hidden));
}

// Of "--name=value", as of "-name"; "" if it is no flag.
std::string_view FlagNameIn(std::string_view word) {
  if (word.size() < 2 || word[0] != '-') return "";
  word.remove_prefix(word[1] == '-' ? 2 : 1);
  return word.substr(0, word.find('='));
}

// Of the words, as Abseil takes them: a value may be the next word, and begin with a dash.
std::vector<std::string> FlagsAmong(int argc, char** argv) {
  std::vector<std::string> names;
  for (int i = 1; i < argc && std::string_view(argv[i]) != "--"; ++i) {
    const std::string_view word = argv[i];
    if (word.size() < 2 || word[0] != '-') continue;
    const std::string& name = names.emplace_back(FlagNameIn(word));
    const absl::CommandLineFlag* const flag = absl::FindCommandLineFlag(name);
    const bool has_value = word.find('=') != std::string_view::npos;
    if (flag != nullptr && !has_value && !flag->IsOfType<bool>()) ++i;
  }
  return names;
}

// Abseil has these without registering them.
bool IsHelp(std::string_view name) {
  for (const std::string_view help :
       {"help", "helpfull", "helpshort", "helppackage", "helpon", "helpmatch"}) {
    if (name == help) return true;
  }
  return false;
}

std::vector<std::string> FlagNames(std::string_view hidden) {
  std::vector<std::string> names;
  for (const auto& [name, flag] : absl::GetAllFlags()) {
    if (!IsHidden(*flag, hidden)) names.push_back("--" + std::string(name));
  }
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

void DescribeProgram(const std::string& about, std::string_view hidden) {
  // Abseil takes a message only once, and has this one before.
  const absl::string_view said = absl::ProgramUsageMessage();
  if (said.find("SetProgramUsageMessage() never called") == absl::string_view::npos) return;
  absl::SetProgramUsageMessage(about);
  absl::SetFlagsUsageConfig(
      {.contains_helpshort_flags = IsListed,
       .contains_help_flags = IsListed,
       .contains_helppackage_flags = IsListed,
       .version_string = VersionLine,
       .normalize_filename = [hidden](absl::string_view path) { return GroupOf(path, hidden); }});
}

absl::Status CheckFlagNames(int argc, char** argv, std::string_view hidden) {
  const auto find = [hidden](const std::string& name) -> const absl::CommandLineFlag* {
    const absl::CommandLineFlag* const flag = absl::FindCommandLineFlag(name);
    return flag == nullptr || IsHidden(*flag, hidden) ? nullptr : flag;
  };
  for (const std::string& name : FlagsAmong(argc, argv)) {
    if (name == "undefok") break;  // Abseil's way to allow others
    if (IsHelp(name) || name == "version" || name == "only_check_args") continue;
    if (find(name) != nullptr) continue;
    if (name.starts_with("no") && find(name.substr(2)) != nullptr) continue;
    const std::vector<std::string> names = FlagNames(hidden);
    return absl::NotFoundError(
        absl::StrFormat("there is no flag --%s; the nearest of %d: %s; --help lists them", name,
                        names.size(), NearestNames("--" + name, names)));
  }
  return absl::OkStatus();
}

std::vector<char*> ParseFlags(int argc, char** argv) {
  // Abseil ends a program that has shown its help with 1, as if that were a mistake.
  static bool shows_help = false;
  shows_help = std::ranges::any_of(FlagsAmong(argc, argv), IsHelp);
  if (shows_help) {
    std::atexit([] {
      if (shows_help) _exit(FlushStandardOutput().ok() ? 0 : 1);
    });
  }
  const std::vector<char*> words = absl::ParseCommandLine(argc, argv);
  shows_help = false;  // it went on
  return words;
}

absl::Status ParseProgramLine(int argc, char** argv, std::string_view hidden) {
  if (absl::Status known = CheckFlagNames(argc, argv, hidden); !known.ok()) return known;
  const std::vector<char*> words = ParseFlags(argc, argv);
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
