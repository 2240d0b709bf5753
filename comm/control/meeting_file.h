// How processes find their master where nobody knows its address before: it writes it into a file
// that all of them can read, here or on a file system that their machines share.
//
//   braid world 1
//   nonce 0f3c...                            64 hexadecimal digits
//   machine BOOT_ID net:[4026531840]         whose loopback addresses these are
//   process 4711 HOST
//   address 10.0.0.1:40123                   one or more lines
//
// It appears whole, belongs to the master's user and has mode 0600. The master holds a lock on it
// as long as it lives, so that what an earlier run left behind is recognised on the same machine
// and replaced. From other machines such a lock is not always seen: there the nonce, which is part
// of the secret that both ends prove, keeps a process out of another world.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "comm/network/socket_address.h"
#include "runtime/base/descriptor.h"

namespace braid {

// What a world's members prove to each other: the secret that all of them were given, which may be
// "", and the nonce, which only those know who may read the file.
std::string SecretOfMeeting(const std::string& secret, const std::string& nonce);

// The master's.
class MeetingFile {
 public:
  // Errors name the path and what is wrong with it: a folder that is missing or not writable, a
  // full disk, something else than such a file, which is left as it is (an empty file is replaced);
  // ALREADY_EXISTS: a world that runs meets there.
  static absl::StatusOr<MeetingFile> Write(const std::string& path,
                                           const std::vector<SocketAddress>& addresses);
  MeetingFile(MeetingFile&& other) noexcept;
  MeetingFile& operator=(MeetingFile&& other) noexcept;
  // Removes it, unless it is another's by now.
  ~MeetingFile();

  const std::string& nonce() const { return nonce_; }

 private:
  MeetingFile(std::string path, std::string nonce, Descriptor file)
      : path_(std::move(path)), nonce_(std::move(nonce)), file_(std::move(file)) {}

  std::string path_;
  std::string nonce_;
  Descriptor file_;  // with the lock; none: moved from
};

struct MeetingPlace {
  std::string nonce;
  std::vector<SocketAddress> addresses;
  std::string writer;               // "process 4711 on node7"
  bool is_on_this_machine = false;  // the master is, or was
  bool is_held = false;             // and is known to live
};

// UNAVAILABLE says why the master is not there yet: the file is missing or empty, or an earlier
// run's. Any other error says what no waiting mends: the folder is missing, the file is another
// user's or open to others, or is no such file.
absl::StatusOr<MeetingPlace> ReadMeetingFile(const std::string& path);

}  // namespace braid
