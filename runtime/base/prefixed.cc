#include "runtime/base/prefixed.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace braid {

absl::Status Prefixed(std::string_view what, const absl::Status& status) {
  return absl::Status(status.code(),
                      absl::StrCat(std::string(what), ": ", std::string(status.message())));
}

}  // namespace braid
