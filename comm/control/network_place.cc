#include "comm/control/network_place.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "comm/cluster/build_fingerprint.h"
#include "comm/control/meeting_file.h"
#include "runtime/base/process.h"
#include "runtime/base/status.h"

namespace braid {

Network& SocketsOf(const NetworkPlace& network) {
  return network.sockets != nullptr ? *network.sockets : *SystemNetwork();
}

absl::Status CheckExposure(const NetworkPlace& network, const SocketAddress& address) {
  if (address.is_loopback() || !network.secret.empty() || network.is_insecure) {
    return absl::OkStatus();
  }
  const std::string& member = network.cluster.member_word;
  return absl::UnauthenticatedError(absl::StrFormat(
      "%s %d would use %s, which other machines reach, without a shared secret; give every %s the "
      "same one by BRAID_AUTH_TOKEN or --auth_token_file, or accept the risk by --insecure",
      member, network.cluster.rank, address.host(), member));
}

namespace {

JoiningWords WordsOf(const Cluster& cluster) {
  if (cluster.member_word == "rank") {
    return {.member = "rank",
            .limit = "InitOptions::timeout",
            .what = "rank",
            .number = "RANK",
            .list = "WORLD_SIZE",
            .port = "MASTER_PORT, or the address's"};
  }
  if (cluster.member_word == "machine") {
    return {.member = "machine", .list = "--nnodes", .port = "--master_port"};
  }
  return {};
}

// As it stands in a list: a machine's own name may mean loopback there only.
bool SaysLoopback(const std::string& host) {
  if (host == "localhost") return true;
  const bool is_v6 = host.find(':') != std::string::npos;
  const auto address = SocketAddress::Parse(is_v6 ? "[" + host + "]:0" : host + ":0");
  return address.ok() && address->is_loopback();
}

// The master's addresses of the list. A name that means loopback here, as Debian's /etc/hosts says
// of a machine's own, or none of this machine's addresses, as behind a forwarded port, is what
// other nodes dial, not what this one can bind: then it listens everywhere. Members that meet at
// loopback do so whatever interface their data goes by.
absl::StatusOr<std::vector<SocketAddress>> MasterAddresses(const NetworkPlace& network) {
  Network& sockets = SocketsOf(network);
  const ClusterNode& master = network.cluster.nodes[0];
  BRAID_ASSIGN_OR_RETURN(const std::vector<SocketAddress> local, sockets.LocalAddresses());
  const bool meets_at_loopback = SaysLoopback(master.host);
  if (!network.interface.empty()) {
    BRAID_ASSIGN_OR_RETURN(std::vector<SocketAddress> addresses,
                           sockets.InterfaceAddresses(network.interface));
    if (!meets_at_loopback) {
      for (SocketAddress& address : addresses) address = address.WithPort(master.port);
      return addresses;
    }
    for (const SocketAddress& address : addresses) {
      BRAID_RETURN_IF_ERROR(CheckExposure(network, address));
    }
  }
  std::vector<SocketAddress> addresses;
  if (!master.host.empty()) {
    BRAID_ASSIGN_OR_RETURN(addresses, sockets.ResolveHost(master.host, master.port));
    std::erase_if(addresses, [&](const SocketAddress& address) {
      return !IsLocalAddress(address, local) || (address.is_loopback() && !meets_at_loopback);
    });
  }
  if (addresses.empty()) {
    for (const char* any : {"0.0.0.0:0", "[::]:0"}) {
      BRAID_ASSIGN_OR_RETURN(const SocketAddress address, SocketAddress::Parse(any));
      addresses.push_back(address.WithPort(master.port));
    }
  }
  return addresses;
}

}  // namespace

absl::StatusOr<std::vector<Socket>> ListenAsMaster(const NetworkPlace& network) {
  std::vector<Socket> listeners;
  if (network.control_descriptor >= 0) {
    listeners.emplace_back(network.control_descriptor);
    if (absl::Status status = listeners[0].LocalAddress().status(); !status.ok()) {
      return absl::InvalidArgumentError(
          absl::StrFormat("BRAID_CTRL_DESCRIPTOR=%d is not a listening socket: %s",
                          network.control_descriptor, std::string(status.message())));
    }
    return listeners;
  }
  BRAID_ASSIGN_OR_RETURN(const std::vector<SocketAddress> addresses, MasterAddresses(network));
  absl::Status first_error;
  for (const SocketAddress& address : addresses) {
    BRAID_RETURN_IF_ERROR(CheckExposure(network, address));
    absl::StatusOr<Socket> listener = SocketsOf(network).ListenOn(address);
    if (listener.ok()) {
      listeners.push_back(*std::move(listener));
    } else {
      first_error.Update(absl::Status(
          listener.status().code(),
          absl::StrFormat("control port: %s (%s)", std::string(listener.status().message()),
                          WordsOf(network.cluster).port)));
    }
  }
  // One family of two may be missing, a busy port may not.
  if (listeners.empty() || absl::IsAlreadyExists(first_error)) return first_error;
  return listeners;
}

absl::StatusOr<std::string> DataHostOf(const std::vector<Socket>& listeners) {
  if (listeners.size() != 1) return std::string();
  BRAID_ASSIGN_OR_RETURN(const SocketAddress address, listeners[0].LocalAddress());
  return address.is_any() ? std::string() : address.host();
}

namespace {

// The address that this node dials from: its own of the list or of the interface, so that the
// others see it where they expect it. None if its own name means loopback here and the master is
// elsewhere: then the system knows the way.
absl::StatusOr<SocketAddress> OwnAddress(const NetworkPlace& network, const SocketAddress& master) {
  Network& sockets = SocketsOf(network);
  std::vector<SocketAddress> addresses;
  if (!network.interface.empty()) {
    BRAID_ASSIGN_OR_RETURN(addresses, sockets.InterfaceAddresses(network.interface));
  } else if (const std::string& host = network.cluster.nodes[network.cluster.rank].host;
             network.cluster.knows_all_hosts && !host.empty()) {
    BRAID_ASSIGN_OR_RETURN(const std::vector<SocketAddress> local, sockets.LocalAddresses());
    BRAID_ASSIGN_OR_RETURN(addresses, sockets.ResolveHost(host, 0));
    std::erase_if(addresses, [&](const auto& address) { return !IsLocalAddress(address, local); });
  }
  for (const SocketAddress& address : addresses) {
    if (address.family() == master.family() && address.is_loopback() == master.is_loopback()) {
      return address;
    }
  }
  return SocketAddress();
}

// The master refuses to start where its address needs a secret and it has none, and nobody would be
// there to say so.
absl::Status CheckWay(const NetworkPlace& network, const std::vector<SocketAddress>& addresses) {
  if (std::ranges::any_of(addresses, &SocketAddress::is_loopback)) return absl::OkStatus();
  return CheckExposure(network, addresses[0]);
}

absl::StatusOr<RendezvousOptions::Master> FindMasterInFile(const NetworkPlace& network) {
  BRAID_ASSIGN_OR_RETURN(MeetingPlace place, ReadMeetingFile(network.meeting_file));
  RendezvousOptions::Master master;
  master.is_certain = place.is_held;
  master.secret = SecretOfMeeting(network.secret, place.nonce);
  master.way.addresses = std::move(place.addresses);
  if (!place.is_on_this_machine) {
    BRAID_ASSIGN_OR_RETURN(const std::vector<SocketAddress> local,
                           SocketsOf(network).LocalAddresses());
    // Two machines may have an address of the same number for what only they reach.
    std::erase_if(master.way.addresses,
                  [&](const SocketAddress& address) { return IsLocalAddress(address, local); });
    if (master.way.addresses.empty()) {
      return absl::UnavailableError(absl::StrFormat(
          "'%s' is of %s, which is another machine, or this one before it was started anew, and "
          "only that machine reaches the addresses in it; if rank 0 is there, give all ranks the "
          "same BRAID_AUTH_TOKEN, so that it listens for other machines",
          network.meeting_file, place.writer));
    }
  }
  BRAID_RETURN_IF_ERROR(CheckWay(network, master.way.addresses));
  BRAID_ASSIGN_OR_RETURN(master.way.from, OwnAddress(network, master.way.addresses[0]));
  return master;
}

}  // namespace

absl::StatusOr<RendezvousOptions> RendezvousOptionsOfPlace(const NetworkPlace& network,
                                                           Environment* environment) {
  const Cluster& cluster = network.cluster;
  RendezvousOptions options;
  options.environment = environment;
  options.self.node = static_cast<uint16_t>(cluster.rank);
  options.self.num_nodes = static_cast<int>(cluster.nodes.size());
  BRAID_ASSIGN_OR_RETURN(options.self.build, BuildFingerprint());
  if (cluster.knows_all_hosts) options.self.agreed = cluster.ToString();
  options.self.host = HostName();
  // A simulation has one real process for all of its own.
  options.self.pid = static_cast<uint32_t>(environment->is_simulated() ? cluster.rank : getpid());
  options.secret = network.secret;
  options.network = &SocketsOf(network);
  options.join_timeout = network.join_timeout;
  options.name_of = [cluster](int node) { return NodeName(cluster, node); };
  options.words = WordsOf(cluster);
  if (cluster.rank == 0 && cluster.knows_all_hosts) {
    std::vector<std::vector<SocketAddress>> addresses;
    for (const ClusterNode& node : cluster.nodes) {
      auto resolved = SocketsOf(network).ResolveHost(node.host, node.port);
      // A name that nobody resolves would only be waited for; a launcher has seen to it itself.
      if (!resolved.ok() && network.control_descriptor < 0) return resolved.status();
      addresses.push_back(std::move(resolved).value_or(std::vector<SocketAddress>()));
    }
    options.nodes_at = [addresses](const SocketAddress& address) {
      std::vector<int> nodes;
      for (size_t node = 0; node < addresses.size(); ++node) {
        for (const SocketAddress& own : addresses[node]) {
          if (own.SameHost(address)) nodes.push_back(static_cast<int>(node));
        }
      }
      return nodes;
    };
  }
  if (cluster.rank != 0 && !network.meeting_file.empty()) {
    options.find_master = [network] { return FindMasterInFile(network); };
  }
  return options;
}

absl::StatusOr<WayToMaster> FindMaster(const NetworkPlace& network) {
  const ClusterNode& master = network.cluster.nodes[0];
  WayToMaster way;
  if (!network.meeting_file.empty()) return way;
  BRAID_ASSIGN_OR_RETURN(way.addresses, SocketsOf(network).ResolveHost(master.host, master.port));
  BRAID_RETURN_IF_ERROR(CheckWay(network, way.addresses));
  BRAID_ASSIGN_OR_RETURN(way.from, OwnAddress(network, way.addresses[0]));
  return way;
}

absl::StatusOr<std::vector<SocketAddress>> AddressesForOthers(const std::vector<Socket>& listeners,
                                                              Network& sockets) {
  BRAID_ASSIGN_OR_RETURN(const std::vector<SocketAddress> local, sockets.LocalAddresses());
  std::vector<SocketAddress> addresses;
  std::vector<SocketAddress> loopback;
  for (const Socket& listener : listeners) {
    BRAID_ASSIGN_OR_RETURN(const SocketAddress listening, listener.LocalAddress());
    const std::vector<SocketAddress> own =
        listening.is_any() ? local : std::vector<SocketAddress>{listening};
    for (const SocketAddress& address : own) {
      // An address of one link only, "fe80::1%eth0", has another name on each machine.
      if (address.family() != listening.family() || address.host().find('%') != std::string::npos) {
        continue;
      }
      (address.is_loopback() ? loopback : addresses).push_back(address.WithPort(listening.port()));
    }
  }
  if (addresses.empty()) addresses = std::move(loopback);
  if (!addresses.empty()) return addresses;
  return absl::NotFoundError(
      "the master listens at no address that is known to others; name another interface");
}

}  // namespace braid
