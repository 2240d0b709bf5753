#include "runtime/data/idx.h"

#include <zlib.h>

#include <algorithm>
#include <limits>
#include <string_view>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "runtime/base/status.h"
#include "runtime/files/file.h"

namespace braid {
namespace {

// Far above any IDX data set in use; a damaged or hostile file must not fill the memory.
constexpr int64_t kMaxBytes = int64_t{4} << 30;

absl::Status DamagedGzip(const std::string& path, std::string_view why, int64_t read, size_t made) {
  return absl::InvalidArgumentError(absl::StrFormat(
      "'%s' is damaged: gzip stops at byte %d of the file (%d bytes were unpacked): %s; fetch the "
      "file again",
      path, read, made, why));
}

// Inflates all gzip members of `packed`.
absl::StatusOr<std::string> Gunzip(const std::string& path, const std::string& packed) {
  std::string out;
  std::vector<char> chunk(size_t{1} << 20);
  size_t consumed = 0;
  do {
    z_stream stream{};
    // 15 + 16: the largest window, with a gzip header.
    if (inflateInit2(&stream, 15 + 16) != Z_OK) return absl::InternalError("zlib does not start");
    int result = Z_OK;
    const size_t member = consumed;
    while (result == Z_OK) {
      const size_t input = std::min<size_t>(packed.size() - consumed, size_t{1} << 30);
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data() + consumed));
      stream.avail_in = static_cast<uInt>(input);
      stream.next_out = reinterpret_cast<Bytef*>(chunk.data());
      stream.avail_out = static_cast<uInt>(chunk.size());
      result = inflate(&stream, Z_NO_FLUSH);
      consumed += input - stream.avail_in;
      out.append(chunk.data(), chunk.size() - stream.avail_out);
      if (static_cast<int64_t>(out.size()) > kMaxBytes) break;
    }
    const std::string why = result == Z_BUF_ERROR ? "the file ends too early"
                            : stream.msg          ? stream.msg
                                                  : "wrong data";
    inflateEnd(&stream);
    if (static_cast<int64_t>(out.size()) > kMaxBytes) {
      return absl::InvalidArgumentError(
          absl::StrFormat("'%s' unpacks to more than %d bytes", path, kMaxBytes));
    }
    if (result != Z_STREAM_END) {
      return DamagedGzip(path, why, static_cast<int64_t>(consumed), out.size());
    }
    if (consumed == member) break;
  } while (consumed < packed.size());
  return out;
}

uint32_t BigEndian32(const std::string& bytes, size_t at) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<uint8_t>(bytes[at + i]);
  return value;
}

absl::StatusOr<IdxFile> ParseIdx(const std::string& path, const std::string& bytes, int rank) {
  IdxFile idx;
  idx.path = path;
  const size_t header = 4 + 4 * static_cast<size_t>(rank);
  if (bytes.size() < header) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "'%s' is truncated: it has %d bytes, its header takes %d", path, bytes.size(), header));
  }
  // Two zero bytes, the element type (8: unsigned byte), the number of dimensions.
  const uint32_t expected = 0x0800u | static_cast<uint32_t>(rank);
  const uint32_t magic = BigEndian32(bytes, 0);
  if (magic != expected) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "'%s' begins with 0x%08x, expected 0x%08x (IDX, unsigned bytes, %d dimensions)%s", path,
        magic, expected, rank,
        magic >> 16 == 0x1f8b ? "; it is a gzip file: name it .gz" : "; is it another file?"));
  }
  uint64_t elements = 1;
  bool fits = true;
  for (int axis = 0; axis < rank; ++axis) {
    const uint32_t dim = BigEndian32(bytes, 4 + 4 * static_cast<size_t>(axis));
    idx.dims.push_back(dim);
    fits = fits && !__builtin_mul_overflow(elements, uint64_t{dim}, &elements);
  }
  if (!fits || elements != bytes.size() - header) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "'%s' is %s: its header says [%s], so %s bytes follow, but there are %d; fetch it again",
        path, !fits || elements > bytes.size() - header ? "truncated" : "too long",
        absl::StrJoin(idx.dims, ", "), fits ? absl::StrFormat("%d", elements) : "over 2^64",
        bytes.size() - header));
  }
  idx.values.assign(bytes.begin() + static_cast<std::ptrdiff_t>(header), bytes.end());
  return idx;
}

}  // namespace

absl::StatusOr<IdxFile> ReadIdx(const std::vector<std::string>& candidates, int rank) {
  for (const std::string& path : candidates) {
    absl::StatusOr<std::string> bytes = ReadWholeFile(path, kMaxBytes);
    if (absl::IsNotFound(bytes.status())) continue;
    BRAID_RETURN_IF_ERROR(bytes.status());
    if (absl::EndsWith(path, ".gz")) {
      BRAID_ASSIGN_OR_RETURN(*bytes, Gunzip(path, *bytes));
    }
    return ParseIdx(path, *bytes, rank);
  }
  return absl::NotFoundError(
      absl::StrFormat("none of these files exists: '%s'; every node that reads the data needs them",
                      absl::StrJoin(candidates, "', '")));
}

}  // namespace braid
