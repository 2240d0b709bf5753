#include "runtime/files/checkpoint_part.h"

#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "runtime/base/status.h"

namespace braid {

std::string PartName(int node) { return absl::StrCat(kPartPrefix, node); }

absl::StatusOr<Stretches> ParseStretches(const std::string& path, const std::string& text) {
  Stretches stretches;
  std::vector<std::string> lines = absl::StrSplit(text, '\n');
  // A file that was cut has no last line.
  if (lines.size() < 2 || lines[lines.size() - 2] != "end" || !lines.back().empty()) {
    return absl::DataLossError(
        absl::StrFormat("'%s' is cut: its last line, 'end', is missing; save again", path));
  }
  lines.resize(lines.size() - 2);
  for (const std::string& line : lines) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    int64_t offset = 0, bytes = 0;
    uint32_t crc = 0;
    absl::Status status = absl::InvalidArgumentError("FILE OFFSET BYTES CRC32C was expected");
    if (words.size() == 4 && absl::SimpleAtoi(words[1], &offset) &&
        absl::SimpleAtoi(words[2], &bytes) && absl::SimpleHexAtoi(words[3], &crc)) {
      status = stretches.try_emplace(words[0]).first->second.Add({offset, bytes, crc});
    }
    if (!status.ok()) {
      return absl::InvalidArgumentError(
          absl::StrFormat("'%s' has the line '%s': %s", path, line, std::string(status.message())));
    }
  }
  return stretches;
}

absl::StatusOr<std::shared_ptr<CheckpointPart>> CheckpointPart::Open(Options options) {
  const std::string path = absl::StrCat(options.directory, "/", kPartOfFile);
  const absl::StatusOr<std::string> found = ReadWholeFile(path, 100);
  if (!found.ok() || *found != absl::StrCat(options.save)) {
    return absl::NotFoundError(absl::StrFormat(
        "this node does not see '%s' of the master (%s); let all nodes save to a folder that they "
        "share",
        options.directory,
        found.ok() ? "here it belongs to another save" : std::string(found.status().message())));
  }
  return std::shared_ptr<CheckpointPart>(new CheckpointPart(std::move(options)));
}

absl::Status CheckpointPart::Expect(const std::string& file) {
  MutexLock lock(mutex_);
  if (!files_.contains(file)) {
    absl::StatusOr<OutputFile> opened =
        OutputFile::Open(absl::StrCat(options_.directory, "/", file));
    if (!opened.ok()) {
      return absl::NotFoundError(absl::StrFormat("this node sees the master's folder and %s",
                                                 std::string(opened.status().message())));
    }
    files_.emplace(file, *std::move(opened));
  }
  ++expected_;
  return absl::OkStatus();
}

absl::Status CheckpointPart::Write(const std::string& file, int64_t position, const void* data,
                                   size_t bytes, BlockChecksums& written) {
  BRAID_RETURN_IF_ERROR(written.Add(position, data, bytes));
  OutputFile* output = nullptr;
  {
    MutexLock lock(mutex_);
    output = &files_.at(file);
  }
  return output->WriteAt(position, data, bytes);
}

absl::Status CheckpointPart::End(const std::string& file, const BlockChecksums& written) {
  {
    MutexLock lock(mutex_);
    BlockChecksums& all = written_[file];
    for (const BlockChecksums::Stretch& stretch : written.stretches()) {
      BRAID_RETURN_IF_ERROR(all.Add(stretch));
    }
    if (--expected_ > 0) return absl::OkStatus();
  }
  if (options_.on_written) options_.on_written(shared_from_this());
  return absl::OkStatus();
}

absl::Status CheckpointPart::Finish() {
  MutexLock lock(mutex_);
  for (auto& [name, file] : files_) BRAID_RETURN_IF_ERROR(file.Sync());
  files_.clear();
  std::string text;
  for (const auto& [name, written] : written_) {
    for (const BlockChecksums::Stretch& stretch : written.stretches()) {
      absl::StrAppendFormat(&text, "%s %d %d %08x\n", name, stretch.offset, stretch.bytes,
                            stretch.crc);
    }
  }
  return WriteWholeFile(absl::StrCat(options_.directory, "/", options_.name), text + "end\n");
}

}  // namespace braid
