// What this machine can do, measured: rates of a device, and of links within a process and between
// processes of one host. Links between hosts are not measured: they keep the defaults, but are
// never taken for better than those of a host.
#pragma once

#include <functional>
#include <string>

#include "compiler/machine.h"
#include "runtime/base/reactor.h"
#include "runtime/kernels/kernel.h"

namespace braid {

struct MeasureOptions {
  const KernelRegistry* kernels = nullptr;  // those whose products are timed
  int threads_per_device = 1;
};

// In well under a second, in threads of its own. What cannot be measured here keeps its default.
// Numbers are rounded to three digits: the rest is noise.
compiler::Machine MeasureMachine(const MeasureOptions& options);

// The same, from the user's cache folder ($XDG_CACHE_HOME/braid, else ~/.cache/braid) if the same
// program measured the same kind of processor before. A cache that cannot be read or written, or is
// of something else, is no error: then it is measured.
compiler::Machine CachedMachine(const MeasureOptions& options);

// The same of a folder, under a key: for tests. The file is written whole, by renaming it.
struct MachineCache {
  std::string file;  // "": none
  std::string key;   // one line
};
compiler::Machine CachedMachine(const MachineCache& cache,
                                const std::function<compiler::Machine()>& measure);

}  // namespace braid
