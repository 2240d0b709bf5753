// What a job would take of the nodes' memory, planned on a machine that is none of them.
#pragma once

#include <map>
#include <string>

#include "runtime/kernels/kernel_memory.h"

namespace braid {

namespace plan {
struct Kernel;
struct Task;
}  // namespace plan
class KernelRegistry;

// Plans each kernel once for all that are alike, and makes none. A kernel that this process does
// not have counts as nothing.
class KernelMemoryPlanner {
 public:
  // Borrows the registry.
  KernelMemoryPlanner(const KernelRegistry* kernels, int threads_per_device)
      : kernels_(kernels), threads_(threads_per_device) {}

  KernelMemory Of(const plan::Task& task);

 private:
  KernelMemory Of(const plan::Kernel& kernel);

  const KernelRegistry* const kernels_;
  const int threads_;
  std::map<std::string, KernelMemory> of_kernel_;  // by all that makes a difference to one
};

}  // namespace braid
