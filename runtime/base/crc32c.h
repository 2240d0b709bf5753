// CRC32C (Castagnoli polynomial, RFC 3720 appendix B.4): the checksum of checkpoint blocks
// and of frames on the wire.
#pragma once

#include <cstddef>
#include <cstdint>

namespace braid {

uint32_t Crc32c(const void* data, size_t bytes);

// The checksum of A followed by B, from the checksum of A, of B, and the length of B.
uint32_t CombineCrc32c(uint32_t first, uint32_t second, uint64_t second_bytes);

}  // namespace braid
