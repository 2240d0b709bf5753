// How many processors a process may use.
#pragma once

namespace braid {

// That the calling thread may run on, and what it starts: at least 1. A batch system or a container
// may leave a process some of the machine's only.
int UsableProcessors();

}  // namespace braid
