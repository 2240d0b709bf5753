// The boxing rules, one function a file; rules.cc puts them in order.
#pragma once

#include "compiler/boxing/boxing.h"

namespace braid::compiler {

// The bytes are right as they stand: both sides' devices are the same, and so are their boxes and
// addends. No group at all.
BoxingRule IdentityRule();
// Every rank finds what it needs in its own box: B -> S, S -> P, B -> P. Nothing moves.
BoxingRule RelayoutRule();
// Along one dimension of the hierarchy, or all: S -> B, P -> B, P -> S, S(i) -> S(j).
BoxingRule AllGatherRule();
BoxingRule AllReduceRule();
BoxingRule ReduceScatterRule();
BoxingRule AllToAllRule();
// Anything to anything, in one go.
BoxingRule SliceExchangeRule();

}  // namespace braid::compiler
