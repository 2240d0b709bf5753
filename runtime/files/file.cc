#include "runtime/files/file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <system_error>
#include <utility>

#include "absl/strings/str_format.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

absl::StatusCode CodeOf(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return absl::StatusCode::kNotFound;
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::StatusCode::kPermissionDenied;
    case EEXIST:
      return absl::StatusCode::kAlreadyExists;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case EMFILE:
    case ENFILE:
      return absl::StatusCode::kResourceExhausted;
    default:
      return absl::StatusCode::kUnavailable;
  }
}

// A full disk says how much room there is.
absl::Status WriteError(int error, const std::string& path, int64_t offset, size_t bytes) {
  std::string room;
  struct statvfs disk;
  if ((error == ENOSPC || error == EDQUOT) && statvfs(path.c_str(), &disk) == 0) {
    room = absl::StrFormat("; %d bytes are free there: make room or save elsewhere",
                           static_cast<int64_t>(disk.f_bavail) * disk.f_frsize);
  }
  return absl::Status(CodeOf(error),
                      absl::StrFormat("cannot write '%s': %s (%d bytes at offset %d)%s", path,
                                      std::generic_category().message(error), bytes, offset, room));
}

constexpr size_t kMaxTransfer = size_t{1} << 30;  // Linux moves at most 2 GiB a call

}  // namespace

absl::Status ErrnoStatus(int error, std::string_view what, const std::string& path) {
  return absl::Status(CodeOf(error), absl::StrFormat("cannot %s '%s': %s", what, path,
                                                     std::generic_category().message(error)));
}

InputFile::InputFile(std::string path, int descriptor, int64_t size)
    : path_(std::move(path)), descriptor_(descriptor), size_(size) {}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      size_(other.size_) {}

InputFile& InputFile::operator=(InputFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(size_, other.size_);
  return *this;
}

InputFile::~InputFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

absl::StatusOr<InputFile> InputFile::Open(const std::string& path) {
  // Non-blocking, so that a named pipe is refused below instead of being waited for.
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return ErrnoStatus(errno, "open", path);
  InputFile file(path, descriptor, 0);
  struct stat info;
  if (fstat(descriptor, &info) != 0) return ErrnoStatus(errno, "inspect", path);
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("cannot read '%s': it is %s, not a regular file", path,
                        S_ISDIR(info.st_mode) ? "a directory" : "a device, pipe or socket"));
  }
  file.size_ = info.st_size;
  return file;
}

absl::Status InputFile::ReadAt(int64_t offset, void* out, size_t bytes) const {
  if (offset < 0 || offset > size_ || bytes > static_cast<uint64_t>(size_ - offset)) {
    return absl::OutOfRangeError(
        absl::StrFormat("'%s' is too short: %d bytes are wanted at offset %d, the file has %d",
                        path_, bytes, offset, size_));
  }
  size_t done = 0;
  while (done < bytes) {
    const ssize_t got =
        pread(descriptor_, static_cast<char*>(out) + done, std::min(bytes - done, kMaxTransfer),
              offset + static_cast<int64_t>(done));
    if (got < 0) {
      if (errno == EINTR) continue;
      return ErrnoStatus(errno, "read", path_);
    }
    if (got == 0) {
      return absl::OutOfRangeError(
          absl::StrFormat("'%s' was cut while it was open: it had %d bytes and ends at %d now",
                          path_, size_, offset + static_cast<int64_t>(done)));
    }
    done += static_cast<size_t>(got);
  }
  return absl::OkStatus();
}

OutputFile::OutputFile(std::string path, int descriptor)
    : path_(std::move(path)), descriptor_(descriptor) {}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

OutputFile& OutputFile::operator=(OutputFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

OutputFile::~OutputFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

absl::StatusOr<OutputFile> OutputFile::Create(const std::string& path) {
  const int descriptor = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor < 0) return ErrnoStatus(errno, "create", path);
  return OutputFile(path, descriptor);
}

absl::StatusOr<OutputFile> OutputFile::Open(const std::string& path) {
  const int descriptor = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (descriptor < 0) return ErrnoStatus(errno, "open", path);
  return OutputFile(path, descriptor);
}

absl::Status OutputFile::Resize(int64_t bytes) {
  int result = 0;
  do {
    result = bytes > 0 ? fallocate(descriptor_, 0, 0, bytes) : 0;
  } while (result != 0 && errno == EINTR);
  if (result != 0 && errno != EOPNOTSUPP && errno != ENOSYS) {
    return WriteError(errno, path_, 0, bytes);
  }
  if (ftruncate(descriptor_, bytes) != 0) return WriteError(errno, path_, 0, bytes);
  return absl::OkStatus();
}

absl::Status OutputFile::WriteAt(int64_t offset, const void* data, size_t bytes) {
  size_t done = 0;
  while (done < bytes) {
    const ssize_t put =
        pwrite(descriptor_, static_cast<const char*>(data) + done,
               std::min(bytes - done, kMaxTransfer), offset + static_cast<int64_t>(done));
    if (put < 0) {
      if (errno == EINTR) continue;
      return WriteError(errno, path_, offset + static_cast<int64_t>(done), bytes - done);
    }
    done += static_cast<size_t>(put);
  }
  return absl::OkStatus();
}

absl::Status OutputFile::Sync() {
  if (fsync(descriptor_) != 0) return ErrnoStatus(errno, "sync", path_);
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadWholeFile(const std::string& path, int64_t max_bytes) {
  BRAID_ASSIGN_OR_RETURN(InputFile file, InputFile::Open(path));
  if (file.size() > max_bytes) {
    return absl::InvalidArgumentError(
        absl::StrFormat("'%s' has %d bytes; at most %d are read", path, file.size(), max_bytes));
  }
  std::string contents(static_cast<size_t>(file.size()), '\0');
  BRAID_RETURN_IF_ERROR(file.ReadAt(0, contents.data(), contents.size()));
  return contents;
}

absl::Status WriteWholeFile(const std::string& path, std::string_view contents) {
  BRAID_ASSIGN_OR_RETURN(OutputFile file, OutputFile::Create(path));
  BRAID_RETURN_IF_ERROR(file.WriteAt(0, contents.data(), contents.size()));
  return file.Sync();
}

absl::Status SyncDirectory(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return ErrnoStatus(errno, "open", path);
  const int result = fsync(descriptor);
  const int error = errno;
  close(descriptor);
  // Some network file systems cannot sync a directory; their renames are durable on return.
  if (result != 0 && error != EINVAL) return ErrnoStatus(error, "sync", path);
  return absl::OkStatus();
}

}  // namespace braid
