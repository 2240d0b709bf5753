// `braid status`: asks a running session's master what it does and what it waits for.
#pragma once

#include "api/tool/subcommand.h"

namespace braid {

Subcommand StatusSubcommand();

}  // namespace braid
