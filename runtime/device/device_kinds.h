// The kinds of devices that a process can make: CPUs, and what else is registered.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/device/device.h"
#include "runtime/device/device_group.h"

namespace braid {

class Environment;
class SharedHeap;

// What a node makes a device with. All borrowed; outlives the device.
struct DeviceRequest {
  int index = 0;    // among the node's
  int devices = 1;  // that the node has
  uint16_t node = 0;
  Environment* environment = nullptr;
  const KernelRegistry* cpu_kernels = nullptr;  // with the program's own
  uint64_t simulation_seed = 0;
  SharedHeap* shared_heap = nullptr;  // null: no peer maps memory of this node
};

// How devices of a node do collectives with those of other nodes.
struct ReachBetweenNodes {
  std::string library = {};             // with its version, the same on all nodes; "": they do not
  std::vector<std::string> cards = {};  // of the devices: no two of any nodes may be one
};

class DeviceKinds {
 public:
  struct Kind {
    bool is_host = true;  // as Device::is_host of what `make` gives
    // Its work is done outside of this program, by kernels that nothing can be put around
    // (--check_numerics), on threads that no simulation steps.
    bool is_hardware = false;
    // Moving bytes costs it more than rounding: with --precision=bf16 or f16, what lies between
    // products stays narrow on it.
    bool keeps_narrow = false;
    // Its kernels of products add other tensors to them: sums of products are folded into these.
    bool adds_to_products = false;
    std::function<std::unique_ptr<Device>(const DeviceRequest&)> make;
    // Before a node makes its devices, which are that many: whether the machine has what they need.
    // FAILED_PRECONDITION or NOT_FOUND say what is missing. Empty: nothing can be.
    std::function<absl::Status(int devices)> open = {};
    // After `open`: bytes of own memory that there are for a device of a node that has so many.
    // Empty: devices share the host's.
    std::function<uint64_t(int device, int devices)> memory = {};
    // Of a node's devices, all of this kind, whose streams kCopyIn may then read the memory of the
    // others, too; empty: they do no collectives among themselves, and what they have to reduce,
    // gather or move to each other goes through the host.
    std::function<std::unique_ptr<DeviceGroup>(const Devices&)> make_group = {};
    // Of the group: a member's stream waits for no other that has not come, so that the devices may
    // come to their collectives in any order. Else plans give them one.
    bool collects_in_any_order = false;
    // After `open`, of a node that has so many devices and is not alone. Empty: what they have to
    // reduce or gather with devices of other nodes goes through the host.
    std::function<ReachBetweenNodes(int devices)> between_nodes = {};
  };

  DeviceKinds();  // "cpu"

  // The name is what Device::kind says of them. ALREADY_EXISTS if taken, INVALID_ARGUMENT if
  // --devices and node lists could not say it.
  absl::Status Register(std::string name, Kind kind);
  // NOT_FOUND lists the kinds that there are. The kind lives as long as this object.
  absl::StatusOr<const Kind*> Find(std::string_view name) const;

 private:
  std::map<std::string, Kind, std::less<>> kinds_;
};

}  // namespace braid
