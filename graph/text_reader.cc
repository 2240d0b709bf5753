#include "graph/text_reader.h"

#include <cctype>
#include <charconv>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace braid {
namespace {

bool IsWordCharacter(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.' || c == '+' ||
         c == '-';
}

}  // namespace

void TextReader::SkipSpaces() {
  while (!rest_.empty() && std::isspace(static_cast<unsigned char>(rest_.front()))) {
    rest_.remove_prefix(1);
  }
}

bool TextReader::AtEnd() {
  SkipSpaces();
  return rest_.empty();
}

char TextReader::Peek() { return AtEnd() ? '\0' : rest_.front(); }

bool TextReader::Consume(std::string_view literal) {
  SkipSpaces();
  if (!rest_.starts_with(literal)) return false;
  rest_.remove_prefix(literal.size());
  return true;
}

absl::Status TextReader::Expect(std::string_view literal) {
  if (Consume(literal)) return absl::OkStatus();
  return Error(absl::StrFormat("'%s'", literal));
}

absl::Status TextReader::ExpectEnd() {
  return AtEnd() ? absl::OkStatus() : Error("the end of the text");
}

absl::StatusOr<int64_t> TextReader::Int() {
  SkipSpaces();
  int64_t value = 0;
  auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
  if (error != std::errc()) return Error("an integer");
  rest_.remove_prefix(end - rest_.data());
  return value;
}

absl::StatusOr<std::string> TextReader::Word() {
  SkipSpaces();
  size_t size = 0;
  while (size < rest_.size() && IsWordCharacter(rest_[size])) ++size;
  if (size == 0) return Error("a word");
  std::string word(rest_.substr(0, size));
  rest_.remove_prefix(size);
  return word;
}

absl::StatusOr<std::string> TextReader::Quoted() {
  SkipSpaces();
  if (!rest_.starts_with('"')) return Error("a quoted string");
  size_t end = 1;
  while (end < rest_.size() && rest_[end] != '"') end += rest_[end] == '\\' ? 2 : 1;
  if (end >= rest_.size()) return Error("a closing quote");
  std::string value;
  if (!absl::CUnescape(std::string(rest_.substr(1, end - 1)), &value)) {
    return Error("a string with C escapes");
  }
  rest_.remove_prefix(end + 1);
  return value;
}

std::string_view TextReader::Rest() {
  SkipSpaces();
  std::string_view rest = rest_;
  rest_ = {};
  return rest;
}

absl::Status TextReader::Error(std::string_view expected) const {
  constexpr size_t kShown = 40;
  std::string found = rest_.empty() ? "the end" : absl::StrFormat("'%s'", rest_.substr(0, kShown));
  return absl::InvalidArgumentError(absl::StrFormat("expected %s, found %s", expected, found));
}

std::string Quote(std::string_view text) {
  return absl::StrCat("\"", absl::CEscape(std::string(text)), "\"");
}

}  // namespace braid
