#include "runtime/control_status.h"

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

}  // namespace braid
