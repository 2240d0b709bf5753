#include "runtime/files/folder_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "glog/logging.h"
#include "runtime/base/process.h"
#include "runtime/base/status.h"
#include "runtime/files/file.h"

namespace braid {
namespace {

constexpr size_t kMaxOwnerBytes = 512;

std::string Self() {
  return absl::StrFormat("process %d of %s (%s)", getpid(), HostName(),
                         program_invocation_short_name);
}

// It wrote the file when it took the lock.
std::string OwnerIn(const Descriptor& file) {
  std::string owner(kMaxOwnerBytes, '\0');
  const ssize_t bytes = pread(file.number(), owner.data(), owner.size(), 0);
  struct stat status {};
  if (bytes <= 0 || fstat(file.number(), &status) != 0) return "another session";
  owner.resize(static_cast<size_t>(bytes));
  const absl::Time since = absl::FromTimeT(status.st_mtime);
  return absl::StrFormat("%s, since %s,", owner,
                         absl::FormatTime("%Y-%m-%d %H:%M:%S", since, absl::LocalTimeZone()));
}

// Whoever had it may have removed the file between its opening and its locking.
bool IsStill(const std::string& path, const Descriptor& file) {
  struct stat named {};
  struct stat opened {};
  return stat(path.c_str(), &named) == 0 && fstat(file.number(), &opened) == 0 &&
         named.st_ino == opened.st_ino && named.st_dev == opened.st_dev;
}

}  // namespace

absl::StatusOr<FolderLock> FolderLock::Take(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return ErrnoStatus(error.value(), "create directory", folder);
  std::string path = absl::StrFormat("%s/lock", folder);
  while (true) {
    Descriptor file(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
    if (!file.is_open()) return ErrnoStatus(errno, "open", path);
    if (flock(file.number(), LOCK_EX | LOCK_NB) != 0) {
      if (errno == EWOULDBLOCK) {
        return absl::FailedPreconditionError(absl::StrFormat(
            "'%s' is in use: %s saves into it; save into another folder or end that one first",
            folder, OwnerIn(file)));
      }
      PLOG(WARNING) << "'" << folder << "' cannot be locked, so nothing keeps other sessions from "
                    << "saving into it";
      return FolderLock(std::move(path), std::move(file));
    }
    if (!IsStill(path, file)) continue;
    const std::string self = Self();
    // For messages only: a full disk is for the caller to find.
    if (ftruncate(file.number(), 0) != 0 ||
        pwrite(file.number(), self.data(), self.size(), 0) != static_cast<ssize_t>(self.size())) {
      PLOG(WARNING) << "cannot write '" << path << "'";
    }
    return FolderLock(std::move(path), std::move(file));
  }
}

FolderLock::~FolderLock() {
  if (file_.is_open()) unlink(path_.c_str());  // while it is held
}

}  // namespace braid
