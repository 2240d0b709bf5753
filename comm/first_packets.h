// For how many packets, and answers, the queues of a link have room from the start. More wait only
// where a plan lets more be on their way at a time; then the queues grow, once.
#pragma once

#include <cstddef>

namespace braid {

inline constexpr size_t kFirstPackets = 256;

// A link reads that much of what has come; then others on its reactor have their turn.
inline constexpr size_t kReadBytes = 1 << 20;

}  // namespace braid
