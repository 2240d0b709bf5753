// The reading half of checkpoint.h.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "runtime/base/crc32c.h"
#include "runtime/base/nearest_names.h"
#include "runtime/base/status.h"
#include "runtime/files/checkpoint.h"

namespace braid {
namespace {

namespace fs = std::filesystem;

constexpr size_t kKeptBlocks = 8;

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
    if (!name.ends_with(kTemporarySuffix) && Exists(PathIn(entry->path().string(), kIndexFile))) {
      names.push_back(name);
    }
  }
  if (names.empty()) return "";
  std::sort(names.begin(), names.end());
  return absl::StrFormat("; whole checkpoints there, to be named in full: %s",
                         absl::StrJoin(names, ", "));
}

// DIR/NAME.N with the largest N, of the DIR/NAME that `path` is; "" if there is none.
std::string NewestRevision(const std::string& path) {
  const fs::path whole = fs::path(path).lexically_normal();
  const fs::path named = whole.has_filename() ? whole : whole.parent_path();
  const std::string wanted = named.filename().string();
  std::string newest;
  std::error_code error;
  for (fs::directory_iterator entry(named.parent_path(), error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (BaseOf(name) == wanted && Exists(PathIn(entry->path().string(), kIndexFile)) &&
        (newest.empty() || RevisionOf(name) > RevisionOf(newest))) {
      newest = name;
    }
  }
  return newest.empty() ? "" : PathIn(named.parent_path().string(), newest);
}

// The checkpoint that `path` means.
absl::StatusOr<std::string> Resolve(const std::string& path) {
  if (Exists(PathIn(path, kIndexFile))) return path;
  if (std::string revision = NewestRevision(path); !revision.empty()) return revision;
  const std::string latest = PathIn(path, "latest");
  if (!Exists(latest)) {
    return absl::NotFoundError(
        absl::StrFormat("'%s' is no checkpoint: it has neither a file 'latest' nor '%s'%s", path,
                        kIndexFile, WholeCheckpoints(path)));
  }
  BRAID_ASSIGN_OR_RETURN(std::string name, ReadWholeFile(latest, 4096));
  while (!name.empty() && (name.back() == '\n' || name.back() == '\r')) name.pop_back();
  if (!IsCheckpointName(BaseOf(name))) {
    return absl::InvalidArgumentError(
        absl::StrFormat("'%s' is damaged: it holds '%s', expected a line like step-12%s", latest,
                        name, WholeCheckpoints(path)));
  }
  std::string resolved = PathIn(path, name);
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
                                                      PathIn(directory, kChecksumsFile), name));
  }
  return &found->second;
}

// Reads a small file whole and checks it.
absl::StatusOr<std::string> ReadSideFile(const CheckpointChecksums& checksums,
                                         const std::string& directory, const std::string& name) {
  const std::string path = PathIn(directory, name);
  BRAID_ASSIGN_OR_RETURN(const FileChecksums* expected, ChecksumsOf(checksums, directory, name));
  BRAID_ASSIGN_OR_RETURN(std::string contents, ReadWholeFile(path, kMaxSideFileBytes));
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

}  // namespace

absl::StatusOr<std::unique_ptr<CheckpointReader>> CheckpointReader::Open(const std::string& path) {
  std::unique_ptr<CheckpointReader> reader(new CheckpointReader());
  BRAID_ASSIGN_OR_RETURN(reader->path_, Resolve(path));
  const std::string& directory = reader->path_;
  const std::string checksums_path = PathIn(directory, kChecksumsFile);
  BRAID_ASSIGN_OR_RETURN(const std::string checksums_text,
                         ReadWholeFile(checksums_path, kMaxSideFileBytes));
  BRAID_ASSIGN_OR_RETURN(const CheckpointChecksums checksums,
                         ParseChecksums(checksums_path, checksums_text));
  reader->identity_ = Crc32c(checksums_text.data(), checksums_text.size());
  BRAID_ASSIGN_OR_RETURN(const std::string state_text,
                         ReadSideFile(checksums, directory, kStateFile));
  BRAID_ASSIGN_OR_RETURN(reader->state_, ParseState(PathIn(directory, kStateFile), state_text));
  BRAID_ASSIGN_OR_RETURN(const std::string index_text,
                         ReadSideFile(checksums, directory, kIndexFile));
  BRAID_ASSIGN_OR_RETURN(const CheckpointIndex index,
                         ParseIndex(PathIn(directory, kIndexFile), index_text));
  BRAID_RETURN_IF_ERROR(reader->OpenFiles(index, checksums));
  return reader;
}

absl::Status CheckpointReader::OpenFiles(const CheckpointIndex& index,
                                         const CheckpointChecksums& checksums) {
  std::map<std::string, size_t> numbers;
  for (const auto& [tensor, name] : index.weight_map) {
    auto [number, is_new] = numbers.emplace(name, files_.size());
    if (is_new) {
      const std::string path = PathIn(path_, name);
      BRAID_ASSIGN_OR_RETURN(const FileChecksums* expected, ChecksumsOf(checksums, path_, name));
      BRAID_ASSIGN_OR_RETURN(SafetensorsReader reader, SafetensorsReader::Open(path));
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
                          PathIn(path_, kIndexFile), file.reader.path(), tensor));
    }
    BRAID_ASSIGN_OR_RETURN(const int64_t offset, file.reader.OffsetOf(tensor));
    locations_.emplace(tensor, Location{number->second, offset, *stored});
    tensors_.push_back(*stored);
  }
  // The headers are well-formed; now that they are what was written.
  for (size_t i = 0; i < files_.size(); ++i) {
    const File& file = files_[i];
    const int64_t data_begin = file.reader.tensors().empty()
                                   ? file.reader.file().size()
                                   : *file.reader.OffsetOf(file.reader.tensors().front().name);
    std::vector<std::byte> header(static_cast<size_t>(data_begin));
    BRAID_RETURN_IF_ERROR(ReadChecked(i, 0, header.data(), header.size()));
  }
  return absl::OkStatus();
}

absl::StatusOr<const CheckpointReader::Location*> CheckpointReader::Locate(
    std::string_view tensor) const {
  const auto found = locations_.find(tensor);
  if (found != locations_.end()) return &found->second;
  std::vector<std::string> names;
  for (const auto& [name, location] : locations_) names.push_back(name);
  return absl::NotFoundError(
      absl::StrFormat("checkpoint '%s' holds no tensor '%s'; the nearest of its %d: %s", path_,
                      tensor, locations_.size(), NearestNames(tensor, names)));
}

absl::StatusOr<StoredTensor> CheckpointReader::Info(std::string_view tensor) const {
  BRAID_ASSIGN_OR_RETURN(const Location* location, Locate(tensor));
  return location->tensor;
}

absl::Status CheckpointReader::ReadBlock(BlockId id, std::vector<std::byte>& bytes) const {
  const File& file = files_[id.file];
  const InputFile& input = file.reader.file();
  const int64_t begin = id.index * kChecksumBlockBytes;
  bytes.resize(static_cast<size_t>(std::min(kChecksumBlockBytes, input.size() - begin)));
  BRAID_RETURN_IF_ERROR(input.ReadAt(begin, bytes.data(), bytes.size()));
  const uint32_t expected = file.checksums.blocks[static_cast<size_t>(id.index)];
  const uint32_t found = Crc32c(bytes.data(), bytes.size());
  if (found != expected) return WrongBlock(input.path(), id.index, expected, found);
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const CheckpointReader::Block>> CheckpointReader::LoadBlock(
    BlockId id) const {
  std::shared_ptr<Block> block;
  {
    MutexLock lock(mutex_);
    const auto found =
        std::ranges::find_if(blocks_, [&](const auto& kept) { return kept->id == id; });
    if (found != blocks_.end()) {
      blocks_.splice(blocks_.begin(), blocks_, found);
    } else {
      blocks_.push_front(std::make_shared<Block>(id));
      if (blocks_.size() > kKeptBlocks) blocks_.pop_back();
    }
    block = blocks_.front();
  }
  MutexLock lock(block->mutex);
  if (!block->is_read) block->status = ReadBlock(id, block->bytes);
  block->is_read = true;
  BRAID_RETURN_IF_ERROR(block->status);
  return std::shared_ptr<const Block>(std::move(block));
}

absl::Status CheckpointReader::ReadChecked(size_t file, int64_t offset, void* out,
                                           size_t bytes) const {
  const InputFile& input = files_[file].reader.file();
  auto* next = static_cast<std::byte*>(out);
  const int64_t end = offset + static_cast<int64_t>(bytes);
  while (offset < end) {
    const int64_t index = offset / kChecksumBlockBytes;
    const int64_t block_begin = index * kChecksumBlockBytes;
    const int64_t block_end = std::min(block_begin + kChecksumBlockBytes, input.size());
    const int64_t length = std::min(block_end, end) - offset;
    if (offset == block_begin && length == block_end - block_begin) {
      // Wanted whole: checked where it shall be.
      BRAID_RETURN_IF_ERROR(input.ReadAt(offset, next, static_cast<size_t>(length)));
      const uint32_t expected = files_[file].checksums.blocks[static_cast<size_t>(index)];
      const uint32_t found = Crc32c(next, static_cast<size_t>(length));
      if (found != expected) return WrongBlock(input.path(), index, expected, found);
    } else {
      BRAID_ASSIGN_OR_RETURN(const std::shared_ptr<const Block> block, LoadBlock({file, index}));
      std::memcpy(next, block->bytes.data() + (offset - block_begin), static_cast<size_t>(length));
    }
    offset += length;
    next += length;
  }
  return absl::OkStatus();
}

absl::Status CheckpointReader::ReadBytes(std::string_view tensor, int64_t offset, void* out,
                                         size_t bytes) const {
  BRAID_ASSIGN_OR_RETURN(const Location* location, Locate(tensor));
  const int64_t total = location->tensor.num_bytes();
  if (offset < 0 || offset > total || bytes > static_cast<uint64_t>(total - offset)) {
    return absl::OutOfRangeError(
        absl::StrFormat("tensor '%s' of '%s' has %d bytes; %d from %d on were asked for", tensor,
                        path_, total, bytes, offset));
  }
  return ReadChecked(location->file, location->offset + offset, out, bytes);
}

absl::Status CheckpointReader::ReadBox(std::string_view tensor, const TensorBox& box,
                                       void* out) const {
  BRAID_ASSIGN_OR_RETURN(const Location* location, Locate(tensor));
  auto* next = static_cast<std::byte*>(out);
  return ForEachRun(InFile(*location), box, [&](int64_t position, size_t bytes) -> absl::Status {
    BRAID_RETURN_IF_ERROR(ReadChecked(location->file, position, next, bytes));
    next += bytes;
    return absl::OkStatus();
  });
}

absl::Status CheckpointReader::Verify(std::string_view tensor, const TensorBox& box) const {
  BRAID_ASSIGN_OR_RETURN(const Location* location, Locate(tensor));
  return ForEachRun(InFile(*location), box, [&](int64_t position, size_t bytes) -> absl::Status {
    const int64_t end = (position + static_cast<int64_t>(bytes) - 1) / kChecksumBlockBytes + 1;
    for (BlockId id{location->file, position / kChecksumBlockBytes}; id.index < end; ++id.index) {
      {
        MutexLock lock(mutex_);
        if (verified_.contains(id)) continue;
      }
      BRAID_RETURN_IF_ERROR(LoadBlock(id).status());
      MutexLock lock(mutex_);
      verified_.insert(id);
    }
    return absl::OkStatus();
  });
}

}  // namespace braid
