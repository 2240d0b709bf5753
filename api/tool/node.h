// `braid node`: the far end of `braid launch` over ssh. It is told by its standard input what to do
// (remote_orders.h), and ends the program when that ends, so that nothing outlives the launch.
#pragma once

#include "api/tool/subcommand.h"

namespace braid {

Subcommand NodeSubcommand();

}  // namespace braid
