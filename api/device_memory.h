// What a job takes of the devices' memory, known before it runs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace braid {

namespace plan {
class Plan;
}
class DatasetCache;
class KernelRegistry;

// In bytes.
struct DeviceMemory {
  int node = 0;
  int device = 0;
  std::string type;         // "cpu"
  int64_t activations = 0;  // and gradients: all that lives within a step. Jobs share it
  int64_t variables = 0;    // and optimizers' states. Jobs that have the same ones share them
  int64_t kernels = 0;      // what kernels keep beside their operands
  int64_t collectives = 0;  // where what comes from others lands, and is staged
  // Orders of samples; and, counted at the first of a node's devices that reads them, the samples.
  int64_t data = 0;

  int64_t total() const { return activations + variables + kernels + collectives + data; }
};

// All borrowed.
struct MemoryPlanContext {
  const KernelRegistry* kernels = nullptr;
  DatasetCache* datasets = nullptr;
  int threads_per_device = 1;
};

// Of a plan's slices, by node and device. Kernels are asked, as they are made for the first device
// of those that share a task's work: it has the largest part. A kernel that this process does not
// have counts as nothing.
std::vector<DeviceMemory> PlannedMemory(const std::vector<plan::Plan>& slices,
                                        const MemoryPlanContext& context);

}  // namespace braid
