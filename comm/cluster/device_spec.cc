#include "comm/cluster/device_spec.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "comm/cluster/plain_text.h"

namespace braid {
namespace {

constexpr int kMaxDevices = 4096;  // of a node

absl::Status NotDevices(std::string_view text, std::string_view expected) {
  return absl::InvalidArgumentError(
      absl::StrFormat("'%s' is no device list; %s", Excerpt(text), expected));
}

}  // namespace

std::string DeviceSpec::ToString() const {
  if (is_auto()) return type;
  return card < 0 ? absl::StrFormat("%s:%d", type, count)
                  : absl::StrFormat("%s:%d@%d", type, count, card);
}

absl::StatusOr<DeviceSpec> ParseDeviceSpec(const std::string& text) {
  DeviceSpec spec;
  if (text == DeviceSpec::kAuto) {
    spec.type = text;
    spec.count = 0;
    return spec;
  }
  const size_t colon = text.find(':');
  spec.type = text.substr(0, colon);
  const bool is_cuda = spec.type == "cuda";
  const bool is_word = !spec.type.empty() && std::ranges::all_of(spec.type, absl::ascii_islower);
  const std::string_view expected =
      is_cuda ? "cuda:N or cuda:N@CARD was expected, e.g. cuda:2@0 for two devices on card 0"
              : "cpu:N was expected, e.g. cpu:4 for four CPU devices, or auto";
  if (!is_word || colon == std::string::npos) {
    return NotDevices(text, expected);
  }
  if (spec.is_auto()) {
    return NotDevices(text,
                      "auto alone was expected, which is a CPU device for each processor, or "
                      "a number of them, e.g. cpu:4");
  }
  const std::string_view numbers = std::string_view(text).substr(colon + 1);
  const size_t at = numbers.find('@');
  const std::string_view digits = numbers.substr(0, at);
  constexpr int kMax = std::numeric_limits<int>::max();
  const std::optional<int> count = ParseDecimal(digits, 1, kMaxDevices);
  if (!count.has_value()) {
    const bool is_number =
        !digits.empty() && digits.find_first_not_of("0123456789") == std::string_view::npos;
    if (!is_number) return NotDevices(text, expected);
    return NotDevices(text, absl::StrFormat("1 to %d devices were expected", kMaxDevices));
  }
  spec.count = *count;
  if (at == std::string_view::npos) return spec;
  const std::optional<int> card = ParseDecimal(numbers.substr(at + 1), 0, kMax);
  if (!is_cuda || !card.has_value()) return NotDevices(text, expected);
  spec.card = *card;
  return spec;
}

}  // namespace braid
