// A Link between two processes of a machine through memory that both map (shm_segment.h), over a
// connected Unix socket, which brings the memory, wakes who sleeps, and ends when the peer does.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "comm/network/socket.h"
#include "comm/transport.h"
#include "runtime/base/shared_heap.h"

namespace braid {

struct ShmLinkOptions {
  uint16_t node = 0;
  uint16_t peer = 0;
  Reactor* reactor = nullptr;  // outlives the link
  // Memory of this process that peers may map, so that they write there directly; outlives the
  // link. Null: there is none.
  SharedHeap* heap = nullptr;
};

// On the link's reactor. Both ends begin right after their greetings. Errors: no memory or
// descriptor for it; PERMISSION_DENIED if the peer is another user's.
absl::StatusOr<std::unique_ptr<Link>> MakeShmLink(Socket socket, const ShmLinkOptions& options);

}  // namespace braid
