// Where a member of a cluster listens, and how it reaches the master: what sessions, nodes that
// serve, ranks of process groups and the launchers of several machines have in common.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "comm/cluster/cluster.h"
#include "comm/control/rendezvous.h"
#include "comm/network/network.h"
#include "comm/network/socket.h"
#include "runtime/base/reactor.h"

namespace braid {

struct NetworkPlace {
  Cluster cluster;
  std::string secret;        // shared by all members; "": none, for loopback addresses only
  bool is_insecure = false;  // other addresses, too, without a secret
  // The only one to be used, but for members that meet at loopback; "": any.
  std::string interface;
  // Path of the file in which the master says where it listens, at a port that the system chooses;
  // then the cluster has only its host, or "" for all addresses. "": the cluster says where.
  std::string meeting_file;
  Nanoseconds join_timeout = 60 * kSecond;
  int control_descriptor = -1;  // the master's listening socket, if a launcher has made it
  Network* sockets = nullptr;   // borrowed; null: the system's
};

Network& SocketsOf(const NetworkPlace& network);

// UNAUTHENTICATED without a secret at an address that others could reach: whoever reaches the port
// may run what he likes here.
absl::Status CheckExposure(const NetworkPlace& network, const SocketAddress& address);

// Where the master listens: at its loopback address, if the cluster's list says one; else at all of
// the interface's, if there is one; else at its address of the list, or at all.
// UNAUTHENTICATED without a secret where others could reach it.
absl::StatusOr<std::vector<Socket>> ListenAsMaster(const NetworkPlace& network);
// The address that peers reach this listener's host by; "" if it listens on all.
absl::StatusOr<std::string> DataHostOf(const std::vector<Socket>& listeners);
// What the master tells others of where it listens: where it does so at all addresses, those of
// this machine that other machines may reach, if there are any.
absl::StatusOr<std::vector<SocketAddress>> AddressesForOthers(const std::vector<Socket>& listeners,
                                                              Network& sockets);

// All but what only the process knows of itself: its devices, memory and rates.
absl::StatusOr<RendezvousOptions> RendezvousOptionsOfPlace(const NetworkPlace& network,
                                                           Environment* environment);
// Not where a meeting file says it, which the rendezvous's options see to.
absl::StatusOr<WayToMaster> FindMaster(const NetworkPlace& network);

}  // namespace braid
