// The source tree as the house test reads it: files as lines, with and without comments.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace braid::house {

struct Include {
  size_t line;
  std::string path;  // <braid/braid.h> is "api/include/braid/braid.h"
  bool is_quoted;
};

// A C++ file: its lines as written, and without comments and the contents of string literals.
struct Source {
  std::string path;  // from the root: "graph/sbp.cc"
  std::vector<std::string> lines;
  std::vector<std::string> code;

  bool IsHeader() const { return path.ends_with(".h"); }
  // `folder` may be several deep: "runtime/base".
  bool IsIn(std::string_view folder) const { return path.starts_with(std::string(folder) + "/"); }
  std::string At(size_t line) const { return path + ":" + std::to_string(line + 1) + ": "; }
  std::vector<Include> Includes() const;
};

std::string ReadFile(const std::filesystem::path& path);
std::vector<std::string> Lines(const std::string& text);
// Blanks comments, and what is inside string and character literals unless they are kept; lines
// stay where they are.
enum class Literals { kBlank, kKeep };
std::string StripComments(const std::string& text, Literals literals = Literals::kBlank);

// A function with a body: where its block begins, how many lines that has.
struct Function {
  size_t line;
  size_t length;
  std::string head;      // what stands before the block
  bool is_data = false;  // all that it does is to return a list: a table of cases
};
// By a simple reader: blocks that begin on a line indented by 4 or less, but for namespaces, types
// and lists.
std::vector<Function> FunctionsOf(const std::vector<std::string>& code);

// Every C++ file under the given folders of `root`, by path.
std::vector<Source> ReadSources(const std::filesystem::path& root,
                                const std::vector<std::string>& folders);

}  // namespace braid::house
