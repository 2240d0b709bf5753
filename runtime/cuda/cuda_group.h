// Collectives that cards of one process do among themselves, in each other's memory. All cards of a
// collective begin when the last member has come, and each member's device goes on when all cards
// are done with it; no thread waits.
#pragma once

#include <memory>

#include "runtime/device/device.h"
#include "runtime/device/device_group.h"

namespace braid::cuda {

// The devices are CudaDevices whose arenas have not grown yet. Where two cards do not see each
// other's memory, what they reduce is copied from one to the other first. `nccl`: what the module's
// NcclTable::open gave, for collectives with cards of other nodes; null: there are none.
std::unique_ptr<DeviceGroup> MakeCudaGroup(const Devices& devices, const void* nccl);

}  // namespace braid::cuda
