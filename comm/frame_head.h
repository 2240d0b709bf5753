// How the frames of collectives and of process groups begin: 0 channel, 1 type, 2 two zeros, 4
// slot, 8 id, 16 from, 18 to, 20 number; what else a type has follows at 28.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "comm/little_endian.h"

namespace braid {

struct FrameHead {
  uint8_t channel = 0;
  uint8_t type = 0;
  uint32_t slot = 0;
  uint64_t id = 0;
  uint16_t from = 0, to = 0;
  int64_t number = 0;
};

inline void PutFrameHead(std::span<std::byte> bytes, const FrameHead& head) {
  PutLittleEndian(bytes, 0, head.channel);
  PutLittleEndian(bytes, 1, head.type);
  PutLittleEndian(bytes, 2, uint16_t{0});
  PutLittleEndian(bytes, 4, head.slot);
  PutLittleEndian(bytes, 8, head.id);
  PutLittleEndian(bytes, 16, head.from);
  PutLittleEndian(bytes, 18, head.to);
  PutLittleEndian(bytes, 20, head.number);
}

// Of two bytes at least. An error unless there are `size` bytes, as frames of this type have.
inline absl::StatusOr<FrameHead> GetFrameHead(std::span<const std::byte> bytes, size_t size,
                                              std::string_view kind) {
  FrameHead head;
  head.channel = GetLittleEndian<uint8_t>(bytes, 0);
  head.type = GetLittleEndian<uint8_t>(bytes, 1);
  if (bytes.size() != size) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "wrong %s frame: type %d has %d bytes, must be %d", kind, head.type, bytes.size(), size));
  }
  if (const auto zero = GetLittleEndian<uint16_t>(bytes, 2); zero != 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("wrong %s frame: bytes 2 and 3 are %d, must be 0", kind, zero));
  }
  head.slot = GetLittleEndian<uint32_t>(bytes, 4);
  head.id = GetLittleEndian<uint64_t>(bytes, 8);
  head.from = GetLittleEndian<uint16_t>(bytes, 16);
  head.to = GetLittleEndian<uint16_t>(bytes, 18);
  head.number = GetLittleEndian<int64_t>(bytes, 20);
  return head;
}

}  // namespace braid
