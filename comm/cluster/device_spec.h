// Which devices a node brings, as users write it: "cpu:4".
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace braid {

// "cpu:4": four CPU devices; "cuda:2@0": two logical devices on card 0. A value.
struct DeviceSpec {
  std::string type = "cpu";  // a word: which there are is for their user to find out
  int count = 1;
  int card = -1;  // -1: one card a device

  // "auto": what the node finds it has, with a count of 0 until it has looked.
  static constexpr const char* kAuto = "auto";
  bool is_auto() const { return type == kAuto; }

  bool operator==(const DeviceSpec&) const = default;
  std::string ToString() const;
};

// INVALID_ARGUMENT says what was expected. Whether the devices exist is for their user to find out.
absl::StatusOr<DeviceSpec> ParseDeviceSpec(const std::string& text);

}  // namespace braid
