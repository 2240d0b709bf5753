#include "comm/shm/shm_transport.h"

#include <unistd.h>

#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "comm/control/secret.h"
#include "comm/joining/joining_transport.h"
#include "comm/network/this_machine.h"
#include "comm/shm/shm_link.h"
#include "comm/shm/shm_segment.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

// What an address begins with: peers with another one share no memory with this process. User
// numbers mean something within a user namespace. "": the system does not say where this is.
std::string PlaceOfThis() {
  const std::string machine = ThisMachine();
  std::error_code error;
  const std::string users = std::filesystem::read_symlink("/proc/self/ns/user", error).string();
  if (users.empty() || machine.find('?') != std::string::npos) return "";
  return absl::StrFormat("%s %s user %d", machine, users, geteuid());
}

constexpr char kSeparator = '/';

class ShmTransport final : public JoiningTransport {
 public:
  explicit ShmTransport(const TransportOptions& options)
      : JoiningTransport(options), place_(PlaceOfThis()) {}

  std::string_view name() const override { return "shm"; }
  bool lends() const override { return true; }

  absl::StatusOr<std::string> Open() override {
    BRAID_RETURN_IF_ERROR(CheckReactor());
    BRAID_RETURN_IF_ERROR(CheckSystemNetwork());
    if (place_.empty()) {
      return absl::UnavailableError(
          "the system does not say which machine, network namespace and user namespace this is "
          "(/proc/sys/kernel/random/boot_id, /proc/self/ns)");
    }
    BRAID_RETURN_IF_ERROR(ShmSegment::Make().status());
    BRAID_ASSIGN_OR_RETURN(const std::string name, MakeSecret());
    BRAID_ASSIGN_OR_RETURN(const SocketAddress own,
                           SocketAddress::OfMachine(absl::StrCat("braid-", name)));
    JoinListeners listeners;
    BRAID_ASSIGN_OR_RETURN(Socket listener, options_.network->ListenOn(own));
    listeners.sockets.push_back(std::move(listener));
    listeners.candidates.push_back(own);
    BRAID_ASSIGN_OR_RETURN(
        const std::string address,
        Listen({.name = "this machine"}, std::move(listeners),
               [heap = options_.shared_heap](Socket socket, const LinkEnds& ends) {
                 return MakeShmLink(
                     std::move(socket),
                     {.node = ends.node, .peer = ends.peer, .reactor = ends.reactor, .heap = heap});
               }));
    return absl::StrCat(place_, std::string(1, kSeparator), address);
  }

  absl::Status Reaches(std::string_view peer_address) const override {
    if (AddressIn(peer_address).has_value()) return absl::OkStatus();
    return absl::UnavailableError(
        "it is of another machine, namespace or user, and shares no memory with this one");
  }

  void Connect(LinkRequest request, ConnectCallback done) override {
    request.peer_address = AddressIn(request.peer_address).value_or("");
    JoiningTransport::Connect(std::move(request), std::move(done));
  }

 private:
  // What a joiner dials; none if the peer is elsewhere.
  std::optional<std::string> AddressIn(std::string_view peer_address) const {
    const size_t separator = peer_address.find(kSeparator);
    if (separator == std::string_view::npos) return std::nullopt;
    if (peer_address.substr(0, separator) != std::string_view(place_)) return std::nullopt;
    return std::string(peer_address.substr(separator + 1));
  }

  const std::string place_;
};

}  // namespace

std::unique_ptr<Transport> MakeShmTransport(const TransportOptions& options) {
  return std::make_unique<ShmTransport>(options);
}

}  // namespace braid
