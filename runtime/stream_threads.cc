#include "runtime/stream_threads.h"

#include "absl/strings/str_format.h"
#include "runtime/base/status.h"
#include "runtime/base/thread_limit.h"

namespace braid {

absl::Status StreamThreads::Start(const std::set<uint16_t>& numbers) {
  std::set<uint16_t> missing;
  for (const uint16_t number : numbers) {
    if (!reactors_.contains(number)) missing.insert(number);
  }
  if (!environment_.is_simulated()) {
    BRAID_RETURN_IF_ERROR(CheckThreads(static_cast<int>(missing.size())));
  }
  for (const uint16_t number : missing) {
    reactors_[number] = environment_.StartReactor(absl::StrFormat("node %d t%d", node_, number));
  }
  return absl::OkStatus();
}

}  // namespace braid
