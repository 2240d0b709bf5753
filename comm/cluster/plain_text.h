// Words that users write into files, flags and the environment: how they are read as numbers, and
// how messages show them.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/strings/escaping.h"
#include "absl/strings/string_view.h"

namespace braid {

// A decimal number from `min` to `max`, of digits only: no sign, no blanks.
inline std::optional<int> ParseDecimal(std::string_view text, int min, int max) {
  int value = 0;
  const char* end = text.data() + text.size();
  const auto [last, error] = std::from_chars(text.data(), end, value);
  if (text.starts_with('-') || error != std::errc() || last != end) return std::nullopt;
  if (value < min || value > max) return std::nullopt;
  return value;
}

// What a message quotes: bytes that do not print are escaped, and a long text is cut.
inline std::string Excerpt(std::string_view text) {
  constexpr size_t kMaxBytes = 120;
  const std::string_view head = text.substr(0, kMaxBytes);
  std::string excerpt = absl::CHexEscape(absl::string_view(head.data(), head.size()));
  if (head.size() < text.size()) excerpt += "...";
  return excerpt;
}

}  // namespace braid
