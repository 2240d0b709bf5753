// Checks of how many inputs an operator has and of which element types. Errors of one input say its
// letter: 'a' for the first, 'b' for the second.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "graph/factor_rule.h"

namespace braid {

absl::Status CheckInputs(const OpContext& ctx, int count);
absl::Status CheckFloating(const OpContext& ctx, int input);
absl::Status CheckInteger(const OpContext& ctx, int input);  // i32 or i64
absl::Status CheckBool(const OpContext& ctx, int input);
absl::Status CheckSameDType(const OpContext& ctx, int a, int b);

std::string LetterOf(int input);
std::string InputText(const OpContext& ctx, int input);  // "b is i32[4]"

}  // namespace braid
