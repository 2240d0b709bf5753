// Cuts a fuzzer's bytes into numbers and pieces, whatever they are: at the end there are zeros.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "glog/logging.h"
#include "tests/fuzz/target.h"

namespace braid::fuzz {

class InputReader {
 public:
  explicit InputReader(Bytes bytes) : bytes_(bytes) {}

  bool AtEnd() const { return bytes_.empty(); }
  uint8_t Byte() {
    const Bytes taken = Take(1);
    return taken.empty() ? 0 : taken[0];
  }
  uint16_t Short() {
    const uint16_t low = Byte();
    return static_cast<uint16_t>(low | Byte() << 8);
  }
  uint64_t Long() {
    uint64_t number = 0;
    for (int shift = 0; shift < 64; shift += 16) number |= uint64_t{Short()} << shift;
    return number;
  }
  Bytes Take(size_t count) {
    const Bytes taken = bytes_.first(std::min(count, bytes_.size()));
    bytes_ = bytes_.subspan(taken.size());
    return taken;
  }
  // A piece with its length, of 16 bits, before it.
  Bytes Piece() { return Take(Short()); }
  Bytes Rest() { return Take(bytes_.size()); }

 private:
  Bytes bytes_;
};

// As InputReader::Piece reads it.
inline std::string PieceOf(std::string_view bytes) {
  CHECK_LE(bytes.size(), size_t{UINT16_MAX});
  std::string piece = {static_cast<char>(bytes.size()), static_cast<char>(bytes.size() >> 8)};
  return piece.append(bytes);
}

inline std::string TextOf(Bytes bytes) { return std::string(bytes.begin(), bytes.end()); }
inline std::span<const std::byte> AsBytes(Bytes bytes) { return std::as_bytes(bytes); }

}  // namespace braid::fuzz
