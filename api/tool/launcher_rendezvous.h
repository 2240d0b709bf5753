// How the launchers of several machines find each other: as nodes do, at --master_addr and
// --master_port, where machine 0's listens. The ranks that they start meet on the same host, at
// another port.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "api/tool/launch_master.h"
#include "comm/control/control_channel.h"
#include "comm/control/network_place.h"
#include "comm/control/rendezvous.h"
#include "comm/network/socket.h"
#include "runtime/base/reactor.h"

namespace braid {

// Made and destroyed by the host thread, after all channels.
class LauncherRendezvous {
 public:
  // Listens or begins to dial. `terms` must be the same text on all machines (launch_terms.h).
  static absl::StatusOr<std::unique_ptr<LauncherRendezvous>> Start(Environment* environment,
                                                                   const NetworkPlace& place,
                                                                   const std::string& terms);

  // The host thread waits until all launchers are there.
  absl::Status Join();
  // Ends Join. Any thread.
  void Abort(const absl::Status& reason);

  // After Join, for handlers on `reactor`: on machine 0 the launchers of the others, by their
  // numbers; on others the way to machine 0's.
  std::vector<LaunchMaster::Machine> TakeOthers(Reactor* reactor);
  std::unique_ptr<ControlChannel> TakeMaster(Reactor* reactor);

  // On machine 0: what `braid status` is answered, see RendezvousServer.
  void SetStatusSource(RendezvousServer::StatusSource source);
  // On machine 0: a port that nobody else gets until the next call.
  absl::StatusOr<uint16_t> ChoosePort();

 private:
  explicit LauncherRendezvous(const NetworkPlace& place) : place_(place) {}

  const NetworkPlace place_;
  SocketAddress listening_;  // on machine 0: where ranks may, too
  Socket port_;
  std::unique_ptr<RendezvousServer> server_;
  std::unique_ptr<RendezvousClient> client_;
  std::vector<JoinedNode> others_;
  std::shared_ptr<ControlConnection> master_;
};

// "machine 1 (hostb)".
std::string NameMachine(int number, const std::string& host);

}  // namespace braid
