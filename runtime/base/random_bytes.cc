#include "runtime/base/random_bytes.h"

#include <sys/random.h>

#include <cerrno>

namespace braid {

absl::Status FillRandom(std::span<std::byte> bytes) {
  if (getrandom(bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size())) {
    return absl::OkStatus();
  }
  return absl::ErrnoToStatus(errno, "the system gives no random numbers");
}

}  // namespace braid
