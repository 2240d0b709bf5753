#include "api/rank_report.h"

#include <signal.h>

#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "api/world_error.h"
#include "runtime/base/prefixed.h"

namespace braid::dist {
namespace {

// A message may be as long as somebody makes it; nobody reads further.
constexpr size_t kMostMessageBytes = 64 << 10;

struct Returned {
  absl::Status status;
  Nanoseconds when = 0;
};

// "CODE WHEN OF_WORLD BYTES\n" and the message.
std::optional<Returned> ParseRankReport(const std::string& text) {
  const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits('\n', 1));
  const std::vector<std::string> numbers = absl::StrSplit(parts.first, ' ');
  int code = 0, is_of_world = 0;
  Returned returned;
  size_t bytes = 0;
  if (numbers.size() != 4 || !absl::SimpleAtoi(numbers[0], &code) ||
      !absl::SimpleAtoi(numbers[1], &returned.when) ||
      !absl::SimpleAtoi(numbers[2], &is_of_world) || !absl::SimpleAtoi(numbers[3], &bytes) ||
      parts.second.size() != bytes) {
    return std::nullopt;
  }
  returned.status = absl::Status(static_cast<absl::StatusCode>(code), parts.second);
  if (is_of_world != 0) returned.status = MarkWorldError(std::move(returned.status));
  return returned;
}

}  // namespace

std::string FormatRankReport(const absl::Status& status, Nanoseconds when) {
  const std::string message = std::string(status.message()).substr(0, kMostMessageBytes);
  return absl::StrFormat("%d %d %d %d\n%s", static_cast<int>(status.code()), when,
                         IsWorldError(status) ? 1 : 0, message.size(), message);
}

RankFailure FailureOf(int rank, const ExitStatus& end, const std::string& report, Nanoseconds now) {
  const std::string name = absl::StrFormat("rank %d", rank);
  if (end.signal != 0) {
    return {.kind = end.signal == SIGABRT ? FailureKind::kGaveUp : FailureKind::kEnded,
            .when = now,
            .status = absl::AbortedError(
                absl::StrFormat("%s was ended by %s", name, DescribeSignal(end.signal)))};
  }
  const std::optional<Returned> returned = ParseRankReport(report);
  if (!returned.has_value()) {
    return {.kind = FailureKind::kGaveUp,
            .when = now,
            .status = absl::AbortedError(absl::StrFormat(
                "%s ended by itself before its function had returned: %s", name, end.ToString()))};
  }
  return {.kind = IsWorldError(returned->status) ? FailureKind::kOfWorld : FailureKind::kReturned,
          .when = returned->when,
          .status = Prefixed(name, returned->status)};
}

}  // namespace braid::dist
