// What a job's plan asks of a node, known before it runs: each node tells it to the master, which
// has the whole of no other node's plan.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/kernels/kernel_memory.h"

namespace braid {

namespace control {
class NodeSummary;
}
namespace plan {
struct NodePlan;
struct Task;
}  // namespace plan
class DatasetCache;

// What a job takes of a device's memory, in bytes.
struct DeviceMemory {
  int node = 0;
  int device = 0;
  std::string type;         // "cpu"
  int64_t activations = 0;  // and gradients: all that lives within a step. Jobs share it
  int64_t variables = 0;    // and optimizers' states. Jobs that have the same ones share them
  int64_t kernels = 0;      // what kernels keep, and results that the job keeps; a job's own
  int64_t collectives = 0;  // where what comes from others lands, and is staged
  // Orders of samples; and, counted at the first of a node's devices that reads them, the samples.
  int64_t data = 0;

  int64_t total() const { return activations + variables + kernels + collectives + data; }
};

struct NodeSummary {
  int node = 0;
  int64_t tasks = 0;
  std::vector<DeviceMemory> devices;
  std::vector<std::pair<int, uint64_t>> link_bytes;  // (peer, bytes sent there in one step)
};

// `memory_of`: what the kernels of a compute task need, in turn.
NodeSummary SummarizeNode(const plan::NodePlan& plan, DatasetCache& datasets,
                          const std::function<KernelMemory(const plan::Task&)>& memory_of);

void Encode(const NodeSummary& summary, control::NodeSummary& message);
NodeSummary Decode(const control::NodeSummary& message, int node);

}  // namespace braid
