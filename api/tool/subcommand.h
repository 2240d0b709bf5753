// A verb of the `braid` tool, as its table in main.cc lists them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace braid {

struct ToolArguments {
  std::vector<std::string> words;    // between the verb and `--`, flags aside
  std::vector<std::string> program;  // what came after `--`
};

struct Subcommand {
  std::string_view name;
  std::string_view summary;  // its line of `braid --help`; without one it is not listed
  std::string_view usage;    // what `braid NAME --help` says before the flags
  std::string_view file;     // where its flags are defined: "api/tool/launch.cc"
  int (*run)(const ToolArguments& arguments);  // returns the exit code; flags are parsed
};

}  // namespace braid
