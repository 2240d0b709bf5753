#include "runtime/reports/event_dump.h"

#include <unistd.h>

#include "absl/strings/str_format.h"
#include "runtime/base/status.h"
#include "runtime/files/file.h"

namespace braid {

absl::StatusOr<std::string> WriteEventDump(const std::string& folder, uint16_t node,
                                           std::string_view text) {
  // Another session of this process, or an earlier process of this number, may have left one.
  constexpr int kMaxTries = 1000;
  for (int number = 0;; ++number) {
    std::string path = absl::StrFormat("%s/braid-events-%d-node%d", folder, getpid(), node);
    if (number > 0) absl::StrAppendFormat(&path, "-%d", number);
    path += ".txt";
    absl::StatusOr<OutputFile> file = OutputFile::Create(path);
    if (absl::IsAlreadyExists(file.status()) && number < kMaxTries) continue;
    BRAID_RETURN_IF_ERROR(file.status());
    BRAID_RETURN_IF_ERROR(file->WriteAt(0, text.data(), text.size()));
    return path;
  }
}

}  // namespace braid
