#include "comm/rdma/rdma_route.h"

#include <netinet/in.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

// --rdma_device: "mlx5_0:1", or without the port; an empty name is any.
struct DeviceAndPort {
  std::string device;
  std::optional<int> port;
};

absl::StatusOr<DeviceAndPort> ParseDevice(const std::string& text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) return DeviceAndPort{.device = text, .port = std::nullopt};
  int port = 0;
  if (colon == 0 || !absl::SimpleAtoi(text.substr(colon + 1), &port) || port < 1 || port > 255) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "--rdma_device=%s; a device and perhaps its port was expected, e.g. mlx5_0:1", text));
  }
  return DeviceAndPort{.device = text.substr(0, colon), .port = port};
}

SocketAddress AddressOf(const ibv_gid& gid) {
  in6_addr v6 = {};
  std::memcpy(&v6, gid.raw, sizeof(v6));
  if (IN6_IS_ADDR_V4MAPPED(&v6)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    std::memcpy(&address.sin_addr, gid.raw + 12, sizeof(address.sin_addr));
    return {reinterpret_cast<const sockaddr*>(&address), sizeof(address)};
  }
  sockaddr_in6 address = {};
  address.sin6_family = AF_INET6;
  address.sin6_addr = v6;
  return {reinterpret_cast<const sockaddr*>(&address), sizeof(address)};
}

absl::StatusOr<ibv_port_attr> AskPort(const RdmaDevice& device, uint8_t number) {
  ibv_port_attr port = {};
  const int error = device.verbs().query_port(device.context(), number,
                                              reinterpret_cast<_compat_ibv_port_attr*>(&port));
  if (error == 0) return port;
  return VerbsError(error, absl::StrFormat("cannot ask RDMA port %s:%d", device.name(), number));
}

// Why a port has no routes; empty: it may have.
std::string LackOf(const ibv_port_attr& port) {
  if (port.link_layer != IBV_LINK_LAYER_ETHERNET) return "speaks no RoCE";
  if (port.state != IBV_PORT_ACTIVE) return "is down; look at its interface (ip link)";
  return "";
}

// What is here, for errors, and the routes of it.
class RouteSearch {
 public:
  RouteSearch(const RdmaChoice& choice, DeviceAndPort wanted, SharedHeap* heap)
      : choice_(choice), wanted_(std::move(wanted)), heap_(heap) {}

  absl::Status Look(const Verbs& verbs, ibv_device* found) {
    const std::string name = verbs.get_device_name(found);
    if (!wanted_.device.empty() && wanted_.device != name) {
      here_.push_back(name);
      return absl::OkStatus();
    }
    BRAID_ASSIGN_OR_RETURN(const std::shared_ptr<RdmaDevice> device,
                           RdmaDevice::Open(verbs, found, heap_));
    for (int number = 1; number <= device->limits().phys_port_cnt; ++number) {
      const std::string port_name = absl::StrFormat("%s:%d", name, number);
      BRAID_ASSIGN_OR_RETURN(const ibv_port_attr port,
                             AskPort(*device, static_cast<uint8_t>(number)));
      if (wanted_.port.value_or(number) != number) {
        here_.push_back(port_name);
      } else if (const std::string lack = LackOf(port); !lack.empty()) {
        here_.push_back(absl::StrFormat("%s, which %s", port_name, lack));
      } else {
        LookAtGids({.device = device,
                    .port = static_cast<uint8_t>(number),
                    .mtu = port.active_mtu,
                    .max_message = port.max_msg_sz},
                   port.gid_tbl_len);
      }
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<RdmaRoute>> Found() {
    if (!routes_.empty()) return std::move(routes_);
    std::string wanted = "an active RDMA port that speaks RoCE";
    if (!choice_.device.empty()) wanted = "--rdma_device=" + choice_.device;
    if (choice_.gid >= 0) wanted += absl::StrFormat(" with --rdma_gid=%d", choice_.gid);
    return absl::NotFoundError(absl::StrFormat(
        "%s was looked for, and here %s", wanted,
        here_.empty() ? "are no RDMA devices (rdma link)" : "are " + absl::StrJoin(here_, ", ")));
  }

 private:
  void LookAtGids(RdmaRoute route, int gids) {
    const RdmaDevice& device = *route.device;
    for (int index = 0; index < std::min(gids, 256); ++index) {
      ibv_gid_entry entry = {};
      if (device.verbs().query_gid(device.context(), route.port, static_cast<uint32_t>(index),
                                   &entry, 0, sizeof(entry)) != 0) {
        continue;  // there is none of this number
      }
      route.gid_index = static_cast<uint8_t>(index);
      route.gid = entry.gid;
      route.is_v2 = entry.gid_type == IBV_GID_TYPE_ROCE_V2;
      route.address = AddressOf(entry.gid);
      if (choice_.gid < 0 || choice_.gid == index) {
        routes_.push_back(route);
      } else {
        here_.push_back(route.ToString());
      }
    }
  }

  const RdmaChoice& choice_;
  const DeviceAndPort wanted_;
  SharedHeap* const heap_;
  std::vector<std::string> here_;
  std::vector<RdmaRoute> routes_;
};

}  // namespace

std::string RdmaRoute::PortName() const { return absl::StrFormat("%s:%d", device->name(), port); }

std::string RdmaRoute::ToString() const {
  return absl::StrFormat("%s gid %d (%s, RoCE v%d)", PortName(), gid_index, address.host(),
                         is_v2 ? 2 : 1);
}

bool RdmaRoute::is_up() const {
  const absl::StatusOr<ibv_port_attr> now = AskPort(*device, port);
  return now.ok() && now->state == IBV_PORT_ACTIVE;
}

absl::StatusOr<std::vector<RdmaRoute>> FindRdmaRoutes(const RdmaChoice& choice, SharedHeap* heap) {
  BRAID_ASSIGN_OR_RETURN(DeviceAndPort wanted, ParseDevice(choice.device));
  BRAID_ASSIGN_OR_RETURN(const Verbs verbs, OpenVerbs());
  RouteSearch search(choice, std::move(wanted), heap);
  int count = 0;
  ibv_device** const devices = verbs.get_device_list(&count);
  absl::Status status;
  for (int i = 0; devices != nullptr && i < count && status.ok(); ++i) {
    status = search.Look(verbs, devices[i]);
  }
  if (devices != nullptr) verbs.free_device_list(devices);
  BRAID_RETURN_IF_ERROR(status);
  return search.Found();
}

const RdmaRoute* RdmaRouteFrom(const std::vector<RdmaRoute>& routes, const SocketAddress& local) {
  const RdmaRoute* best = nullptr;
  for (const RdmaRoute& route : routes) {
    if (!route.address.SameHost(local)) continue;
    if (best == nullptr || (route.is_v2 && !best->is_v2)) best = &route;
  }
  return best;
}

static_assert(IBV_MTU_256 == 1 && IBV_MTU_4096 == 5);
uint32_t BytesOfMtu(ibv_mtu mtu) { return 128u << mtu; }
ibv_mtu MtuOfBytes(uint32_t bytes) {
  return static_cast<ibv_mtu>(std::bit_width(bytes) - std::bit_width(128u));
}

}  // namespace braid
