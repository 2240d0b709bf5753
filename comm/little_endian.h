// Fixed-width integers on the wire: little-endian, whatever the host. For frames and headers of
// comm.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

namespace braid {

// Writes `value` at `bytes[at...]`, which must have room for it.
template <typename T>
void PutLittleEndian(std::span<std::byte> bytes, size_t at, T value) {
  static_assert(std::is_integral_v<T>);
  auto bits = static_cast<std::make_unsigned_t<T>>(value);
  for (size_t i = 0; i < sizeof(T); ++i) {
    bytes[at + i] = static_cast<std::byte>(static_cast<uint64_t>(bits) >> (8 * i));
  }
}

template <typename T>
T GetLittleEndian(std::span<const std::byte> bytes, size_t at) {
  static_assert(std::is_integral_v<T>);
  uint64_t bits = 0;
  for (size_t i = 0; i < sizeof(T); ++i) {
    bits |= static_cast<uint64_t>(bytes[at + i]) << (8 * i);
  }
  return static_cast<T>(bits);
}

}  // namespace braid
