// `braid launch`: starts a program as the nodes of a cluster, here or over ssh, and ends them all
// when one fails.
#pragma once

#include "api/tool/subcommand.h"

namespace braid {

Subcommand LaunchSubcommand();

}  // namespace braid
