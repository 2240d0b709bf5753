// The checksums of a file's blocks while its bytes are written in pieces, in any order: what a
// checkpoint's side file holds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "absl/status/status.h"

namespace braid {

inline constexpr int64_t kChecksumBlockBytes = int64_t{4} << 20;

class BlockChecksums {
 public:
  // Bytes within one block of which somebody knows the CRC32C.
  struct Stretch {
    int64_t offset = 0;  // in the file
    int64_t bytes = 0;
    uint32_t crc = 0;
  };

  // Notes that `data` lies at `offset`. ALREADY_EXISTS if one of its bytes was noted before.
  absl::Status Add(int64_t offset, const void* data, size_t bytes);
  // The same of a stretch. INVALID_ARGUMENT if it is empty or crosses a block's border.
  absl::Status Add(const Stretch& stretch);

  // All that was noted, by offset; neighbours within a block are one.
  std::vector<Stretch> stretches() const;

  // The first byte of a file of so many that was not noted; nullopt if all were.
  std::optional<int64_t> FirstMissing(int64_t file_bytes) const;

  // CRC32C of each block; the last one may be short. Only when nothing is missing.
  std::vector<uint32_t> Finish() const;

 private:
  struct Piece {
    int64_t bytes = 0;
    uint32_t crc = 0;
  };
  absl::Status AddPiece(int64_t offset, Piece piece);

  // By offset in the file; no piece crosses a block's border, and neighbours within a block are
  // one.
  std::map<int64_t, Piece> pieces_;
};

}  // namespace braid
