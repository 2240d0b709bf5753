#include "runtime/device/device_kinds.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "glog/logging.h"
#include "runtime/device/cpu_device.h"

namespace braid {
namespace {

// Plans are made by the kind, and would be refused later in words about the cluster.
std::unique_ptr<Device> Checked(const std::string& name, bool is_host,
                                std::unique_ptr<Device> device) {
  CHECK(device->kind() == name) << "a device that is registered as '" << name
                                << "' says that it is '" << device->kind()
                                << "'; both must be one name";
  CHECK(device->is_host() == is_host)
      << "devices of kind '" << name << "' are registered with is_host=" << is_host
      << ", and one says is_host=" << device->is_host() << "; both must be alike";
  return device;
}

}  // namespace

DeviceKinds::DeviceKinds() { kinds_["cpu"] = {.is_host = true, .make = MakeCpuDevice}; }

absl::Status DeviceKinds::Register(std::string name, Kind kind) {
  if (name.empty() || name == "auto" || !std::ranges::all_of(name, absl::ascii_islower)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "'%s' cannot name a kind of devices, as in --devices=cpu:2; lower-case letters were "
        "expected, and not 'auto'",
        name));
  }
  kind.make = [name, is_host = kind.is_host, make = std::move(kind.make)](
                  const DeviceRequest& request) { return Checked(name, is_host, make(request)); };
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
