#include "runtime/actions/captured_calls.h"

#include <algorithm>

namespace braid {
namespace {

// Of one range: where registers have more slots than this, acts launch call by call.
constexpr size_t kMostLaunches = 64;

}  // namespace

CapturedCalls::CapturedCalls(Stream* stream, const std::vector<bool>& are_repeatable)
    : stream_(*stream) {
  if (!stream_.CanCapture()) return;
  for (size_t begin = 0; begin < are_repeatable.size();) {
    size_t end = begin;
    while (end < are_repeatable.size() && are_repeatable[end]) ++end;
    if (end - begin > 1) ranges_.push_back({.begin = begin, .end = end});
    begin = end + 1;
  }
}

CapturedCalls::Range* CapturedCalls::At(size_t call) {
  const auto found = std::ranges::lower_bound(ranges_, call, {}, &Range::begin);
  return found != ranges_.end() && found->begin == call ? &*found : nullptr;
}

absl::Status CapturedCalls::Run(Range& range, const Act& act,
                                absl::FunctionRef<absl::Status()> run) {
  if (range.launches.size() == kMostLaunches && !range.launches.contains(act)) return run();
  Range::Launch& launch = range.launches[act];
  if (!launch.has_run) {
    launch.has_run = true;
    return run();
  }
  if (!launch.is_captured) {
    launch.is_captured = true;
    if (stream_.BeginCapture()) {
      const absl::Status status = run();
      launch.work = stream_.EndCapture();
      // Nothing was done: what is wrong with it is seen when it is.
      if (!status.ok()) launch.work = nullptr;
    }
  }
  if (launch.work == nullptr) return run();
  stream_.Launch(*launch.work);
  return absl::OkStatus();
}

}  // namespace braid
