// The CPU as a device: its memory is the host's.
#pragma once

#include <memory>

#include "runtime/device/device.h"

namespace braid {

std::unique_ptr<Device> MakeCpuDevice(int index, const KernelRegistry* kernels);

}  // namespace braid
