// The secret that the nodes of a cluster share.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "comm/cluster/launcher_environment.h"

namespace braid {

// 256 random bits in hexadecimal.
absl::StatusOr<std::string> MakeSecret();

// What `file` holds, which nobody but its owner may use; if it is "", the environment's
// BRAID_AUTH_TOKEN; if there is none, "". Errors name the flag --auth_token_file.
absl::StatusOr<std::string> ReadSecret(const std::string& file, const EnvironmentVariables& env);

// For those who start all processes of a cluster: BRAID_AUTH_TOKEN if it is exported, so that
// others who know it may ask as well, else a fresh one.
absl::StatusOr<std::string> KeepOrMakeSecret(const EnvironmentVariables& env);

}  // namespace braid
