#include "runtime/reports/control_status.h"

#include "absl/strings/str_format.h"

namespace braid {

control::Cause CauseOf(const absl::Status& status, uint16_t node) {
  control::Cause cause;
  cause.set_code(static_cast<uint32_t>(status.code()));
  cause.set_message(std::string(status.message()));
  cause.set_node(node);
  return cause;
}

absl::Status StatusOf(const control::Cause& cause) {
  return absl::Status(static_cast<absl::StatusCode>(cause.code()), cause.message());
}

absl::Status FailureOf(const control::Cause& cause) {
  absl::Status status = StatusOf(cause);
  if (!status.ok()) return status;
  return absl::InternalError(absl::StrFormat("node %d says that it failed, and no cause: '%s'",
                                             cause.node(), cause.message()));
}

}  // namespace braid
