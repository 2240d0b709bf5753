// Statuses in control messages, and what else both ends have to know alike.
#pragma once

#include "absl/status/status.h"
#include "runtime/control.pb.h"

namespace braid {

constexpr uint32_t kControlProtocol = 7;
// The session's phase between what it is told to do.
constexpr const char* kProgramPhase = "waiting for the program";

control::Cause CauseOf(const absl::Status& status, uint16_t node);
absl::Status StatusOf(const control::Cause& cause);
// Of a notice that something failed: never OK.
absl::Status FailureOf(const control::Cause& cause);

}  // namespace braid
