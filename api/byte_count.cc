#include "api/byte_count.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"

namespace braid {

absl::StatusOr<int64_t> ParseByteCount(std::string_view what, const std::string& text) {
  const std::pair<const char*, int> units[] = {{"KiB", 10}, {"MiB", 20}, {"GiB", 30}, {"TiB", 40}};
  absl::string_view number = text;
  int shift = 0;
  for (const auto& [unit, bits] : units) {
    if (absl::ConsumeSuffix(&number, unit)) shift = bits;
  }
  int64_t count = 0;
  if (!absl::SimpleAtoi(number, &count) || count < 1 || count > INT64_MAX >> shift) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s=%s; a number of bytes was expected, or of KiB, MiB, GiB or TiB: 80GiB",
                        std::string(what), text));
  }
  return count << shift;
}

}  // namespace braid
