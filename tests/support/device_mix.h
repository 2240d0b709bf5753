// Which kinds of devices a test's cluster consists of: suites that hold on CPUs hold on all of
// them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace braid {

enum class DeviceMix : uint8_t {
  kCpu,
  kLagging,  // tests/support/lagging_device.h
  kMixed,    // every other node lags, beginning with node 1
  kNetwork,  // all lag, and do collectives with other nodes by a way of their own
};

inline const char* NameOf(DeviceMix mix) {
  switch (mix) {
    case DeviceMix::kCpu:
      return "cpu";
    case DeviceMix::kLagging:
      return "lagging";
    case DeviceMix::kMixed:
      return "mixed";
    case DeviceMix::kNetwork:
      return "network";
  }
  return "";
}

// By node.
inline std::vector<std::string> NodeKindsOf(DeviceMix mix, size_t nodes) {
  std::vector<std::string> kinds(nodes, "cpu");
  for (size_t node = 0; node < nodes; ++node) {
    if (mix == DeviceMix::kLagging || mix == DeviceMix::kNetwork ||
        (mix == DeviceMix::kMixed && node % 2 == 1)) {
      kinds[node] = "lagging";
    }
  }
  return kinds;
}

}  // namespace braid
