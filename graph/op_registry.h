// The operators that a Session knows. An object, not a global: users add their own.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "graph/op_def.h"

namespace braid {

class OpRegistry {
 public:
  // ALREADY_EXISTS for a name taken; INVALID_ARGUMENT without a rule or inference function, without
  // a gradient or NoGradient, or without a sample unless External.
  absl::Status Register(OpDef def);
  // What a kind of device makes of a definition, in place of it: of the same name.
  // INVALID_ARGUMENT as above, NOT_FOUND if there is none.
  absl::Status Replace(OpDef def);
  const OpDef* Find(std::string_view name) const;  // nullptr if unknown
  const std::map<std::string, OpDef, std::less<>>& ops() const { return ops_; }

 private:
  std::map<std::string, OpDef, std::less<>> ops_;
};

// Every operator that comes with Braid: the list is graph/ops/all.cc.
OpRegistry BuiltinOps();

}  // namespace braid
