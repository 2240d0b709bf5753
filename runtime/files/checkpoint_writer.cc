// The writing half of checkpoint.h.
#include <errno.h>
#include <stdio.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/base/crc32c.h"
#include "runtime/base/status.h"
#include "runtime/files/checkpoint.h"

namespace braid {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTemporary = ".tmp";

// True for step-12, step-12.2 and so on of this `step`, without .tmp.
bool IsRevision(std::string_view name, int64_t step) {
  const std::string base = absl::StrCat("step-", step);
  if (name.substr(0, base.size()) != base) return false;
  const std::string_view rest = name.substr(base.size());
  return rest.empty() || (rest[0] == '.' && rest.size() > 1 &&
                          rest.substr(1).find_first_not_of("0123456789") == std::string_view::npos);
}

// What a crashed save may have left: step-*.tmp and latest.tmp.
bool IsLeftover(std::string_view name) {
  return name == "latest.tmp" || (name.starts_with("step-") && name.ends_with(kTemporary));
}

absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& path) {
  std::error_code error;
  std::vector<std::string> names;
  for (fs::directory_iterator entry(path, error), end; !error && entry != end;
       entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  if (error) return ErrnoStatus(error.value(), "list", path);
  std::sort(names.begin(), names.end());
  return names;
}

absl::Status RemoveTree(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) return ErrnoStatus(error.value(), "remove", path);
  return absl::OkStatus();
}

absl::Status Rename(const std::string& from, const std::string& to) {
  if (rename(from.c_str(), to.c_str()) != 0) {
    return ErrnoStatus(errno, absl::StrFormat("rename '%s' to", from), to);
  }
  return absl::OkStatus();
}

std::string Join(const std::string& directory, std::string_view name) {
  return absl::StrFormat("%s/%s", directory, name);
}

// Files of at most `max_bytes` of tensors each, in the given order.
std::vector<std::vector<StoredTensor>> Divide(const std::vector<StoredTensor>& tensors,
                                              int64_t max_bytes) {
  std::vector<std::vector<StoredTensor>> files(1);
  int64_t bytes = 0;
  for (const StoredTensor& tensor : tensors) {
    if (!files.back().empty() && tensor.num_bytes() > max_bytes - bytes) {
      files.emplace_back();
      bytes = 0;
    }
    files.back().push_back(tensor);
    bytes += tensor.num_bytes();
  }
  return files;
}

}  // namespace

CheckpointWriter::CheckpointWriter(CheckpointOptions options)
    : options_(std::move(options)),
      temporary_(Join(options_.directory,
                      absl::StrCat("step-", options_.state.step, std::string(kTemporary)))) {}

CheckpointWriter::~CheckpointWriter() {
  if (is_committed_) return;
  files_.clear();
  // If this fails, the next save removes it.
  std::error_code ignored;
  fs::remove_all(temporary_, ignored);
}

absl::StatusOr<std::unique_ptr<CheckpointWriter>> CheckpointWriter::Begin(
    CheckpointOptions options) {
  if (options.directory.empty() || options.state.step < 0 || options.max_file_bytes < 1) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "cannot save to directory '%s', step %d, files of %d bytes: expected a name, a step of 0 "
        "or more and a size of 1 or more",
        options.directory, options.state.step, options.max_file_bytes));
  }
  std::error_code error;
  fs::create_directories(options.directory, error);
  if (error) return ErrnoStatus(error.value(), "create directory", options.directory);
  ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(options.directory));
  for (const std::string& name : names) {
    if (IsLeftover(name)) RETURN_IF_ERROR(RemoveTree(Join(options.directory, name)));
  }
  std::unique_ptr<CheckpointWriter> writer(new CheckpointWriter(std::move(options)));
  RETURN_IF_ERROR(writer->LayOut());
  return writer;
}

absl::Status CheckpointWriter::LayOut() {
  std::error_code error;
  fs::create_directory(temporary_, error);
  if (error) return ErrnoStatus(error.value(), "create directory", temporary_);
  const std::vector<std::vector<StoredTensor>> parts =
      Divide(options_.tensors, options_.max_file_bytes);
  for (const std::vector<StoredTensor>& part : parts) {
    const std::string name =
        absl::StrFormat("model-%05d-of-%05d.safetensors", files_.size() + 1, parts.size());
    // Some readers refuse a file that does not say which framework's layout it has.
    ASSIGN_OR_RETURN(SafetensorsLayout layout, LayOutSafetensors(part, {{"format", "pt"}}));
    ASSIGN_OR_RETURN(OutputFile output, OutputFile::Create(Join(temporary_, name)));
    RETURN_IF_ERROR(output.Resize(layout.file_bytes));
    RETURN_IF_ERROR(output.WriteAt(0, layout.header.data(), layout.header.size()));
    BlockChecksums checksums(layout.file_bytes);
    RETURN_IF_ERROR(checksums.Add(0, layout.header.data(), layout.header.size()));
    checksums_[name].bytes = layout.file_bytes;
    for (size_t i = 0; i < part.size(); ++i) {
      if (!places_.emplace(part[i].name, Place{files_.size(), i}).second) {
        return absl::InvalidArgumentError(
            absl::StrFormat("two tensors to be saved have the name '%s'", part[i].name));
      }
    }
    files_.push_back(
        {name, std::move(output), std::move(checksums), part, std::move(layout.offsets)});
  }
  return absl::OkStatus();
}

absl::Status CheckpointWriter::Write(std::string_view tensor, int64_t offset, const void* data,
                                     size_t bytes) {
  const auto found = places_.find(tensor);
  if (found == places_.end()) {
    return absl::NotFoundError(
        absl::StrFormat("tensor '%s' is not among the %d of the checkpoint that is being written",
                        tensor, places_.size()));
  }
  File& file = files_[found->second.file];
  const int64_t total = file.tensors[found->second.tensor].num_bytes();
  if (offset < 0 || offset > total || bytes > static_cast<uint64_t>(total - offset)) {
    return absl::OutOfRangeError(absl::StrFormat(
        "tensor '%s' has %d bytes; %d from %d on were written", tensor, total, bytes, offset));
  }
  const int64_t position = file.offsets[found->second.tensor] + offset;
  absl::Status added = file.checksums.Add(position, data, bytes);
  if (!added.ok()) {
    return absl::Status(added.code(),
                        absl::StrFormat("tensor '%s': %s", tensor, std::string(added.message())));
  }
  return file.output.WriteAt(position, data, bytes);
}

absl::Status CheckpointWriter::CheckComplete(const File& file) const {
  const std::optional<int64_t> missing = file.checksums.FirstMissing();
  if (!missing.has_value()) return absl::OkStatus();
  size_t i = 0;
  while (i + 1 < file.offsets.size() && file.offsets[i + 1] <= *missing) ++i;
  return absl::FailedPreconditionError(absl::StrFormat(
      "the checkpoint is not complete: tensor '%s' was not written from its byte %d on (of %d)",
      file.tensors[i].name, *missing - file.offsets[i], file.tensors[i].num_bytes()));
}

absl::Status CheckpointWriter::WriteSideFile(const std::string& name, const std::string& contents) {
  Observe("write " + name);
  FileChecksums& checksums = checksums_[name];
  checksums.bytes = static_cast<int64_t>(contents.size());
  for (size_t at = 0; at < contents.size(); at += kChecksumBlockBytes) {
    checksums.blocks.push_back(
        Crc32c(contents.data() + at, std::min<size_t>(kChecksumBlockBytes, contents.size() - at)));
  }
  return WriteWholeFile(Join(temporary_, name), contents);
}

void CheckpointWriter::Observe(std::string_view step) const {
  if (options_.before_step) options_.before_step(step);
}

absl::StatusOr<std::string> CheckpointWriter::Commit() {
  const std::string& directory = options_.directory;
  CheckpointIndex index;
  for (File& file : files_) {
    RETURN_IF_ERROR(CheckComplete(file));
    RETURN_IF_ERROR(file.output.Sync());
    checksums_[file.name].blocks = file.checksums.Finish();
    for (const StoredTensor& tensor : file.tensors) {
      index.total_size += tensor.num_bytes();
      index.weight_map[tensor.name] = file.name;
    }
  }
  RETURN_IF_ERROR(WriteSideFile(kIndexFile, FormatIndex(index)));
  RETURN_IF_ERROR(WriteSideFile(kStateFile, FormatState(options_.state)));
  RETURN_IF_ERROR(WriteSideFile(kChecksumsFile, FormatChecksums(checksums_)));
  RETURN_IF_ERROR(SyncDirectory(temporary_));

  ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(directory));
  const std::string base = absl::StrCat("step-", options_.state.step);
  std::string name = base;
  for (int revision = 2; std::find(names.begin(), names.end(), name) != names.end(); ++revision) {
    name = absl::StrCat(base, ".", revision);
  }
  const std::string path = Join(directory, name);
  Observe("rename to " + name);
  RETURN_IF_ERROR(Rename(temporary_, path));
  is_committed_ = true;  // from here on it is whole, whatever happens to `latest`
  files_.clear();
  RETURN_IF_ERROR(SyncDirectory(directory));

  const std::string next_latest = Join(directory, "latest.tmp");
  Observe("write latest.tmp");
  RETURN_IF_ERROR(WriteWholeFile(next_latest, name + "\n"));
  Observe("replace latest");
  RETURN_IF_ERROR(Rename(next_latest, Join(directory, "latest")));
  RETURN_IF_ERROR(SyncDirectory(directory));

  // Renamed before it is removed: a half-removed checkpoint must not look like one.
  for (const std::string& old : names) {
    if (!IsRevision(old, options_.state.step)) continue;
    const std::string doomed = Join(directory, old) + std::string(kTemporary);
    Observe("remove " + old);
    RETURN_IF_ERROR(Rename(Join(directory, old), doomed));
    RETURN_IF_ERROR(RemoveTree(doomed));
  }
  Observe("done");
  return path;
}

}  // namespace braid
