// Statuses in control messages.
#pragma once

#include "absl/status/status.h"
#include "runtime/control.pb.h"

namespace braid {

constexpr uint32_t kControlProtocol = 2;

control::Cause CauseOf(const absl::Status& status, uint16_t node);
absl::Status StatusOf(const control::Cause& cause);
// Of a notice that something failed: never OK.
absl::Status FailureOf(const control::Cause& cause);

}  // namespace braid
