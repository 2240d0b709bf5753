#include "comm/control/meeting_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "comm/cluster/plain_text.h"
#include "comm/control/secret.h"
#include "comm/network/this_machine.h"
#include "glog/logging.h"
#include "runtime/base/process.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

constexpr char kTitle[] = "braid world ";  // with the version of what follows
constexpr char kTitleHere[] = "braid world 1";
constexpr size_t kNonceDigits = 64;
constexpr size_t kMostMeetingBytes = 64 << 10;

absl::Status MeetingError(int error, const std::string& path, const std::string& what) {
  return absl::Status(
      absl::ErrnoToStatusCode(error),
      absl::StrFormat("'%s', where the ranks are to meet: %s: %s", path, what, strerror(error)));
}

absl::Status NotAMeeting(const std::string& path, const std::string& what) {
  return absl::FailedPreconditionError(absl::StrFormat(
      "'%s', where the ranks are to meet, %s; remove it, or give another path", path, what));
}

// Opening the folder makes a network file system ask its server what there is in it now.
absl::StatusOr<Descriptor> OpenFolderOf(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path();
  Descriptor descriptor(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (descriptor.is_open()) return descriptor;
  return MeetingError(errno, path, absl::StrFormat("cannot open the folder '%s'", folder));
}

// What is at the path, opened.
struct FoundFile {
  Descriptor file;
  bool is_replaceable = false;  // a file as this one writes it, or an empty one
  MeetingPlace place;           // if the status is OK
  absl::Status status;
};

absl::StatusOr<MeetingPlace> ParsePlace(const std::string& path, const std::string& text) {
  MeetingPlace place;
  std::vector<std::string> lines = absl::StrSplit(text, '\n');
  if (lines[0] != kTitleHere) {
    return NotAMeeting(path, absl::StrFormat("begins with '%s', not with '%s' as rank 0 of this "
                                             "version of Braid writes it",
                                             Excerpt(lines[0]), kTitleHere));
  }
  const bool is_whole = lines.back().empty();
  lines.pop_back();
  bool is_good = is_whole;
  for (size_t i = 1; i < lines.size() && is_good; ++i) {
    const std::pair<std::string, std::string> line =
        absl::StrSplit(lines[i], absl::MaxSplits(' ', 1));
    if (line.first == "nonce") {
      place.nonce = line.second;
    } else if (line.first == "machine") {
      place.is_on_this_machine = line.second == ThisMachine();
    } else if (line.first == "process") {
      const std::pair<std::string, std::string> words =
          absl::StrSplit(line.second, absl::MaxSplits(' ', 1));
      place.writer = absl::StrFormat("process %s on %s", words.first, words.second);
    } else if (line.first == "address") {
      const absl::StatusOr<SocketAddress> address = SocketAddress::Parse(line.second);
      is_good = address.ok();
      if (is_good) place.addresses.push_back(*address);
    } else {
      is_good = false;
    }
    if (!is_good) {
      return NotAMeeting(
          path, absl::StrFormat("has a line '%s' that cannot be understood", Excerpt(lines[i])));
    }
  }
  if (!is_good || place.nonce.size() != kNonceDigits || place.addresses.empty()) {
    return NotAMeeting(path, "is cut off");
  }
  return place;
}

// Which byte of the file is locked, by an open file and until that is closed. Apart, so that a file
// that is being replaced does not look like one whose master lives.
enum MeetingLock : off_t { kMasterLives, kIsReplaced };

struct flock RecordOf(MeetingLock lock) {
  struct flock record = {};
  record.l_type = F_WRLCK;
  record.l_whence = SEEK_SET;
  record.l_start = lock;
  record.l_len = 1;
  return record;
}

// Free: nobody else has it. Unknown: the file system has no locks.
enum class LockState { kFree, kHeld, kUnknown };

LockState TakeLock(const Descriptor& file, MeetingLock lock) {
  struct flock record = RecordOf(lock);
  if (fcntl(file.number(), F_OFD_SETLK, &record) == 0) return LockState::kFree;
  return errno == EAGAIN || errno == EACCES ? LockState::kHeld : LockState::kUnknown;
}

// Without taking it.
LockState LookAtLock(const Descriptor& file, MeetingLock lock) {
  struct flock record = RecordOf(lock);
  if (fcntl(file.number(), F_OFD_GETLK, &record) != 0) return LockState::kUnknown;
  return record.l_type == F_UNLCK ? LockState::kFree : LockState::kHeld;
}

// OK: this user's, and nobody else may use it.
absl::Status CheckOwner(const std::string& path, const struct stat& status) {
  if (status.st_uid == geteuid() && (status.st_mode & 077) == 0) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrFormat(
      "'%s', where the ranks are to meet, belongs to user %d and has mode %04o, and this process "
      "is "
      "user %d; user %d and mode 0600 were expected, so that nobody else can write it: remove it, "
      "or give another path",
      path, status.st_uid, status.st_mode & 07777, geteuid(), geteuid()));
}

// None: there is no file. An error: what neither waiting nor replacing mends.
absl::StatusOr<std::optional<FoundFile>> FindFile(const Descriptor& folder, const std::string& path,
                                                  int access) {
  const std::string name = std::filesystem::path(path).filename();
  FoundFile found;
  struct stat status = {};
  if (fstatat(folder.number(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno == ENOENT) return std::optional<FoundFile>();
    return MeetingError(errno, path, "cannot look at it");
  }
  if (!S_ISREG(status.st_mode)) return NotAMeeting(path, "is no regular file");
  if (status.st_uid != geteuid()) return CheckOwner(path, status);
  found.file = Descriptor(
      openat(folder.number(), name.c_str(), access | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!found.file.is_open()) {
    // It was removed since, be it on another machine.
    if (errno == ENOENT || errno == ESTALE) return std::optional<FoundFile>();
    return MeetingError(errno, path, "cannot open it");
  }
  std::string text(kMostMeetingBytes, '\0');
  const ssize_t bytes = pread(found.file.number(), text.data(), text.size(), 0);
  if (bytes < 0 && errno == ESTALE) return std::optional<FoundFile>();
  if (bytes < 0) return MeetingError(errno, path, "cannot read it");
  text.resize(static_cast<size_t>(bytes));
  if (text.empty()) {
    found.is_replaceable = true;
    found.status = absl::UnavailableError(absl::StrFormat(
        "'%s' is empty: rank 0, which writes its address there, has not come yet", path));
    return std::optional<FoundFile>(std::move(found));
  }
  found.is_replaceable = text.starts_with(kTitle);
  absl::StatusOr<MeetingPlace> place = ParsePlace(path, text);
  found.status = place.status();
  if (place.ok()) found.place = *std::move(place);
  if (found.is_replaceable) found.status.Update(CheckOwner(path, status));
  return std::optional<FoundFile>(std::move(found));
}

bool IsAt(const Descriptor& folder, const std::string& name, const Descriptor& file) {
  struct stat named = {};
  struct stat opened = {};
  return fstatat(folder.number(), name.c_str(), &named, AT_SYMLINK_NOFOLLOW) == 0 &&
         fstat(file.number(), &opened) == 0 && named.st_ino == opened.st_ino &&
         named.st_dev == opened.st_dev;
}

// Removes what an earlier run left there. Of two that find it only one does, and is done with it
// before the other looks again.
absl::Status RemoveStale(const Descriptor& folder, const std::string& path) {
  const std::string name = std::filesystem::path(path).filename();
  BRAID_ASSIGN_OR_RETURN(const std::optional<FoundFile> found, FindFile(folder, path, O_RDWR));
  if (!found.has_value()) return absl::OkStatus();
  if (!found->is_replaceable) return found->status;
  // Once it is free it stays so: the master had it before the file could be seen.
  if (LookAtLock(found->file, kMasterLives) == LockState::kHeld) {
    return absl::AlreadyExistsError(absl::StrFormat(
        "'%s': ranks of another world meet there, whose rank 0 is %s; give each world a path of "
        "its own, or end that one first",
        path, found->place.writer.empty() ? "of another version of Braid" : found->place.writer));
  }
  if (TakeLock(found->file, kIsReplaced) == LockState::kHeld) {
    return absl::AlreadyExistsError(absl::StrFormat(
        "'%s': another process is about to make it as rank 0; give each world a path of its own, "
        "and one rank 0",
        path));
  }
  if (!IsAt(folder, name, found->file)) return absl::OkStatus();
  LOG(INFO) << "'" << path << "' was left by an earlier run ("
            << (found->place.writer.empty() ? "unknown" : found->place.writer)
            << ") and is replaced";
  if (unlinkat(folder.number(), name.c_str(), 0) == 0 || errno == ENOENT) return absl::OkStatus();
  return MeetingError(errno, path, "cannot remove what an earlier run left there");
}

// errno, or 0.
int WriteWhole(const Descriptor& file, const std::string& text) {
  // The umask may have taken more than it should.
  if (fchmod(file.number(), 0600) != 0) return errno;
  const ssize_t bytes = write(file.number(), text.data(), text.size());
  if (bytes < 0) return errno;
  if (bytes != static_cast<ssize_t>(text.size())) return ENOSPC;
  // A server of files may say only now that it has no room.
  return fsync(file.number()) == 0 ? 0 : errno;
}

}  // namespace

std::string SecretOfMeeting(const std::string& secret, const std::string& nonce) {
  return secret + nonce;
}

absl::StatusOr<MeetingFile> MeetingFile::Write(const std::string& path,
                                               const std::vector<SocketAddress>& addresses) {
  BRAID_ASSIGN_OR_RETURN(const Descriptor folder, OpenFolderOf(path));
  BRAID_ASSIGN_OR_RETURN(std::string nonce, MakeSecret());
  std::string text = absl::StrFormat("%s\nnonce %s\nmachine %s\nprocess %d %s\n", kTitleHere, nonce,
                                     ThisMachine(), getpid(), HostName());
  for (const SocketAddress& address : addresses) {
    absl::StrAppend(&text, "address ", address.ToString(), "\n");
  }
  const std::string name = std::filesystem::path(path).filename();
  const std::string draft = absl::StrFormat(".%s.%s", name.substr(0, 100), nonce.substr(0, 16));
  Descriptor file(
      openat(folder.number(), draft.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file.is_open()) return MeetingError(errno, path, "cannot make a file in its folder");
  absl::Status status;
  if (const int error = WriteWhole(file, text); error != 0) {
    status = MeetingError(error, path, "cannot write it");
  } else if (TakeLock(file, kMasterLives) == LockState::kUnknown) {
    LOG(WARNING) << "'" << path << "' cannot be locked; should this process be killed, it will not "
                 << "be seen that the file is left from it";
  }
  while (status.ok()) {
    if (linkat(folder.number(), draft.c_str(), folder.number(), name.c_str(), 0) == 0) break;
    status =
        errno == EEXIST ? RemoveStale(folder, path) : MeetingError(errno, path, "cannot make it");
  }
  unlinkat(folder.number(), draft.c_str(), 0);
  BRAID_RETURN_IF_ERROR(status);
  return MeetingFile(path, std::move(nonce), std::move(file));
}

MeetingFile::MeetingFile(MeetingFile&& other) noexcept
    : path_(std::move(other.path_)),
      nonce_(std::move(other.nonce_)),
      file_(std::move(other.file_)) {}

MeetingFile& MeetingFile::operator=(MeetingFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(nonce_, other.nonce_);
  std::swap(file_, other.file_);
  return *this;
}

MeetingFile::~MeetingFile() {
  if (!file_.is_open()) return;
  const std::filesystem::path path = path_;
  const absl::StatusOr<Descriptor> folder = OpenFolderOf(path_);
  if (folder.ok() && IsAt(*folder, path.filename(), file_)) unlink(path_.c_str());
}

absl::StatusOr<MeetingPlace> ReadMeetingFile(const std::string& path) {
  BRAID_ASSIGN_OR_RETURN(const Descriptor folder, OpenFolderOf(path));
  BRAID_ASSIGN_OR_RETURN(std::optional<FoundFile> found, FindFile(folder, path, O_RDONLY));
  if (!found.has_value()) {
    return absl::UnavailableError(absl::StrFormat(
        "'%s' is not there: rank 0, which writes its address there, has not come yet", path));
  }
  BRAID_RETURN_IF_ERROR(found->status);
  MeetingPlace& place = found->place;
  // Other machines need not see the lock.
  const LockState lock =
      place.is_on_this_machine ? LookAtLock(found->file, kMasterLives) : LockState::kUnknown;
  if (lock == LockState::kFree) {
    return absl::UnavailableError(absl::StrFormat(
        "'%s' was left by an earlier run, %s, which has ended: rank 0 has not come yet", path,
        place.writer));
  }
  place.is_held = lock == LockState::kHeld;
  return std::move(place);
}

}  // namespace braid
