#include "api/report_flags.h"

#include <filesystem>
#include <system_error>

#include "absl/flags/flag.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "runtime/base/status.h"

ABSL_FLAG(std::optional<absl::Duration>, stall_timeout, std::nullopt,
          "After so long without progress the master, or rank 0, prints what everything waits for. "
          "0: never; not given: 60s");
ABSL_FLAG(std::string, event_dump, "",
          "Folder where a process of a run that fails leaves its last events, in a file that the "
          "error names. Empty: the system's temporary folder; none: no file");

namespace braid {
namespace {

absl::StatusOr<std::string> EventFolder(const std::string& flag) {
  if (flag == "none") return std::string();
  std::error_code error;
  const std::filesystem::path folder =
      flag.empty() ? std::filesystem::temp_directory_path(error) : std::filesystem::path(flag);
  if (flag.empty()) return folder.string();
  if (!std::filesystem::is_directory(folder, error)) {
    return absl::NotFoundError(
        absl::StrFormat("--event_dump=%s is no folder; make it, or give 'none' for no file", flag));
  }
  return flag;
}

}  // namespace

absl::StatusOr<ReportFlags> ReadReportFlags() {
  ReportFlags flags;
  if (const std::optional<absl::Duration> limit = absl::GetFlag(FLAGS_stall_timeout)) {
    if (*limit < absl::ZeroDuration()) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "--stall_timeout=%s; 0 or more was expected, e.g. 60s", absl::FormatDuration(*limit)));
    }
    flags.stall_timeout = absl::ToInt64Nanoseconds(*limit);
  }
  BRAID_ASSIGN_OR_RETURN(flags.event_dump, EventFolder(absl::GetFlag(FLAGS_event_dump)));
  return flags;
}

}  // namespace braid
