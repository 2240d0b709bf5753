// Whether payload passes a new link, both ways, before anybody begins to rely on it: small frames
// may pass where whole packets do not (an MTU that is too large), or one way only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "comm/transport.h"
#include "runtime/base/reactor.h"

namespace braid {

// Each end exposes a region and sends its key; to the other's key it answers, and writes a pattern
// to the other's region. What it waits for is the other's pattern: when both ends are done, both
// directions work. The answer tells a peer that is slow from a link that carries only what is
// small. On the link's reactor.
class LinkCheck {
 public:
  // `done` is called once unless the check is destroyed before. Destroy it after the link, which
  // may write to the region until then.
  LinkCheck(Link* link, Reactor* reactor, std::function<void(absl::Status)> done);
  ~LinkCheck();
  LinkCheck(const LinkCheck&) = delete;
  LinkCheck& operator=(const LinkCheck&) = delete;

  void Start();
  // A frame of Channel::kCheck; an error means that the peer broke the rules.
  absl::Status OnFrame(std::span<const std::byte> frame);

 private:
  // In place of the limit before.
  void FailAfter(Nanoseconds limit, const std::string& why);
  void Finish(const absl::Status& status);

  Link* const link_;
  Reactor* const reactor_;
  std::function<void(absl::Status)> done_;
  std::vector<std::byte> region_;
  std::optional<MemoryKey> key_;  // of region_, while it is exposed
  bool is_answered_ = false;
  std::optional<TimerId> timer_;
};

}  // namespace braid
