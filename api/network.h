// How a process is a node of a cluster: where it listens, whom it dials, what it proves. The
// session on the master and the service on the other nodes start from here.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "api/interruption.h"
#include "comm/cluster.h"
#include "runtime/base/reactor.h"
#include "runtime/kernels/kernel.h"

namespace braid {

struct NetworkOptions {
  Cluster cluster;
  std::string secret;        // shared by all nodes; "": none, for loopback addresses only
  bool is_insecure = false;  // other addresses, too, without a secret
  std::string interface;     // the only one to be used; "": any
  std::string transport;     // the only one to be used; "": the best that works
  Nanoseconds join_timeout = 60 * kSecond;
  int control_descriptor = -1;  // the master's listening socket, if a launcher has made it
};

struct RendezvousOptions;
class Socket;

// Where the master listens: its address of the cluster's list, or all of the interface's.
// UNAUTHENTICATED without a secret where others could reach it.
absl::StatusOr<std::vector<Socket>> ListenAsMaster(const NetworkOptions& network);
// The address that peers reach this listener's host by; "" if it listens on all.
absl::StatusOr<std::string> DataHostOf(const std::vector<Socket>& listeners);

absl::StatusOr<RendezvousOptions> RendezvousOptionsOf(const NetworkOptions& network,
                                                      Environment* environment);
// "node 2 (10.0.0.3)".
std::string NodeName(const Cluster& cluster, int node);

struct ServiceOptions {
  int threads_per_device = 1;
  Nanoseconds stall_timeout = 60 * kSecond;
  std::string event_dump;  // folder for the last events of a run that fails; "": none are written
  const KernelRegistry* kernels = nullptr;
  Interruption* interruption = nullptr;
  std::function<void(const absl::Status&)> on_failure;  // as soon as it is known; any thread
};
// A node other than the master: joins, does what the master says, and returns when the session has
// ended: OK, or the first cause of a failure.
absl::Status ServeNode(const NetworkOptions& network, const ServiceOptions& options);

}  // namespace braid
