#include "runtime/base/crc32c.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "runtime/files/block_checksums.h"

namespace braid {
namespace {

uint32_t BitByBit(const std::string& text) {
  uint32_t crc = ~0u;
  for (char c : text) {
    crc ^= static_cast<uint8_t>(c);
    for (int i = 0; i < 8; ++i) crc = (crc >> 1) ^ ((crc & 1) ? 0x82f63b78u : 0);
  }
  return ~crc;
}

TEST(Crc32c, KnownAnswers) {  // RFC 3720, B.4
  EXPECT_EQ(Crc32c("123456789", 9), 0xe3069283u);
  EXPECT_EQ(Crc32c(std::string(32, '\0').data(), 32), 0x8a9136aau);
  EXPECT_EQ(Crc32c(std::string(32, '\xff').data(), 32), 0x62a8ab43u);
  EXPECT_EQ(Crc32c("", 0), 0u);
}

TEST(Crc32c, EveryLengthAndCut) {
  std::string text(200, '\0');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 37 + 11);
  for (size_t n = 0; n <= text.size(); ++n) {
    ASSERT_EQ(Crc32c(text.data(), n), BitByBit(text.substr(0, n))) << n;
    ASSERT_EQ(CombineCrc32c(Crc32c(text.data(), n), Crc32c(text.data() + n, text.size() - n),
                            text.size() - n),
              Crc32c(text.data(), text.size()))
        << n;
  }
}

TEST(BlockChecksums, PiecesInAnyOrder) {
  std::vector<uint8_t> data(2 * kChecksumBlockBytes + 1000);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<uint8_t>(i * 31 + (i >> 10));
  const int64_t size = static_cast<int64_t>(data.size());
  const std::vector<uint32_t> expected = {
      Crc32c(data.data(), kChecksumBlockBytes),
      Crc32c(data.data() + kChecksumBlockBytes, kChecksumBlockBytes),
      Crc32c(data.data() + 2 * kChecksumBlockBytes, 1000)};
  constexpr int64_t kPiece = 300'007;  // crosses the blocks' borders
  const int64_t pieces = (size + kPiece - 1) / kPiece;
  BlockChecksums checksums;
  for (int64_t k = 0; k < pieces; ++k) {
    const int64_t i = k * 11 % pieces;  // 11 has no factor in common with 28 pieces
    EXPECT_EQ(checksums.FirstMissing(size).has_value(), true);
    ASSERT_TRUE(checksums
                    .Add(i * kPiece, data.data() + i * kPiece,
                         static_cast<size_t>(std::min(kPiece, size - i * kPiece)))
                    .ok());
  }
  EXPECT_FALSE(checksums.FirstMissing(size).has_value());
  EXPECT_EQ(checksums.Finish(), expected);
  EXPECT_TRUE(absl::IsAlreadyExists(checksums.Add(5, data.data(), 1)));
}

TEST(BlockChecksums, SeesGapsAndOverlaps) {
  const std::string data(100, 'x');
  BlockChecksums checksums;
  ASSERT_TRUE(checksums.Add(0, data.data(), 10).ok());
  ASSERT_TRUE(checksums.Add(20, data.data(), 80).ok());
  EXPECT_EQ(checksums.FirstMissing(100), 10);
  EXPECT_FALSE(checksums.Add(9, data.data(), 2).ok());
  EXPECT_FALSE(checksums.Add(15, data.data(), 6).ok());
  EXPECT_TRUE(checksums.Add(10, data.data(), 10).ok());
  EXPECT_EQ(checksums.FirstMissing(100), std::nullopt);
}

}  // namespace
}  // namespace braid
