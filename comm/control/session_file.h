// How `braid status` finds the sessions of this user on this machine: each master leaves a file
// that only this user can read, in a folder of their own.
//
//   $XDG_RUNTIME_DIR/braid/session-PID-NUMBER, or /tmp/braid-UID/...: three lines, the control
//   port's HOST:PORT, the secret (empty: none), and the program with its arguments
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace braid {

struct SessionPlace {
  std::string address;  // HOST:PORT
  std::string secret;
  std::string command;
  pid_t pid = 0;
};

// One of this process. Removed at its end.
class SessionFile {
 public:
  // FAILED_PRECONDITION if the folder is another user's, or open to others.
  static absl::StatusOr<SessionFile> Write(const std::string& address, const std::string& secret);
  SessionFile(SessionFile&& other) noexcept;
  SessionFile& operator=(SessionFile&& other) noexcept;
  ~SessionFile();

 private:
  explicit SessionFile(std::string path) : path_(std::move(path)) {}
  std::string path_;  // "": moved from
};

// Of processes that live; the files of others are removed. By process.
absl::StatusOr<std::vector<SessionPlace>> FindSessions();

}  // namespace braid
