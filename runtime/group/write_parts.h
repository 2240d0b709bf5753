// Writes into memory that a peer exposed, a part at a time, so that what else goes over the link
// does not wait for large ones. Sends do so, and puts and gets of windows.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "absl/status/status.h"
#include "comm/transport.h"
#include "runtime/base/reactor.h"

namespace braid::dist {

constexpr int64_t kPartBytes = 1 << 20;
constexpr int kMostPartsWriting = 4;

struct OutgoingBytes {
  Link* link = nullptr;        // borrowed
  Reactor* reactor = nullptr;  // borrowed
  const std::byte* data = nullptr;
  int64_t bytes = 0;
  MemoryKey key = {};
  int64_t offset = 0;  // there, of the first byte
};

// Of one write, kept by its owner.
struct PartsProgress {
  int64_t& moved;  // bytes that the link was given
  int& writing;    // parts that the link still reads
};

// Gives the link as many parts as may be with it. `frame_of(moved, bytes)` is the encoded frame
// that tells the peer of a part. For each part that the link goes on reading, `on_written` comes
// later, on the reactor's thread, and takes it off `writing`.
template <typename FrameOf>
void WriteParts(const OutgoingBytes& outgoing, PartsProgress progress, const FrameOf& frame_of,
                const std::function<void(const absl::Status&)>& on_written) {
  while (progress.moved < outgoing.bytes && progress.writing < kMostPartsWriting) {
    const int64_t bytes = std::min(kPartBytes, outgoing.bytes - progress.moved);
    const auto frame = frame_of(progress.moved, bytes);
    const bool is_written = outgoing.link->Write(
        std::span(outgoing.data + progress.moved, static_cast<size_t>(bytes)), outgoing.key,
        static_cast<uint64_t>(outgoing.offset + progress.moved), frame.bytes(),
        [reactor = outgoing.reactor, on_written](const absl::Status& status) {
          reactor->Post([on_written, status] { on_written(status); });
        });
    if (!is_written) ++progress.writing;
    progress.moved += bytes;
  }
}

}  // namespace braid::dist
