#include "compiler/boxing/rules.h"

namespace braid::compiler {

std::span<const BoxingRule> BoxingRules() {
  // The planner asks the first whether anything needs doing, and falls back on the last.
  static const BoxingRule kRules[] = {
      IdentityRule(),      RelayoutRule(), AllReduceRule(),     AllGatherRule(),
      ReduceScatterRule(), AllToAllRule(), SliceExchangeRule(),
  };
  return kRules;
}

}  // namespace braid::compiler
