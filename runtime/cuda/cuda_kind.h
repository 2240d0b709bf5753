// The kind of devices that is called "cuda".
#pragma once

#include <memory>

#include "runtime/cuda/module.h"
#include "runtime/device/device_kinds.h"

namespace braid::cuda {

// The options are read when a node makes its first device.
DeviceKinds::Kind CudaKind(std::shared_ptr<const CudaOptions> options);

}  // namespace braid::cuda
