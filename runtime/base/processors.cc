#include "runtime/base/processors.h"

#include <sched.h>

#include <algorithm>
#include <thread>

namespace braid {

int UsableProcessors() {
  cpu_set_t usable;
  if (sched_getaffinity(0, sizeof(usable), &usable) == 0) return CPU_COUNT(&usable);
  // There are too many for the set.
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace braid
