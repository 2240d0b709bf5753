// The training jobs whose memory is looked at, and the clusters that run them.
#pragma once

#include <braid/braid.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/device_mix.h"
#include "tests/support/lagging_device.h"

namespace braid {

struct MemoryJob {
  std::string name;
  std::function<Tensor(Job&)> loss;
  int micro_batches = 1;
};
// `size` multiplies the width of every layer.
MemoryJob MlpJob(int64_t size = 1);
MemoryJob CnnJob(int64_t size = 1);
MemoryJob GptJob(int64_t size = 1, double dropout = 0);

// A session on nodes of so many devices: all in this process, or, if there is a `transport`, each
// with its own control connection and links, as processes of their own would have.
class MemoryCluster {
 public:
  MemoryCluster(std::vector<int> devices, const std::string& transport,
                DeviceMix mix = DeviceMix::kCpu);
  ~MemoryCluster();
  Session& session() { return *session_; }
  // Of memory that is not the host's.
  int64_t device_bytes() const { return counts_.bytes; }

  // Trains, and fetches the loss. `at_step` is called, in the middle of a run, at the beginning of
  // the step's first act that knows the loss.
  absl::StatusOr<CompiledJob> Compile(const MemoryJob& job,
                                      std::function<void(int64_t step)> at_step = nullptr);

 private:
  void AddKernel(KernelRegistry& kernels);

  LaggingCounts counts_;
  std::function<void(int64_t)> at_step_;
  KernelRegistry kernels_ = CpuKernels();
  NetworkOptions network_;
  std::deque<Interruption> interruptions_;
  std::vector<std::thread> servers_;
  std::unique_ptr<Session> session_;
};

}  // namespace braid
