// What a tcp link puts on the wire: packets, each a header, a frame, and the payload of a Write.
// Little-endian; everything received is checked before it is used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/statusor.h"

namespace braid {

// The first bytes of a packet. The frame follows it, then the payload.
struct TcpHeader {
  enum class Kind : uint8_t { kFrame = 1, kWrite = 2, kClose = 3 };

  Kind kind = Kind::kFrame;
  uint16_t frame_bytes = 0;  // of kClose: the bytes of the reason's text
  uint64_t sequence = 0;     // counts the packets of one direction
  // Of kWrite.
  uint64_t token = 0;
  uint64_t offset = 0;
  uint64_t payload_bytes = 0;
};
constexpr size_t kTcpHeaderBytes = 44;
constexpr size_t kMaxCloseText = 1024;

// Writes the header before the frame: `packet` holds kTcpHeaderBytes of room and then the frame,
// over both of which the checksum goes.
void SealTcpPacket(const TcpHeader& header, std::span<std::byte> packet);

// Checks magic, version, kind and sizes; `bytes`: kTcpHeaderBytes. Errors begin with what is wrong.
absl::StatusOr<TcpHeader> ReadTcpHeader(std::span<const std::byte> bytes);
// The header together with its frame.
absl::Status CheckTcpChecksum(std::span<const std::byte> packet);

}  // namespace braid
