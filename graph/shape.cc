#include "graph/shape.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace braid {

std::string Shape::ToString() const {
  const auto add = [](std::string* out, int64_t size) {
    if (size == kNoAxis) return absl::StrAppend(out, "(of an axis that is not there)");
    absl::StrAppend(out, size);
  };
  return absl::StrCat("[", absl::StrJoin(dims_, ", ", add), "]");
}

}  // namespace braid
