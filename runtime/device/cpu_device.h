// The CPU as a device: its memory is the host's.
#pragma once

#include <memory>

#include "runtime/device/device.h"

namespace braid {

struct DeviceRequest;

std::unique_ptr<Device> MakeCpuDevice(const DeviceRequest& request);

}  // namespace braid
