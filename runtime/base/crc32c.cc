#include "runtime/base/crc32c.h"

#include <array>
#include <cstring>

namespace braid {
namespace {

constexpr uint32_t kPolynomial = 0x82f63b78u;  // reflected

using Tables = std::array<std::array<uint32_t, 256>, 8>;

// kTables[k][b]: what byte b followed by k zero bytes does to the register ("slicing by 8").
constexpr Tables MakeTables() {
  Tables tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) ? kPolynomial : 0);
    tables[0][byte] = crc;
  }
  for (int k = 1; k < 8; ++k) {
    for (uint32_t byte = 0; byte < 256; ++byte) {
      const uint32_t previous = tables[k - 1][byte];
      tables[k][byte] = (previous >> 8) ^ tables[0][previous & 0xff];
    }
  }
  return tables;
}

constexpr Tables kTables = MakeTables();

uint32_t UpdatePlain(uint32_t crc, const uint8_t* data, size_t bytes) {
  for (; bytes >= 8; bytes -= 8, data += 8) {
    const uint32_t low = crc ^ (uint32_t{data[0]} | uint32_t{data[1]} << 8 |
                                uint32_t{data[2]} << 16 | uint32_t{data[3]} << 24);
    crc = kTables[7][low & 0xff] ^ kTables[6][(low >> 8) & 0xff] ^ kTables[5][(low >> 16) & 0xff] ^
          kTables[4][low >> 24] ^ kTables[3][data[4]] ^ kTables[2][data[5]] ^ kTables[1][data[6]] ^
          kTables[0][data[7]];
  }
  for (; bytes > 0; --bytes, ++data) crc = (crc >> 8) ^ kTables[0][(crc ^ *data) & 0xff];
  return crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t UpdateSse42(uint32_t crc, const uint8_t* data,
                                                       size_t bytes) {
  uint64_t crc64 = crc;
  for (; bytes >= 8; bytes -= 8, data += 8) {
    uint64_t word;
    std::memcpy(&word, data, 8);
    crc64 = __builtin_ia32_crc32di(crc64, word);
  }
  crc = static_cast<uint32_t>(crc64);
  for (; bytes > 0; --bytes, ++data) crc = __builtin_ia32_crc32qi(crc, *data);
  return crc;
}

uint32_t Update(uint32_t crc, const uint8_t* data, size_t bytes) {
  return __builtin_cpu_supports("sse4.2") ? UpdateSse42(crc, data, bytes)
                                          : UpdatePlain(crc, data, bytes);
}
#else
uint32_t Update(uint32_t crc, const uint8_t* data, size_t bytes) {
  return UpdatePlain(crc, data, bytes);
}
#endif

// A linear map of the register: column i is where bit i goes.
using Matrix = std::array<uint32_t, 32>;

uint32_t Apply(const Matrix& matrix, uint32_t vector) {
  uint32_t out = 0;
  for (int i = 0; vector != 0; ++i, vector >>= 1) {
    if (vector & 1) out ^= matrix[i];
  }
  return out;
}

Matrix Square(const Matrix& matrix) {
  Matrix out;
  for (int i = 0; i < 32; ++i) out[i] = Apply(matrix, matrix[i]);
  return out;
}

}  // namespace

uint32_t Crc32c(const void* data, size_t bytes) {
  return ~Update(~uint32_t{0}, static_cast<const uint8_t*>(data), bytes);
}

uint32_t CombineCrc32c(uint32_t first, uint32_t second, uint64_t second_bytes) {
  // Appending a zero byte is linear; its powers of two give any number of them.
  Matrix zeros;
  for (int i = 0; i < 32; ++i) {
    const uint32_t bit = uint32_t{1} << i;
    zeros[i] = (bit >> 8) ^ kTables[0][bit & 0xff];
  }
  for (uint64_t n = second_bytes; n != 0; n >>= 1) {
    if (n & 1) first = Apply(zeros, first);
    zeros = Square(zeros);
  }
  return first ^ second;
}

}  // namespace braid
