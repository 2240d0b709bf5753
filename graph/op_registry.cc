#include "graph/op_registry.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace braid {

absl::Status OpRegistry::Register(OpDef def) {
  BRAID_RETURN_IF_ERROR(def.Validate());
  std::string name = def.name();
  if (!ops_.emplace(name, std::move(def)).second) {
    return absl::AlreadyExistsError(absl::StrCat("operator '", name, "' is registered already"));
  }
  return absl::OkStatus();
}

absl::Status OpRegistry::Replace(OpDef def) {
  BRAID_RETURN_IF_ERROR(def.Validate());
  const auto found = ops_.find(def.name());
  if (found == ops_.end()) {
    return absl::NotFoundError(
        absl::StrCat("operator '", def.name(), "' is not registered: nothing to replace"));
  }
  found->second = std::move(def);
  return absl::OkStatus();
}

const OpDef* OpRegistry::Find(std::string_view name) const {
  auto found = ops_.find(name);
  return found == ops_.end() ? nullptr : &found->second;
}

}  // namespace braid
