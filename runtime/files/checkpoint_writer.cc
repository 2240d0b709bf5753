// The writing half of checkpoint.h.
#include <errno.h>
#include <stdio.h>

#include <algorithm>
#include <filesystem>
#include <random>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/base/crc32c.h"
#include "runtime/base/prefixed.h"
#include "runtime/base/status.h"
#include "runtime/files/checkpoint.h"
#include "runtime/files/checkpoint_part.h"

namespace braid {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kNextLatest = "latest.tmp";

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

// What a crashed save may have left: latest.tmp, step-N.tmp, NAME.tmp with a checkpoint's files.
bool IsLeftover(const std::string& directory, const std::string& name) {
  if (name == kNextLatest) return true;
  if (!name.ends_with(kTemporarySuffix)) return false;
  if (name.starts_with("step-")) return true;
  std::error_code error;
  bool is_ours = false;
  fs::directory_iterator entry(PathIn(directory, name), error);
  for (const fs::directory_iterator end; !error && entry != end; entry.increment(error)) {
    const std::string file = entry->path().filename().string();
    is_ours = (file.starts_with("model-") && file.ends_with(".safetensors")) ||
              file.starts_with(kPartPrefix) || file == kIndexFile || file == kStateFile ||
              file == kChecksumsFile;
    if (!is_ours) return false;
  }
  return is_ours;
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

// Removes a folder under another name: half of a checkpoint must not look like one, and other nodes
// that still make files in a save which has ended do not find it. What they were making while it
// was renamed comes at most once for each of their threads, so that the last of these tries finds
// none.
absl::Status RemoveFolder(const std::string& path) {
  constexpr int kTries = 1000;
  std::error_code error;
  if (!fs::exists(path, error)) return absl::OkStatus();
  const std::string doomed = path + std::string(kTemporarySuffix);
  BRAID_RETURN_IF_ERROR(RemoveTree(doomed));
  BRAID_RETURN_IF_ERROR(Rename(path, doomed));
  absl::Status removed = RemoveTree(doomed);
  for (int tries = 1; !removed.ok() && tries < kTries; ++tries) removed = RemoveTree(doomed);
  return removed;
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
      temporary_(PathIn(options_.directory, options_.name) + std::string(kTemporarySuffix)) {}

CheckpointWriter::~CheckpointWriter() {
  if (is_committed_) return;
  files_.clear();
  RemoveFolder(temporary_).IgnoreError();  // the next save removes what this does not
}

absl::StatusOr<std::unique_ptr<CheckpointWriter>> CheckpointWriter::Begin(
    CheckpointOptions options) {
  if (options.directory.empty() || options.state.step < 0 || options.max_file_bytes < 1) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "cannot save to directory '%s', step %d, files of %d bytes: expected a name, a step of 0 "
        "or more and a size of 1 or more",
        options.directory, options.state.step, options.max_file_bytes));
  }
  if (options.name.empty()) options.name = absl::StrCat("step-", options.state.step);
  if (!IsCheckpointName(options.name)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "a checkpoint cannot be called '%s': expected letters, digits, '-', '_' and '.', beginning "
        "with a letter or digit; not 'latest', not 'lock', not ending in '.tmp' or '.NUMBER'",
        options.name));
  }
  if (options.keep < 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("keep is %d; expected 1 or more, or 0 for all", options.keep));
  }
  std::error_code error;
  fs::create_directories(options.directory, error);
  if (error) return ErrnoStatus(error.value(), "create directory", options.directory);
  BRAID_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(options.directory));
  for (const std::string& name : names) {
    if (!IsLeftover(options.directory, name)) continue;
    const std::string path = PathIn(options.directory, name);
    BRAID_RETURN_IF_ERROR(name == kNextLatest ? RemoveTree(path) : RemoveFolder(path));
  }
  std::unique_ptr<CheckpointWriter> writer(new CheckpointWriter(std::move(options)));
  BRAID_RETURN_IF_ERROR(writer->LayOut());
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
    BRAID_ASSIGN_OR_RETURN(SafetensorsLayout layout, LayOutSafetensors(part, {{"format", "pt"}}));
    BRAID_ASSIGN_OR_RETURN(OutputFile output, OutputFile::Create(PathIn(temporary_, name)));
    BRAID_RETURN_IF_ERROR(output.Resize(layout.file_bytes));
    BRAID_RETURN_IF_ERROR(output.WriteAt(0, layout.header.data(), layout.header.size()));
    BlockChecksums checksums;
    BRAID_RETURN_IF_ERROR(checksums.Add(0, layout.header.data(), layout.header.size()));
    checksums_[name].bytes = layout.file_bytes;
    for (size_t i = 0; i < part.size(); ++i) {
      if (!places_.emplace(part[i].name, Place{files_.size(), i}).second) {
        return absl::InvalidArgumentError(
            absl::StrFormat("two tensors to be saved have the name '%s'", part[i].name));
      }
    }
    files_.push_back({name, std::move(output), layout.file_bytes, std::move(checksums), part,
                      std::move(layout.offsets)});
  }
  return absl::OkStatus();
}

// What the others will open is on the file server when they do.
absl::StatusOr<int64_t> CheckpointWriter::Share() {
  for (File& file : files_) BRAID_RETURN_IF_ERROR(file.output.Sync());
  std::random_device random;
  const int64_t save = (int64_t{random() >> 1} << 32) | random();
  BRAID_RETURN_IF_ERROR(WriteWholeFile(PathIn(temporary_, kPartOfFile), absl::StrCat(save)));
  BRAID_RETURN_IF_ERROR(SyncDirectory(temporary_));
  is_shared_ = true;
  return save;
}

CheckpointWriter::Position CheckpointWriter::PositionOf(std::string_view tensor) const {
  const Place& place = places_.find(tensor)->second;
  return {files_[place.file].name, files_[place.file].offsets[place.tensor]};
}

absl::Status CheckpointWriter::AddPart(const std::string& name) {
  const std::string path = PathIn(temporary_, name);
  BRAID_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path, kMaxSideFileBytes));
  BRAID_ASSIGN_OR_RETURN(const Stretches stretches, ParseStretches(path, text));
  for (const auto& [file_name, written] : stretches) {
    const auto file = std::ranges::find(files_, file_name, &File::name);
    if (file == files_.end()) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "'%s' tells of '%s', which is no file of the checkpoint", path, file_name));
    }
    for (const BlockChecksums::Stretch& stretch : written.stretches()) {
      const absl::Status added = file->checksums.Add(stretch);
      if (added.ok()) continue;
      return Prefixed(absl::StrFormat("'%s', file '%s'", path, file_name), added);
    }
  }
  return RemoveTree(path);
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
  if (!added.ok()) return Prefixed(absl::StrFormat("tensor '%s'", tensor), added);
  return file.output.WriteAt(position, data, bytes);
}

absl::Status CheckpointWriter::CheckComplete(const File& file) const {
  const std::optional<int64_t> missing = file.checksums.FirstMissing(file.bytes);
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
  return WriteWholeFile(PathIn(temporary_, name), contents);
}

void CheckpointWriter::Observe(std::string_view step) const {
  if (options_.before_step) options_.before_step(step);
}

absl::StatusOr<std::string> CheckpointWriter::Commit() {
  const std::string& directory = options_.directory;
  CheckpointIndex index;
  for (File& file : files_) {
    BRAID_RETURN_IF_ERROR(CheckComplete(file));
    BRAID_RETURN_IF_ERROR(file.output.Sync());
    checksums_[file.name].blocks = file.checksums.Finish();
    for (const StoredTensor& tensor : file.tensors) {
      index.total_size += tensor.num_bytes();
      index.weight_map[tensor.name] = file.name;
    }
  }
  if (is_shared_) BRAID_RETURN_IF_ERROR(RemoveTree(PathIn(temporary_, kPartOfFile)));
  BRAID_RETURN_IF_ERROR(WriteSideFile(kIndexFile, FormatIndex(index)));
  BRAID_RETURN_IF_ERROR(WriteSideFile(kStateFile, FormatState(options_.state)));
  BRAID_RETURN_IF_ERROR(WriteSideFile(kChecksumsFile, FormatChecksums(checksums_)));
  BRAID_RETURN_IF_ERROR(SyncDirectory(temporary_));

  BRAID_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(directory));
  std::string name = options_.name;
  for (int revision = 2; std::find(names.begin(), names.end(), name) != names.end(); ++revision) {
    name = absl::StrCat(options_.name, ".", revision);
  }
  const std::string path = PathIn(directory, name);
  Observe("rename to " + name);
  BRAID_RETURN_IF_ERROR(Rename(temporary_, path));
  is_committed_ = true;  // from here on it is whole, whatever happens to `latest`
  files_.clear();
  BRAID_RETURN_IF_ERROR(SyncDirectory(directory));
  BRAID_RETURN_IF_ERROR(ReplaceLatest(name));
  BRAID_RETURN_IF_ERROR(RemoveOld(names));
  Observe("done");
  return path;
}

absl::Status CheckpointWriter::ReplaceLatest(const std::string& name) const {
  const std::string next = PathIn(options_.directory, kNextLatest);
  Observe("write latest.tmp");
  BRAID_RETURN_IF_ERROR(WriteWholeFile(next, name + "\n"));
  Observe("replace latest");
  BRAID_RETURN_IF_ERROR(Rename(next, PathIn(options_.directory, "latest")));
  return SyncDirectory(options_.directory);
}

absl::Status CheckpointWriter::RemoveOld(const std::vector<std::string>& names) const {
  std::vector<std::string> old;
  std::vector<std::pair<fs::file_time_type, std::string>> others;
  std::error_code ignored;  // what has no time is the oldest
  for (const std::string& name : names) {
    const std::string path = PathIn(options_.directory, name);
    // What is called so and has no index is none of ours.
    if (name.ends_with(kTemporarySuffix) || !fs::exists(PathIn(path, kIndexFile), ignored))
      continue;
    if (BaseOf(name) == options_.name) {
      old.push_back(name);
    } else if (StepOf(name).has_value()) {
      others.emplace_back(fs::last_write_time(path, ignored), name);
    }
  }
  if (options_.keep > 0) {
    std::sort(others.begin(), others.end(), [](const auto& a, const auto& b) {
      return a.first != b.first ? a.first > b.first : StepOf(a.second) > StepOf(b.second);
    });
    const size_t is_one = StepOf(options_.name).has_value() ? 1 : 0;  // of those that are kept
    for (size_t i = static_cast<size_t>(options_.keep) - is_one; i < others.size(); ++i) {
      old.push_back(others[i].second);
    }
  }
  for (const std::string& name : old) {
    Observe("remove " + name);
    BRAID_RETURN_IF_ERROR(RemoveFolder(PathIn(options_.directory, name)));
  }
  return absl::OkStatus();
}

}  // namespace braid
