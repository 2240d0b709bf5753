// Status macros: the one way an error that a user, file, network or peer can cause travels.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// Returns from the enclosing function if `expr` is an error.
#define BRAID_RETURN_IF_ERROR(expr)                                                     \
  do {                                                                                  \
    if (absl::Status braid_status_ = (expr); !braid_status_.ok()) return braid_status_; \
  } while (false)

// BRAID_ASSIGN_OR_RETURN(auto x, F()): x is F()'s value, or the error is returned. Any number of
// them may stand on a line.
#define BRAID_ASSIGN_OR_RETURN(lhs, expr) \
  BRAID_ASSIGN_OR_RETURN_(BRAID_CONCAT_(braid_result_, __COUNTER__), lhs, expr)

#define BRAID_CONCAT_INNER_(a, b) a##b
#define BRAID_CONCAT_(a, b) BRAID_CONCAT_INNER_(a, b)
#define BRAID_ASSIGN_OR_RETURN_(result, lhs, expr)     \
  auto result = (expr);                                \
  if (!result.ok()) return std::move(result).status(); \
  lhs = *std::move(result)
