#include "runtime/device/stream.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace braid {

absl::Status NameFailure(const WorkName& name, const absl::Status& status) {
  // Kernels begin their messages so, too.
  std::string message(status.message());
  if (!message.starts_with(name.what + ":")) message = absl::StrCat(name.what, ": ", message);
  return absl::Status(status.code(), absl::StrCat(message, " (", name.location, ")"));
}

}  // namespace braid
