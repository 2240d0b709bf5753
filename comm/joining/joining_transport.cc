#include "comm/joining/joining_transport.h"

#include <span>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "comm/joining/node_greeting.h"
#include "glog/logging.h"
#include "runtime/base/random_bytes.h"
#include "runtime/base/status.h"

namespace braid {

JoiningTransport::~JoiningTransport() {
  if (!joiner_) return;
  if (options_.reactor->InThread()) {
    joiner_->Stop();
  } else {
    options_.reactor->Post([joiner = joiner_] { joiner->Stop(); });
  }
}

absl::Status JoiningTransport::CheckReactor() const {
  CHECK(!joiner_) << "a transport is opened once";
  if (options_.reactor != nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrFormat("%s needs a reactor, and none was given", std::string(name())));
}

absl::Status JoiningTransport::CheckSystemNetwork() const {
  if (options_.network == SystemNetwork()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrFormat("%s needs the system's own sockets", std::string(name())));
}

absl::StatusOr<std::string> JoiningTransport::Listen(JoinPlace place, JoinListeners listeners,
                                                     MakeLinkOfSocket make_link) {
  NodeAddress address;
  BRAID_RETURN_IF_ERROR(FillRandom(std::as_writable_bytes(std::span(address.cookie))));
  address.candidates = std::move(listeners.candidates);
  joiner_ = std::make_shared<PeerJoiner>(PeerJoinerOptions{.node = options_.node,
                                                           .transport = std::string(name()),
                                                           .cookie = address.cookie,
                                                           .place = std::move(place),
                                                           .reactor = options_.reactor,
                                                           .network = options_.network},
                                         std::move(make_link));
  auto sockets = std::make_shared<std::vector<Socket>>(std::move(listeners.sockets));
  options_.reactor->Post([joiner = joiner_, sockets] { joiner->Start(std::move(*sockets)); });
  return address.ToString();
}

void JoiningTransport::Connect(LinkRequest request, ConnectCallback done) {
  CHECK(request.reactor && done);
  CHECK_NE(options_.node, request.peer) << "a node needs no link to itself";
  CHECK(joiner_) << "a transport is opened before it connects";
  options_.reactor->Post(
      [joiner = joiner_, request = std::move(request), done = std::move(done)]() mutable {
        joiner->Connect(std::move(request), std::move(done));
      });
}

}  // namespace braid
