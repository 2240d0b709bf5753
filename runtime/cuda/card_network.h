// Collectives of this process's cards with those of other nodes, by NCCL.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/cuda/cuda_device.h"
#include "runtime/device/device_group.h"

namespace braid::cuda {

class Communicators;

class CardNetwork {
 public:
  // `nccl`: what ModuleTable's NcclTable::open gave; not null. The devices outlive it.
  CardNetwork(const ModuleTable& module, const void* nccl, const std::vector<CudaDevice*>& devices);
  ~CardNetwork();

  // As of DeviceGroup. Communicators are made when their members meet first, and serve all
  // collectives of these members.
  absl::StatusOr<std::unique_ptr<DeviceCollective>> Create(const DeviceCollectiveSpec& spec);
  void Abort();  // any thread

 private:
  // Its collectives and what looks for errors have them, too.
  const std::shared_ptr<Communicators> communicators_;
};

}  // namespace braid::cuda
