#include "comm/cluster/build_fingerprint.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_format.h"
#include "runtime/base/crc32c.h"
#include "runtime/base/descriptor.h"

namespace braid {

absl::StatusOr<std::string> FileFingerprint(const std::string& path) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status;
  if (!file.is_open() || fstat(file.number(), &status) != 0) {
    return absl::ErrnoToStatus(errno, path);
  }
  void* bytes = mmap(nullptr, status.st_size, PROT_READ, MAP_PRIVATE, file.number(), 0);
  if (bytes == MAP_FAILED) return absl::ErrnoToStatus(errno, path);
  const uint32_t checksum = Crc32c(bytes, status.st_size);
  munmap(bytes, status.st_size);
  return absl::StrFormat("%d-%08x", status.st_size, checksum);
}

absl::StatusOr<std::string> BuildFingerprint() { return FileFingerprint("/proc/self/exe"); }

}  // namespace braid
