// Plans may ask for as much memory as the machine has, and for much work; a fuzzer that gets it
// learns nothing.
#pragma once

#include "compiler/plan.pb.h"

namespace braid::fuzz {

// Whether a plan asks for more memory or steps than a fuzzer should have it given, and less than
// would be refused.
bool IsTooLargeToTry(const plan::Plan& plan);

}  // namespace braid::fuzz
