#include "api/tool/launcher_rendezvous.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "api/tool/launch_terms.h"
#include "comm/network/network.h"
#include "runtime/base/status.h"

namespace braid {

absl::StatusOr<std::unique_ptr<LauncherRendezvous>> LauncherRendezvous::Start(
    Environment* environment, const NetworkPlace& place, const std::string& terms) {
  std::unique_ptr<LauncherRendezvous> launchers(new LauncherRendezvous(place));
  BRAID_ASSIGN_OR_RETURN(RendezvousOptions options, RendezvousOptionsOfPlace(place, environment));
  options.self.agreed = terms;
  options.difference = TermsDifference;
  if (place.cluster.rank == 0) {
    BRAID_ASSIGN_OR_RETURN(std::vector<Socket> listeners, ListenAsMaster(place));
    BRAID_ASSIGN_OR_RETURN(launchers->listening_, listeners[0].LocalAddress());
    launchers->server_ =
        std::make_unique<RendezvousServer>(std::move(options), std::move(listeners));
  } else {
    BRAID_ASSIGN_OR_RETURN(WayToMaster way, FindMaster(place));
    launchers->client_ =
        std::make_unique<RendezvousClient>(std::move(options), std::move(way.addresses), way.from);
  }
  return launchers;
}

absl::Status LauncherRendezvous::Join() {
  if (server_ != nullptr) {
    BRAID_ASSIGN_OR_RETURN(others_, server_->Join());
    return absl::OkStatus();
  }
  BRAID_ASSIGN_OR_RETURN(master_, client_->Join());
  return CheckExposure(place_, client_->local_address());
}

void LauncherRendezvous::Abort(const absl::Status& reason) {
  if (server_ != nullptr) {
    server_->Abort(reason);
  } else {
    client_->Abort(reason);
  }
}

std::vector<LaunchMaster::Machine> LauncherRendezvous::TakeOthers(Reactor* reactor) {
  std::vector<LaunchMaster::Machine> machines;
  for (JoinedNode& other : std::exchange(others_, {})) {
    machines.push_back({.name = NameMachine(other.identity.node, other.identity.host),
                        .channel = MakeTcpControlChannel(std::move(other.connection), reactor)});
  }
  return machines;
}

std::unique_ptr<ControlChannel> LauncherRendezvous::TakeMaster(Reactor* reactor) {
  return MakeTcpControlChannel(std::move(master_), reactor);
}

void LauncherRendezvous::SetStatusSource(RendezvousServer::StatusSource source) {
  if (server_ != nullptr) server_->SetStatusSource(std::move(source));
}

absl::StatusOr<uint16_t> LauncherRendezvous::ChoosePort() {
  BRAID_ASSIGN_OR_RETURN(port_, ReservePort(listening_.WithPort(0)));
  BRAID_ASSIGN_OR_RETURN(const SocketAddress address, port_.LocalAddress());
  return address.port();
}

std::string NameMachine(int number, const std::string& host) {
  return absl::StrFormat("machine %d (%s)", number, host);
}

}  // namespace braid
