// A cursor over the text forms of graph values: what every Parse of this folder reads with.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace braid {

// Every call first skips spaces. Errors are INVALID_ARGUMENT and say what was expected and where.
class TextReader {
 public:
  explicit TextReader(std::string_view text) : rest_(text) {}  // the text is borrowed

  bool AtEnd();
  // The next character, 0 at the end.
  char Peek();
  // Whether the text goes on with `literal`; if so, moves behind it.
  bool Consume(std::string_view literal);
  absl::Status Expect(std::string_view literal);
  absl::Status ExpectEnd();

  absl::StatusOr<int64_t> Int();
  // Letters, digits, '_', '.', '+' and '-': a name, a keyword or a number.
  absl::StatusOr<std::string> Word();
  absl::StatusOr<std::string> Quoted();  // what Quote wrote
  std::string_view Rest();               // all that is left, and moves to the end

  absl::Status Error(std::string_view expected) const;

 private:
  void SkipSpaces();
  std::string_view rest_;
};

std::string Quote(std::string_view text);  // in double quotes, C escapes

}  // namespace braid
