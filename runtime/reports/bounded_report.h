// What a node says of itself and of its calls, so that it can be added up.
#pragma once

#include "runtime/control.pb.h"

namespace braid {

// Numbers that are too large for any such message, as a faulty node may send them, are cut to
// kForever: sums and differences of two of them are numbers.
void BoundNumbers(control::NodeReport& report);
void BoundNumbers(control::ControlMessage& message);

}  // namespace braid
