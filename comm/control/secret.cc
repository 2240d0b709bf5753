#include "comm/control/secret.h"

#include <sys/stat.h>

#include <array>
#include <cstddef>
#include <fstream>
#include <sstream>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"
#include "runtime/base/random_bytes.h"
#include "runtime/base/status.h"

namespace braid {

absl::StatusOr<std::string> MakeSecret() {
  std::array<std::byte, 32> bytes;
  BRAID_RETURN_IF_ERROR(FillRandom(bytes));
  return absl::BytesToHexString(
      std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

absl::StatusOr<std::string> ReadSecret(const std::string& path, const EnvironmentVariables& env) {
  if (path.empty()) return env("BRAID_AUTH_TOKEN").value_or("");
  struct stat status;
  std::ifstream file(path);
  if (!file.is_open() || stat(path.c_str(), &status) != 0) {
    return absl::NotFoundError(absl::StrFormat("--auth_token_file=%s cannot be read", path));
  }
  if ((status.st_mode & 077) != 0) {
    return absl::PermissionDeniedError(absl::StrFormat(
        "--auth_token_file=%s has mode %04o and others may use it; 0600 was expected: chmod 600 %s",
        path, status.st_mode & 07777, path));
  }
  std::stringstream text;
  text << file.rdbuf();
  const std::string secret(absl::StripAsciiWhitespace(text.str()));
  if (secret.empty()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "--auth_token_file=%s is empty; a secret was expected, e.g. of `openssl rand -hex 32`",
        path));
  }
  return secret;
}

absl::StatusOr<std::string> KeepOrMakeSecret(const EnvironmentVariables& env) {
  BRAID_ASSIGN_OR_RETURN(const std::string exported, ReadSecret("", env));
  if (!exported.empty()) return exported;
  return MakeSecret();
}

}  // namespace braid
