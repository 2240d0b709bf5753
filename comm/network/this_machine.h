// What tells this machine from others.
#pragma once

#include <string>

namespace braid {

// This machine, its last start and the network namespace of this process: "BOOT_ID net:[N]". What
// the system does not say is a '?'.
std::string ThisMachine();

}  // namespace braid
