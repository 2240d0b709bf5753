#include "comm/control/session_file.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "runtime/base/descriptor.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

constexpr char kPrefix[] = "session-";
constexpr size_t kMostCommandBytes = 200;

std::string Folder() {
  const char* runtime = getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && *runtime != '\0') return absl::StrCat(runtime, "/braid");
  return absl::StrCat("/tmp/braid-", geteuid());
}

// Others must not be able to put files there, nor read them.
absl::Status CheckFolder(const std::string& path) {
  struct stat folder = {};
  if (lstat(path.c_str(), &folder) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrFormat("cannot use '%s'", path));
  }
  if (S_ISDIR(folder.st_mode) && folder.st_uid == geteuid() && (folder.st_mode & 077) == 0) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrFormat(
      "'%s' should be a folder that user %d owns and nobody else may use (mode 0700); it has mode "
      "%04o and is user %d's: remove it",
      path, geteuid(), folder.st_mode & 07777, folder.st_uid));
}

std::string Command() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string command{std::istreambuf_iterator<char>(file), {}};
  for (char& c : command) {
    if (c == '\0' || c == '\n') c = ' ';
  }
  command.resize(std::min(command.size(), kMostCommandBytes));
  while (command.ends_with(' ')) command.pop_back();
  return command;
}

}  // namespace

absl::StatusOr<SessionFile> SessionFile::Write(const std::string& address,
                                               const std::string& secret) {
  static std::atomic<int> next_number{1};
  const std::string folder = Folder();
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    return absl::ErrnoToStatus(errno, absl::StrFormat("cannot make '%s'", folder));
  }
  BRAID_RETURN_IF_ERROR(CheckFolder(folder));
  const std::string path =
      absl::StrFormat("%s/%s%d-%d", folder, kPrefix, getpid(), next_number.fetch_add(1));
  unlink(path.c_str());  // of a process that had this number before
  const Descriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  const std::string text = absl::StrCat(address, "\n", secret, "\n", Command(), "\n");
  if (file.number() < 0 ||
      write(file.number(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    return absl::ErrnoToStatus(errno, absl::StrFormat("cannot write '%s'", path));
  }
  return SessionFile(path);
}

SessionFile::SessionFile(SessionFile&& other) noexcept
    : path_(std::exchange(other.path_, std::string())) {}

SessionFile& SessionFile::operator=(SessionFile&& other) noexcept {
  std::swap(path_, other.path_);
  return *this;
}

SessionFile::~SessionFile() {
  if (!path_.empty()) unlink(path_.c_str());
}

absl::StatusOr<std::vector<SessionPlace>> FindSessions() {
  std::vector<SessionPlace> sessions;
  const std::string folder = Folder();
  std::error_code error;
  if (!std::filesystem::exists(folder, error)) return sessions;
  BRAID_RETURN_IF_ERROR(CheckFolder(folder));
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kPrefix)) continue;
    const std::vector<std::string> numbers = absl::StrSplit(name.substr(sizeof(kPrefix) - 1), '-');
    SessionPlace session;
    if (!absl::SimpleAtoi(numbers[0], &session.pid)) continue;
    if (kill(session.pid, 0) != 0 && errno == ESRCH) {
      unlink(entry.path().c_str());
      continue;
    }
    std::ifstream file(entry.path());
    if (std::getline(file, session.address) && std::getline(file, session.secret) &&
        std::getline(file, session.command)) {
      sessions.push_back(std::move(session));
    }
  }
  std::sort(sessions.begin(), sessions.end(),
            [](const SessionPlace& a, const SessionPlace& b) { return a.pid < b.pid; });
  return sessions;
}

}  // namespace braid
