// The way out of the node: what actors say to actors of other nodes goes through here.
#pragma once

#include "absl/status/status.h"
#include "actor/message.h"

namespace braid {

// Carries messages to other nodes; each pair's in order.
class RemoteSender {
 public:
  virtual ~RemoteSender() = default;
  // On the sending actor's thread. An error fails that thread.
  virtual absl::Status Send(const Message& message) = 0;
};

}  // namespace braid
