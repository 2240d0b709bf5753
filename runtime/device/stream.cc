#include "runtime/device/stream.h"

#include "absl/strings/str_format.h"

namespace braid {

absl::Status NameFailure(const WorkName& name, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrFormat("%s: %s (%s)", name.what,
                                                     std::string(status.message()), name.location));
}

}  // namespace braid
