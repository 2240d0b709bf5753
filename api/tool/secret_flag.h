// --auth_token_file, of all subcommands that prove a secret.
#pragma once

#include <string>
#include <string_view>

#include "absl/flags/declare.h"

ABSL_DECLARE_FLAG(std::string, auth_token_file);

namespace braid {

constexpr std::string_view kSecretFlagFile = "api/tool/secret_flag.cc";

}  // namespace braid
