// CPU devices on machines whose memory runs out when they are told.
#pragma once

#include <cstdint>
#include <functional>

#include "runtime/device/device_kinds.h"

namespace braid {

// `is_out` says of a node whether it has no memory left now.
DeviceKinds::Kind ScarceKind(std::function<bool(uint16_t node)> is_out);

}  // namespace braid
