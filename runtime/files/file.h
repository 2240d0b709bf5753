// Files as datasets and checkpoints read and write them: by position, with errors that name the
// file, both sizes and the reason.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace braid {

// A regular file open for reading. Reads are const and may come from several threads at once.
class InputFile {
 public:
  static absl::StatusOr<InputFile> Open(const std::string& path);
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&& other) noexcept;
  ~InputFile();

  const std::string& path() const { return path_; }
  int64_t size() const { return size_; }
  // Exactly `bytes` bytes; OUT_OF_RANGE if the file ends before.
  absl::Status ReadAt(int64_t offset, void* out, size_t bytes) const;

 private:
  InputFile(std::string path, int descriptor, int64_t size);
  std::string path_;
  int descriptor_ = -1;
  int64_t size_ = 0;
};

// A file open for writing.
class OutputFile {
 public:
  // One that did not exist before.
  static absl::StatusOr<OutputFile> Create(const std::string& path);
  // One that is there, to change it.
  static absl::StatusOr<OutputFile> Open(const std::string& path);
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&& other) noexcept;
  ~OutputFile();

  const std::string& path() const { return path_; }
  // Makes it so long and, where the file system can do it, takes the space for it on the disk.
  absl::Status Resize(int64_t bytes);
  absl::Status WriteAt(int64_t offset, const void* data, size_t bytes);
  absl::Status Sync();  // to the disk

 private:
  OutputFile(std::string path, int descriptor);
  std::string path_;
  int descriptor_ = -1;
};

// `cannot <what> '<path>': <reason>` with the status code that fits the errno.
absl::Status ErrnoStatus(int error, std::string_view what, const std::string& path);

absl::StatusOr<std::string> ReadWholeFile(const std::string& path, int64_t max_bytes);
// Creates the file, writes and syncs it.
absl::Status WriteWholeFile(const std::string& path, std::string_view contents);
// Makes renames and new names inside `path` survive a power failure.
absl::Status SyncDirectory(const std::string& path);

}  // namespace braid
