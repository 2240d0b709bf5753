// What transports have in common whose links begin with a joined stream socket.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "comm/joining/peer_joiner.h"
#include "comm/transport.h"

namespace braid {

class JoiningTransport : public Transport {
 public:
  // At once on the reactor's thread, which may end before it gets to what is posted now.
  ~JoiningTransport() override;

  // The request's address is what Listen of the peer's transport returned.
  void Connect(LinkRequest request, ConnectCallback done) override;

 protected:
  explicit JoiningTransport(const TransportOptions& options) : options_(options) {}

  // Of Open, which is called once: FAILED_PRECONDITION where an option is none for this transport.
  absl::Status CheckReactor() const;
  absl::Status CheckSystemNetwork() const;
  // The end of Open: joins peers that come to the listeners, and those that are dialled from the
  // place. The address at which peers find this node.
  absl::StatusOr<std::string> Listen(JoinPlace place, JoinListeners listeners,
                                     MakeLinkOfSocket make_link);
  // After Listen.
  const JoinPlace& place() const { return joiner_->place(); }

  const TransportOptions options_;

 private:
  std::shared_ptr<PeerJoiner> joiner_;
};

}  // namespace braid
