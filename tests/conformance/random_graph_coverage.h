// What compiled jobs made use of: boxing rules, and signatures of operators. It reads the text that
// CompiledJob::Explain gives, so it sees what every user can see.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "graph/op_registry.h"

namespace braid::conformance {

class Coverage {
 public:
  // INVALID_ARGUMENT if the explanation's graph cannot be read back.
  absl::Status Add(const std::string& explanation, const OpRegistry& registry);

  // Rules of BoxingRules() that no transfer was routed by.
  std::vector<std::string> MissingRules() const;
  // Kinds of signatures that were legal somewhere and never chosen, as "relu B->B", and their share
  // of all.
  std::vector<std::string> MissingSignatures() const;
  double MissingShare() const;
  // A line per rule with its transfers, then per operator the kinds of signatures that were chosen
  // and those that were legal somewhere and never chosen. A kind is a signature without its axes.
  std::string Report() const;

 private:
  int CountOf(const std::string& op, const std::string& kind) const;
  size_t KnownSignatures() const;

  std::map<std::string, int, std::less<>> rules_;
  std::map<std::string, std::map<std::string, int>> chosen_;  // by operator and kind
  std::map<std::string, std::set<std::string>> legal_;
};

}  // namespace braid::conformance
