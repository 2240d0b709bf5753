// The entry of a Braid program: flags, cluster, session, and what goes wrong, said once.
#pragma once

#include <functional>

#include "absl/status/status.h"
#include "api/session.h"

namespace braid {

// Parses the command line (Abseil flags; --help lists them), starts a Session as they say, calls
// `program` and ends everything. Returns the process's exit code: 0, or 1 after printing the error.
int Main(int argc, char** argv, const std::function<absl::Status(Session&)>& program);

// "cpu:4" -> 4. INVALID_ARGUMENT says what was expected.
absl::StatusOr<int> ParseDevices(const std::string& text);
// "2x3" -> {3, 3}; "1+2" -> {1, 2}: CPU devices of each node.
absl::StatusOr<std::vector<int>> ParseSimulatedNodes(const std::string& text);

}  // namespace braid
