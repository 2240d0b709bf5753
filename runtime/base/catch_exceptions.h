// Where a user's function is called: an exception of theirs is an error like any other.
#pragma once

#include <exception>
#include <string_view>

#include "absl/status/status.h"

namespace braid {

// "WHO threw std::out_of_range: WHAT", of the exception being handled. INTERNAL.
absl::Status ThrownError(std::string_view who);

// What `function` returns, a Status or StatusOr; or its exception as one.
template <typename Function>
auto CatchExceptions(std::string_view who, const Function& function) -> decltype(function()) {
  try {
    return function();
  } catch (...) {
    return ThrownError(who);
  }
}

}  // namespace braid
