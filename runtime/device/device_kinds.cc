#include "runtime/device/device_kinds.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "runtime/device/cpu_device.h"

namespace braid {

DeviceKinds::DeviceKinds() {
  kinds_["cpu"] = {.is_host = true, .make = [](const DeviceRequest& request) {
                     return MakeCpuDevice(request.index, request.cpu_kernels);
                   }};
}

absl::Status DeviceKinds::Register(std::string name, Kind kind) {
  if (!kinds_.try_emplace(name, std::move(kind)).second) {
    return absl::AlreadyExistsError(
        absl::StrFormat("devices of kind '%s' are registered twice; choose another name", name));
  }
  return absl::OkStatus();
}

absl::StatusOr<const DeviceKinds::Kind*> DeviceKinds::Find(std::string_view name) const {
  const auto found = kinds_.find(name);
  if (found != kinds_.end()) return &found->second;
  return absl::NotFoundError(absl::StrFormat(
      "there are no '%s' devices here; this program has %s", name,
      absl::StrJoin(kinds_, ", ", [](std::string* out, const auto& kind) { *out += kind.first; })));
}

}  // namespace braid
