// How a process is a member of a cluster in which it is more than a node that serves: it joins, has
// a node that knows its peers, and takes part in the end. Process groups stand on it; sessions have
// the master's joining in common with it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "api/network.h"
#include "comm/control/meeting_file.h"
#include "comm/control/rendezvous.h"
#include "comm/control/session_file.h"
#include "comm/network/socket_address.h"
#include "runtime/base/reactor.h"
#include "runtime/node.h"

namespace braid {

class Coordinator;
class Interruption;
class KernelRegistry;

// The master's place where nodes join and `braid status` asks.
struct MasterSeat {
  NodeIdentity self;
  std::unique_ptr<RendezvousServer> rendezvous;
  std::string data_host;  // that peers reach this process by; "": any
  std::optional<SessionFile> file;
  std::optional<MeetingFile> meeting;
};
absl::StatusOr<MasterSeat> TakeMasterSeat(const NetworkOptions& network, Environment* environment);

struct MembershipOptions {
  Nanoseconds stall_timeout = 60 * kSecond;  // as SessionOptions'
  std::string event_dump = {};               // as SessionOptions'
  Interruption* interruption = nullptr;      // borrowed; ends the cluster with its reason
  // The first cause of a failure, as soon as it is known here; any thread, maybe twice. May be
  // empty.
  std::function<void(const absl::Status&)> on_failure = {};
};

// One process of a cluster. Made and destroyed by the host thread.
class Membership {
 public:
  // Joins and waits until every node knows where the others are. `network` may be null: a cluster
  // of this process alone.
  static absl::StatusOr<std::unique_ptr<Membership>> Join(const NetworkOptions* network,
                                                          const MembershipOptions& options = {});
  // Leaves first, unless that was done, and waits for the others as Leave does.
  ~Membership();
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;

  Environment& environment() const;
  // Until this is destroyed.
  Node& node() const;
  // That the node makes its kernels by. Before its first job is loaded.
  KernelRegistry& kernels() const;
  // Whether it was not asked before: one session may have the node and its variables.
  bool Claim();
  // Of the process that is the master; null elsewhere. By the host thread, and not after Leave.
  Coordinator* coordinator() const;

  // This process's program does nothing any more. Waits until that is so everywhere, or ends the
  // cluster with `cause`; returns the cause of a failure, of all processes the same. Later calls
  // return what the first did.
  absl::Status Leave(const absl::Status& cause);

 private:
  class Impl;
  class Master;
  class Worker;
  explicit Membership(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
  std::optional<absl::Status> end_;  // what Leave returned
  bool is_claimed_ = false;
};

}  // namespace braid
