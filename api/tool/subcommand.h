// A verb of the `braid` tool, as its table in main.cc lists them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace braid {

struct ToolArguments {
  std::vector<std::string> words;    // between the verb and `--`, flags aside unless it is whole
  std::vector<std::string> program;  // what came after `--`
};

struct Subcommand {
  std::string_view name;
  std::string_view summary;  // its line of `braid --help`; without one it is not listed
  std::string_view usage;    // what `braid NAME --help` says before the flags
  // Where its flags are defined: "api/tool/launch.cc"; none: it has none, and is given whole what
  // comes after the verb.
  std::vector<std::string_view> files;
  int (*run)(const ToolArguments& arguments);  // returns the exit code; flags are parsed
};

}  // namespace braid
