// The reading half of checkpoint.h.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "runtime/base/crc32c.h"
#include "runtime/base/status.h"
#include "runtime/files/checkpoint.h"

namespace braid {
namespace {

namespace fs = std::filesystem;

std::string Join(const std::string& directory, std::string_view name) {
  return absl::StrFormat("%s/%s", directory, name);
}

bool Exists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

// "; whole checkpoints there: step-3, step-7" or nothing.
std::string WholeCheckpoints(const std::string& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.starts_with("step-") && !name.ends_with(".tmp") &&
        Exists(Join(entry->path().string(), kIndexFile))) {
      names.push_back(name);
    }
  }
  if (names.empty()) return "";
  std::sort(names.begin(), names.end());
  return absl::StrFormat("; whole checkpoints there, to be named in full: %s",
                         absl::StrJoin(names, ", "));
}

// The checkpoint that `path` means.
absl::StatusOr<std::string> Resolve(const std::string& path) {
  if (Exists(Join(path, kIndexFile))) return path;
  const std::string latest = Join(path, "latest");
  if (!Exists(latest)) {
    return absl::NotFoundError(
        absl::StrFormat("'%s' is no checkpoint: it has neither a file 'latest' nor '%s'%s", path,
                        kIndexFile, WholeCheckpoints(path)));
  }
  ASSIGN_OR_RETURN(std::string name, ReadWholeFile(latest, 4096));
  while (!name.empty() && (name.back() == '\n' || name.back() == '\r')) name.pop_back();
  if (!name.starts_with("step-") || name.find('/') != std::string::npos ||
      name.find('\n') != std::string::npos) {
    return absl::InvalidArgumentError(
        absl::StrFormat("'%s' is damaged: it holds '%s', expected a line like step-12%s", latest,
                        name, WholeCheckpoints(path)));
  }
  std::string resolved = Join(path, name);
  if (!Exists(resolved)) {
    return absl::NotFoundError(absl::StrFormat("'%s' names '%s', which is not there%s", latest,
                                               name, WholeCheckpoints(path)));
  }
  return resolved;
}

absl::Status WrongBlock(const std::string& path, int64_t block, uint32_t expected, uint32_t found) {
  return absl::DataLossError(absl::StrFormat(
      "'%s' is damaged in block %d (bytes from %d): its CRC32C is %08x, %s says %08x; restore the "
      "file or load another checkpoint",
      path, block, block * kChecksumBlockBytes, found, kChecksumsFile, expected));
}

absl::Status WrongSize(const std::string& path, int64_t expected, int64_t found) {
  return absl::DataLossError(absl::StrFormat(
      "'%s' is damaged: it has %d bytes, %s says %d; restore the file or load another checkpoint",
      path, found, kChecksumsFile, expected));
}

absl::StatusOr<const FileChecksums*> ChecksumsOf(const CheckpointChecksums& checksums,
                                                 const std::string& directory,
                                                 const std::string& name) {
  const auto found = checksums.find(name);
  if (found == checksums.end()) {
    return absl::InvalidArgumentError(absl::StrFormat("'%s' is damaged: it has no entry for '%s'",
                                                      Join(directory, kChecksumsFile), name));
  }
  return &found->second;
}

// Reads a small file whole and checks it.
absl::StatusOr<std::string> ReadSideFile(const CheckpointChecksums& checksums,
                                         const std::string& directory, const std::string& name) {
  const std::string path = Join(directory, name);
  ASSIGN_OR_RETURN(const FileChecksums* expected, ChecksumsOf(checksums, directory, name));
  ASSIGN_OR_RETURN(std::string contents, ReadWholeFile(path, kMaxSideFileBytes));
  if (static_cast<int64_t>(contents.size()) != expected->bytes) {
    return WrongSize(path, expected->bytes, static_cast<int64_t>(contents.size()));
  }
  for (size_t block = 0; block < expected->blocks.size(); ++block) {
    const size_t at = block * kChecksumBlockBytes;
    const uint32_t crc =
        Crc32c(contents.data() + at, std::min<size_t>(kChecksumBlockBytes, contents.size() - at));
    if (crc != expected->blocks[block]) {
      return WrongBlock(path, static_cast<int64_t>(block), expected->blocks[block], crc);
    }
  }
  return contents;
}

// Levenshtein's.
size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t above = row[j + 1];
      row[j + 1] = std::min({above + 1, row[j] + 1, diagonal + (a[i] != b[j])});
      diagonal = above;
    }
  }
  return row[b.size()];
}

}  // namespace

absl::StatusOr<std::unique_ptr<CheckpointReader>> CheckpointReader::Open(const std::string& path) {
  std::unique_ptr<CheckpointReader> reader(new CheckpointReader());
  ASSIGN_OR_RETURN(reader->path_, Resolve(path));
  const std::string& directory = reader->path_;
  const std::string checksums_path = Join(directory, kChecksumsFile);
  ASSIGN_OR_RETURN(const std::string checksums_text,
                   ReadWholeFile(checksums_path, kMaxSideFileBytes));
  ASSIGN_OR_RETURN(const CheckpointChecksums checksums,
                   ParseChecksums(checksums_path, checksums_text));
  ASSIGN_OR_RETURN(const std::string state_text, ReadSideFile(checksums, directory, kStateFile));
  ASSIGN_OR_RETURN(reader->state_, ParseState(Join(directory, kStateFile), state_text));
  ASSIGN_OR_RETURN(const std::string index_text, ReadSideFile(checksums, directory, kIndexFile));
  ASSIGN_OR_RETURN(const CheckpointIndex index,
                   ParseIndex(Join(directory, kIndexFile), index_text));
  RETURN_IF_ERROR(reader->OpenFiles(index, checksums));
  return reader;
}

absl::Status CheckpointReader::OpenFiles(const CheckpointIndex& index,
                                         const CheckpointChecksums& checksums) {
  std::map<std::string, size_t> numbers;
  for (const auto& [tensor, name] : index.weight_map) {
    auto [number, is_new] = numbers.emplace(name, files_.size());
    if (is_new) {
      const std::string path = Join(path_, name);
      ASSIGN_OR_RETURN(const FileChecksums* expected, ChecksumsOf(checksums, path_, name));
      ASSIGN_OR_RETURN(SafetensorsReader reader, SafetensorsReader::Open(path));
      if (reader.file().size() != expected->bytes) {
        return WrongSize(path, expected->bytes, reader.file().size());
      }
      files_.push_back({std::move(reader), *expected});
    }
    const File& file = files_[number->second];
    const StoredTensor* stored = file.reader.Find(tensor);
    if (stored == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrFormat("'%s' is damaged: '%s' should hold tensor '%s' and does not",
                          Join(path_, kIndexFile), file.reader.path(), tensor));
    }
    ASSIGN_OR_RETURN(const int64_t offset, file.reader.OffsetOf(tensor));
    locations_.emplace(tensor, Location{number->second, offset, *stored});
    tensors_.push_back(*stored);
  }
  // The headers are well-formed; now that they are what was written.
  for (const File& file : files_) {
    const int64_t data_begin = file.reader.tensors().empty()
                                   ? file.reader.file().size()
                                   : *file.reader.OffsetOf(file.reader.tensors().front().name);
    std::vector<std::byte> header(static_cast<size_t>(data_begin));
    RETURN_IF_ERROR(ReadChecked(file, 0, header.data(), header.size()));
  }
  return absl::OkStatus();
}

absl::StatusOr<const CheckpointReader::Location*> CheckpointReader::Locate(
    std::string_view tensor) const {
  const auto found = locations_.find(tensor);
  if (found != locations_.end()) return &found->second;
  std::vector<std::pair<size_t, std::string>> nearest;
  for (const auto& [name, location] : locations_) {
    nearest.emplace_back(EditDistance(tensor, name), name);
  }
  constexpr size_t kShown = 3;
  const size_t shown = std::min(kShown, nearest.size());
  std::partial_sort(nearest.begin(), nearest.begin() + static_cast<std::ptrdiff_t>(shown),
                    nearest.end());
  std::vector<std::string> names;
  for (size_t i = 0; i < shown; ++i) names.push_back(nearest[i].second);
  return absl::NotFoundError(
      absl::StrFormat("checkpoint '%s' holds no tensor '%s'; the nearest of its %d: %s", path_,
                      tensor, locations_.size(), absl::StrJoin(names, ", ")));
}

absl::StatusOr<StoredTensor> CheckpointReader::Info(std::string_view tensor) const {
  ASSIGN_OR_RETURN(const Location* location, Locate(tensor));
  return location->tensor;
}

absl::StatusOr<std::shared_ptr<const CheckpointReader::Block>> CheckpointReader::LoadBlock(
    const File& file, int64_t index) const {
  const InputFile& input = file.reader.file();
  {
    MutexLock lock(mutex_);
    if (last_block_ != nullptr && last_block_->file == &input && last_block_->index == index) {
      return last_block_;
    }
  }
  const int64_t begin = index * kChecksumBlockBytes;
  auto block = std::make_shared<Block>();
  block->file = &input;
  block->index = index;
  block->bytes.resize(static_cast<size_t>(std::min(kChecksumBlockBytes, input.size() - begin)));
  RETURN_IF_ERROR(input.ReadAt(begin, block->bytes.data(), block->bytes.size()));
  const uint32_t expected = file.checksums.blocks[static_cast<size_t>(index)];
  const uint32_t found = Crc32c(block->bytes.data(), block->bytes.size());
  if (found != expected) return WrongBlock(input.path(), index, expected, found);
  MutexLock lock(mutex_);
  last_block_ = block;
  return std::shared_ptr<const Block>(std::move(block));
}

absl::Status CheckpointReader::ReadChecked(const File& file, int64_t offset, void* out,
                                           size_t bytes) const {
  const InputFile& input = file.reader.file();
  auto* next = static_cast<std::byte*>(out);
  const int64_t end = offset + static_cast<int64_t>(bytes);
  while (offset < end) {
    const int64_t index = offset / kChecksumBlockBytes;
    const int64_t block_begin = index * kChecksumBlockBytes;
    const int64_t block_end = std::min(block_begin + kChecksumBlockBytes, input.size());
    const int64_t length = std::min(block_end, end) - offset;
    if (offset == block_begin && length == block_end - block_begin) {
      // Wanted whole: checked where it shall be.
      RETURN_IF_ERROR(input.ReadAt(offset, next, static_cast<size_t>(length)));
      const uint32_t expected = file.checksums.blocks[static_cast<size_t>(index)];
      const uint32_t found = Crc32c(next, static_cast<size_t>(length));
      if (found != expected) return WrongBlock(input.path(), index, expected, found);
    } else {
      ASSIGN_OR_RETURN(const std::shared_ptr<const Block> block, LoadBlock(file, index));
      std::memcpy(next, block->bytes.data() + (offset - block_begin), static_cast<size_t>(length));
    }
    offset += length;
    next += length;
  }
  return absl::OkStatus();
}

absl::Status CheckpointReader::ReadBytes(std::string_view tensor, int64_t offset, void* out,
                                         size_t bytes) const {
  ASSIGN_OR_RETURN(const Location* location, Locate(tensor));
  const int64_t total = location->tensor.num_bytes();
  if (offset < 0 || offset > total || bytes > static_cast<uint64_t>(total - offset)) {
    return absl::OutOfRangeError(
        absl::StrFormat("tensor '%s' of '%s' has %d bytes; %d from %d on were asked for", tensor,
                        path_, total, bytes, offset));
  }
  return ReadChecked(files_[location->file], location->offset + offset, out, bytes);
}

absl::Status CheckpointReader::ReadBox(std::string_view tensor, const Box& box, void* out) const {
  ASSIGN_OR_RETURN(const Location* location, Locate(tensor));
  const Shape& shape = location->tensor.shape;
  const int rank = shape.rank();
  bool fits =
      static_cast<int>(box.begin.size()) == rank && static_cast<int>(box.sizes.size()) == rank;
  for (int d = 0; fits && d < rank; ++d) {
    const size_t i = static_cast<size_t>(d);
    fits = box.begin[i] >= 0 && box.sizes[i] >= 0 && box.begin[i] <= shape[d] &&
           box.sizes[i] <= shape[d] - box.begin[i];
  }
  if (!fits) {
    return absl::OutOfRangeError(absl::StrFormat(
        "tensor '%s' of '%s' has shape %s; the box of size %s at %s was asked for", tensor, path_,
        shape.ToString(), Shape(box.sizes).ToString(), Shape(box.begin).ToString()));
  }
  const int64_t element = static_cast<int64_t>(SizeOf(location->tensor.dtype));
  if (Shape(box.sizes).num_elements() == 0) return absl::OkStatus();
  // A run: the longest contiguous piece, one for each index of the axes before `inner`.
  int inner = rank;
  int64_t run = element;
  while (inner > 0) {
    --inner;
    run *= box.sizes[static_cast<size_t>(inner)];
    if (box.sizes[static_cast<size_t>(inner)] != shape[inner]) break;
  }
  std::vector<int64_t> strides(static_cast<size_t>(rank));
  int64_t stride = element;
  for (int d = rank - 1; d >= 0; --d) {
    strides[static_cast<size_t>(d)] = stride;
    stride *= shape[d];
  }
  int64_t position = location->offset;
  for (size_t d = 0; d < strides.size(); ++d) position += box.begin[d] * strides[d];
  std::vector<int64_t> index(static_cast<size_t>(inner), 0);
  auto* next = static_cast<std::byte*>(out);
  while (true) {
    RETURN_IF_ERROR(ReadChecked(files_[location->file], position, next, static_cast<size_t>(run)));
    next += run;
    int d = inner - 1;  // like an odometer, last axis first
    for (; d >= 0; --d) {
      const size_t i = static_cast<size_t>(d);
      position += strides[i];
      if (++index[i] < box.sizes[i]) break;
      position -= box.sizes[i] * strides[i];
      index[i] = 0;
    }
    if (d < 0) return absl::OkStatus();
  }
}

}  // namespace braid
