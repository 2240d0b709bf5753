// The frames of windows (windows.h), in the channel of process groups. Little-endian, fixed layout,
// checked on arrival.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "comm/transport.h"

namespace braid::dist {

struct WindowFrame {
  enum class Type : uint8_t {
    kAsk = 6,        // `from` has bytes for `to`'s memory
    kKey = 7,        // `to` may write to `from`'s memory
    kPut = 8,        // `from` has written a part of a put to `to`'s memory
    kPutDone = 9,    // all of the put that `to` made is in `from`'s memory
    kGet = 10,       // `from` wants bytes of `to`'s memory, written to its own
    kGot = 11,       // `from` has written a part of what `to` wants
    kGone = 12,      // `from`'s memory is no part of the window any more
    kGoneSeen = 13,  // and `from` writes nothing there any more
  };
  static constexpr uint32_t kNoSignal = UINT32_MAX;

  Type type = Type::kAsk;
  uint64_t group = 0;
  uint32_t window = 0;  // of the group: from 1
  uint16_t from = 0;    // ranks
  uint16_t to = 0;
  // Of the put or the get, among those of one rank in one window at another: from 0, growing.
  int64_t number = 0;
  int64_t left = 0;             // kPut, kGot: bytes that come after this part
  uint32_t signal = kNoSignal;  // kPut, the last part: what it raises
  int64_t offset = 0;           // kGet: in bytes
  MemoryKey key = {};           // kKey; kGet: of as many bytes as are wanted

  bool operator==(const WindowFrame&) const = default;
};

// Whether a frame's type, in the channel of process groups, is a window's.
bool IsWindowFrame(uint8_t type);

// Offsets: 0 channel, 1 type, 2 two zeros, 4 window, 8 group, 16 from, 18 to, 20 number; then for
// kKey: 28 key; for kPut: 28 left, 36 signal; for kGot: 28 left; for kGet: 28 offset, 36 key.
class EncodedWindowFrame {
 public:
  explicit EncodedWindowFrame(const WindowFrame& frame);
  std::span<const std::byte> bytes() const { return std::span(bytes_).first(size_); }

 private:
  std::array<std::byte, kMaxFrameBytes> bytes_{};
  size_t size_;
};

// Of two bytes at least, whose type is a window's.
absl::StatusOr<WindowFrame> DecodeWindowFrame(std::span<const std::byte> bytes);

}  // namespace braid::dist
