#include "runtime/base/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_format.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

}  // namespace

absl::Status SharedMemory::MapIt(const Descriptor& descriptor, size_t bytes) {
  void* const mapped =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor.number(), 0);
  if (mapped == MAP_FAILED) {
    return absl::ErrnoToStatus(errno,
                               absl::StrFormat("cannot map %d bytes of shared memory", bytes));
  }
  mapped_ = mapped;
  bytes_ = bytes;
  return absl::OkStatus();
}

absl::StatusOr<SharedMemory> SharedMemory::Make(const char* name, size_t bytes) {
  SharedMemory memory;
  memory.descriptor_ = Descriptor(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const int descriptor = memory.descriptor_.number();
  if (descriptor < 0) return absl::ErrnoToStatus(errno, "cannot make shared memory");
  if (const int error = posix_fallocate(descriptor, 0, static_cast<off_t>(bytes)); error != 0) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("cannot make %d bytes of shared memory: %s", bytes, std::strerror(error)));
  }
  if (fcntl(descriptor, F_ADD_SEALS, kSizeSeals) != 0) {
    return absl::ErrnoToStatus(errno, "cannot seal shared memory");
  }
  BRAID_RETURN_IF_ERROR(memory.MapIt(memory.descriptor_, bytes));
  return memory;
}

absl::StatusOr<SharedMemory> SharedMemory::Map(Descriptor descriptor, size_t bytes) {
  struct stat file = {};
  if (fstat(descriptor.number(), &file) != 0) {
    return absl::ErrnoToStatus(errno, "cannot look at the peer's shared memory");
  }
  if (file.st_size != static_cast<off_t>(bytes)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("its shared memory has %d bytes, must be %d", file.st_size, bytes));
  }
  if (const int seals = fcntl(descriptor.number(), F_GET_SEALS);
      seals < 0 || (seals & kSizeSeals) != kSizeSeals) {
    return absl::InvalidArgumentError(
        absl::StrFormat("its shared memory has seals %x, must be %x", seals, kSizeSeals));
  }
  SharedMemory memory;
  BRAID_RETURN_IF_ERROR(memory.MapIt(descriptor, bytes));
  return memory;
}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(mapped_, other.mapped_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

SharedMemory::~SharedMemory() {
  if (mapped_ != nullptr) munmap(mapped_, bytes_);
}

}  // namespace braid
