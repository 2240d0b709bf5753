#include "runtime/files/block_checksums.h"

#include <glog/logging.h>

#include <algorithm>

#include "absl/strings/str_format.h"
#include "runtime/base/crc32c.h"
#include "runtime/base/status.h"

namespace braid {

absl::Status BlockChecksums::Add(int64_t offset, const void* data, size_t bytes) {
  CHECK_GE(offset, 0);
  const auto* next = static_cast<const std::byte*>(data);
  const int64_t end = offset + static_cast<int64_t>(bytes);
  while (offset < end) {
    const int64_t border = (offset / kChecksumBlockBytes + 1) * kChecksumBlockBytes;
    const int64_t length = std::min(border, end) - offset;
    BRAID_RETURN_IF_ERROR(AddPiece(offset, {length, Crc32c(next, static_cast<size_t>(length))}));
    offset += length;
    next += length;
  }
  return absl::OkStatus();
}

absl::Status BlockChecksums::Add(const Stretch& stretch) {
  if (stretch.offset < 0 || stretch.bytes < 1 ||
      stretch.bytes > kChecksumBlockBytes - stretch.offset % kChecksumBlockBytes) {
    return absl::InvalidArgumentError(absl::StrFormat("%d bytes at %d are no part of a block of %d",
                                                      stretch.bytes, stretch.offset,
                                                      kChecksumBlockBytes));
  }
  return AddPiece(stretch.offset, {stretch.bytes, stretch.crc});
}

std::vector<BlockChecksums::Stretch> BlockChecksums::stretches() const {
  std::vector<Stretch> all;
  for (const auto& [offset, piece] : pieces_) all.push_back({offset, piece.bytes, piece.crc});
  return all;
}

absl::Status BlockChecksums::AddPiece(int64_t offset, Piece piece) {
  auto after = pieces_.lower_bound(offset);
  auto before = after == pieces_.begin() ? pieces_.end() : std::prev(after);
  if ((after != pieces_.end() && after->first < offset + piece.bytes) ||
      (before != pieces_.end() && before->first + before->second.bytes > offset)) {
    return absl::AlreadyExistsError(
        absl::StrFormat("bytes %d to %d of the file were written before, in whole or in part",
                        offset, offset + piece.bytes));
  }
  if (after != pieces_.end() && after->first == offset + piece.bytes &&
      after->first % kChecksumBlockBytes != 0) {
    piece.crc =
        CombineCrc32c(piece.crc, after->second.crc, static_cast<uint64_t>(after->second.bytes));
    piece.bytes += after->second.bytes;
    pieces_.erase(after);
  }
  if (before != pieces_.end() && before->first + before->second.bytes == offset &&
      offset % kChecksumBlockBytes != 0) {
    before->second.crc =
        CombineCrc32c(before->second.crc, piece.crc, static_cast<uint64_t>(piece.bytes));
    before->second.bytes += piece.bytes;
  } else {
    pieces_[offset] = piece;
  }
  return absl::OkStatus();
}

std::optional<int64_t> BlockChecksums::FirstMissing(int64_t file_bytes) const {
  int64_t end = 0;
  for (const auto& [offset, piece] : pieces_) {
    if (offset != end) return end;
    end += piece.bytes;
  }
  if (end != file_bytes) return end;
  return std::nullopt;
}

std::vector<uint32_t> BlockChecksums::Finish() const {
  std::vector<uint32_t> out;
  for (const auto& [offset, piece] : pieces_) out.push_back(piece.crc);
  return out;
}

}  // namespace braid
