// What the tool does with the text that nodes print: keeps its end, cuts it into tagged lines.
#pragma once

#include <string>
#include <string_view>
#include <utility>

namespace braid {

// The last 64 KiB of a text.
class OutputTail {
 public:
  void Append(std::string_view bytes);
  // What is kept: all, or from the beginning of a line if the text was cut.
  std::string_view text() const;
  bool is_cut() const { return is_cut_; }

 private:
  std::string text_;
  bool is_cut_ = false;
};

// The last line of `text` that is not empty and begins with `prefix`, or "".
std::string_view LastLineWith(std::string_view text, std::string_view prefix);

// Cuts a text that comes in pieces into lines and puts a tag before each.
class LineTagger {
 public:
  explicit LineTagger(std::string tag) : tag_(std::move(tag)) {}
  // The lines that `bytes` ends. A beginning of a line waits for its end, up to 64 KiB.
  std::string Tag(std::string_view bytes);
  // What is left, as a line.
  std::string Finish();

 private:
  const std::string tag_;
  std::string begun_;
};

}  // namespace braid
