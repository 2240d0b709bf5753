// The transport inside one process: nodes that share a LoopbackNetwork reach each other through
// queues. Tests and simulation run whole clusters on it. Payload is copied on the receiver's
// reactor, when it is delivered, as a network would do it.
#pragma once

#include <map>
#include <memory>
#include <utility>

#include "comm/transport.h"
#include "runtime/base/mutex.h"

namespace braid {

inline constexpr std::string_view kLoopback = "loopback";  // its name

// Where two nodes of one process find each other. Outlives its transports.
class LoopbackNetwork {
 public:
  LoopbackNetwork();
  ~LoopbackNetwork();
  LoopbackNetwork(const LoopbackNetwork&) = delete;
  LoopbackNetwork& operator=(const LoopbackNetwork&) = delete;

  std::string address() const;
  // Joins the two ends once both nodes have called. Any thread.
  void Connect(uint16_t node, LinkRequest request, Transport::ConnectCallback done);
  // Drops this node's calls to which no peer has answered, so that its reactor may end. Any thread.
  void Forget(uint16_t node);

 private:
  struct Offer;
  void Await(const std::shared_ptr<Offer>& offer);
  void Expire(const std::shared_ptr<Offer>& offer);

  Mutex mutex_;
  std::map<std::pair<uint16_t, uint16_t>, std::shared_ptr<Offer>> offers_ BRAID_GUARDED_BY(mutex_);
};

std::unique_ptr<Transport> MakeLoopbackTransport(uint16_t node, LoopbackNetwork* network);

}  // namespace braid
