// By which device, port and GID the links of this node leave the machine.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "comm/network/socket_address.h"
#include "comm/rdma/rdma_device.h"
#include "comm/rdma/verbs.h"
#include "comm/transport.h"
#include "runtime/base/shared_heap.h"

namespace braid {

// A GID of an active port that speaks RoCE. A value.
struct RdmaRoute {
  std::shared_ptr<RdmaDevice> device;  // shared with its other routes and links
  uint8_t port = 0;
  uint8_t gid_index = 0;
  ibv_gid gid = {};
  bool is_v2 = false;         // RoCE v2, over UDP; else v1, within an Ethernet
  SocketAddress address;      // what the GID stands for; port 0
  ibv_mtu mtu = IBV_MTU_256;  // of the port
  uint32_t max_message = 0;   // bytes

  std::string PortName() const;  // "mlx5_0:1"
  std::string ToString() const;  // "mlx5_0:1 gid 3 (10.0.0.1, RoCE v2)"
  bool is_up() const;            // the port, now
};

// All routes that there are, or those that were chosen. An error says what was looked for and what
// is here: no library or device, none of that name, no port that is up, no GID of that number.
absl::StatusOr<std::vector<RdmaRoute>> FindRdmaRoutes(const RdmaChoice& choice, SharedHeap* heap);

// The best of those whose GID stands for this address; null: none does.
const RdmaRoute* RdmaRouteFrom(const std::vector<RdmaRoute>& routes, const SocketAddress& local);

uint32_t BytesOfMtu(ibv_mtu mtu);
ibv_mtu MtuOfBytes(uint32_t bytes);  // 256, 512, 1024, 2048 or 4096

}  // namespace braid
