#include "api/tool/output_text.h"

#include <cstddef>

namespace braid {
namespace {

constexpr size_t kMaxKept = size_t{64} << 10;

}  // namespace

void OutputTail::Append(std::string_view bytes) {
  text_ += bytes;
  if (text_.size() <= kMaxKept) return;
  text_.erase(0, text_.size() - kMaxKept);
  is_cut_ = true;
}

std::string_view OutputTail::text() const {
  const std::string_view text = text_;
  if (!is_cut_) return text;
  const size_t line_end = text.find('\n');
  return line_end == std::string_view::npos ? text : text.substr(line_end + 1);
}

std::string_view LastLineWith(std::string_view text, std::string_view prefix) {
  while (!text.empty()) {
    const size_t before = text.rfind('\n');
    std::string_view line = text.substr(before == std::string_view::npos ? 0 : before + 1);
    text.remove_suffix(text.size() - (before == std::string_view::npos ? 0 : before));
    if (line.ends_with('\r')) line.remove_suffix(1);  // as ssh ends its lines
    if (!line.empty() && line.starts_with(prefix)) return line;
  }
  return "";
}

std::string LineTagger::Tag(std::string_view bytes) {
  std::string lines;
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    begun_ += bytes.substr(0, end);
    if (end != std::string_view::npos) {
      lines += tag_ + begun_ + "\n";
      begun_.clear();
      bytes.remove_prefix(end + 1);
      continue;
    }
    if (begun_.size() >= kMaxKept) lines += Finish();
    break;
  }
  return lines;
}

std::string LineTagger::Finish() {
  if (begun_.empty()) return "";
  return tag_ + std::exchange(begun_, "") + "\n";
}

}  // namespace braid
