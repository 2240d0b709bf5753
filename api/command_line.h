// A program's command line: what --help says, and words that mean nothing.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace braid {

// Descriptors 0, 1 and 2 are open from here on: no other file takes their place.
void OpenStandardDescriptors();

// Both kinds of programs may be linked with the flags of both, which are told apart by the source
// files that define them. Those of the other kind are `hidden`: as if they were not there.
constexpr std::string_view kSessionFlags = "api/flags.cc";
constexpr std::string_view kGroupFlags = "api/dist_main.cc";
// Of both.
constexpr std::string_view kNetworkFlags = "api/network_flags.cc";
constexpr std::string_view kReportFlags = "api/report_flags.cc";

// What --version prints.
std::string VersionLine();

// For --help, which says `about` and lists the program's flags and Braid's, by file, and --version.
// What the program said to Abseil itself stays.
void DescribeProgram(const std::string& about, std::string_view hidden);

// NOT_FOUND names the first flag that there is not, and the nearest. `argv` ends as main's does.
absl::Status CheckFlagNames(int argc, char** argv, std::string_view hidden = "");

// Parses Abseil's flags, and returns the program's name and the words that are none. --help and
// --version end the process, with exit code 0 whatever else is asked; a value that a flag cannot
// have does so with 1.
std::vector<char*> ParseFlags(int argc, char** argv);

// The same for a program that takes flags only. INVALID_ARGUMENT for another word, besides what
// CheckFlagNames returns.
absl::Status ParseProgramLine(int argc, char** argv, std::string_view hidden);

// What was written to standard output has arrived there, or why not.
absl::Status FlushStandardOutput();

}  // namespace braid
