// `braid bench`: how fast a collective is on this machine.
#pragma once

#include "api/tool/subcommand.h"

namespace braid {

Subcommand BenchSubcommand();

}  // namespace braid
