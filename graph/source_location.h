// A line of the user's program, for messages.
#pragma once

#include <string>
#include <string_view>

namespace braid {

// As a default argument `SourceLocation where = Here()` it is the caller's line.
struct SourceLocation {
  std::string_view file;  // static storage, or owned by the graph
  int line = 0;
  std::string ToString() const;  // "train.cc:12", the file's last component
};
constexpr SourceLocation Here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  return {file, line};
}

}  // namespace braid
