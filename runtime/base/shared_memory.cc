#include "runtime/base/shared_memory.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

constexpr int kCollapse = 25;  // MADV_COLLAPSE, which older headers do not have

constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

absl::Status Lacks(size_t bytes, int error) {
  return absl::ResourceExhaustedError(
      absl::StrFormat("cannot make %d bytes of shared memory: %s", bytes, std::strerror(error)));
}

}  // namespace

// Where a large page begins in the memory it must begin in the address space, too.
absl::Status SharedMemory::MapIt(const Descriptor& descriptor, size_t bytes) {
  const size_t slack = bytes < kLargePage ? 0 : kLargePage;
  void* mapped =
      mmap(nullptr, bytes + slack, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped != MAP_FAILED) {
    const auto address = reinterpret_cast<uintptr_t>(mapped);
    const size_t before = slack == 0 ? 0 : (kLargePage - address % kLargePage) % kLargePage;
    std::byte* const begin = static_cast<std::byte*>(mapped) + before;
    if (before > 0) munmap(mapped, before);
    if (slack > before) munmap(begin + bytes, slack - before);
    mapped =
        mmap(begin, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, descriptor.number(), 0);
    if (mapped == MAP_FAILED) munmap(begin, bytes);
  }
  if (mapped == MAP_FAILED) {
    return absl::ErrnoToStatus(errno,
                               absl::StrFormat("cannot map %d bytes of shared memory", bytes));
  }
  mapped_ = mapped;
  bytes_ = bytes;
  return absl::OkStatus();
}

absl::StatusOr<SharedMemory> SharedMemory::Reserve(const char* name, size_t bytes) {
  // Of such a file the system ends the process by SIGXFSZ.
  rlimit files = {};
  getrlimit(RLIMIT_FSIZE, &files);
  if (files.rlim_cur != RLIM_INFINITY && bytes > files.rlim_cur) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("cannot reserve %d bytes of shared memory: files may have %d (ulimit -f)",
                        bytes, files.rlim_cur));
  }
  SharedMemory memory;
  memory.descriptor_ = Descriptor(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const int descriptor = memory.descriptor_.number();
  if (descriptor < 0) return absl::ErrnoToStatus(errno, "cannot make shared memory");
  if (ftruncate(descriptor, static_cast<off_t>(bytes)) != 0) {
    return absl::ErrnoToStatus(errno,
                               absl::StrFormat("cannot reserve %d bytes of shared memory", bytes));
  }
  if (fcntl(descriptor, F_ADD_SEALS, kSizeSeals) != 0) {
    return absl::ErrnoToStatus(errno, "cannot seal shared memory");
  }
  BRAID_RETURN_IF_ERROR(memory.MapIt(memory.descriptor_, bytes));
  return memory;
}

absl::Status SharedMemory::Fill(size_t begin, size_t bytes) {
  int error = 0;
  do {
    error =
        posix_fallocate(descriptor_.number(), static_cast<off_t>(begin), static_cast<off_t>(bytes));
  } while (error == EINTR);
  return error == 0 ? absl::OkStatus() : Lacks(bytes, error);
}

absl::Status SharedMemory::Populate(size_t begin, size_t bytes) {
  int error = 0;
  do {
    error = madvise(data() + begin, bytes, MADV_POPULATE_WRITE) == 0 ? 0 : errno;
  } while (error == EINTR);
  if (error == EINVAL) {
    return absl::UnimplementedError(
        "this system fills no memory that is mapped: Linux before 5.14");
  }
  return error == 0 ? absl::OkStatus() : Lacks(bytes, error == EFAULT ? ENOMEM : error);
}

// A page that has any memory can be made a large one, whatever the system does by itself.
absl::Status SharedMemory::FillInLargePages(size_t begin, size_t bytes) {
  const auto address = reinterpret_cast<uintptr_t>(data());
  const size_t first = (address + begin + kLargePage - 1) / kLargePage * kLargePage - address;
  const size_t end = (address + begin + bytes) / kLargePage * kLargePage - address;
  for (size_t at = first; at < end; at += kLargePage) {
    BRAID_RETURN_IF_ERROR(Fill(at, 1));
    static_cast<void>(*static_cast<volatile std::byte*>(data() + at));
  }
  if (first < end) madvise(data() + first, end - first, kCollapse);
  return Fill(begin, bytes);
}

absl::Status SharedMemory::Separate(size_t begin, size_t bytes) {
  const std::vector<std::byte> held(data() + begin, data() + begin + bytes);
  if (mmap(data() + begin, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
           -1, 0) == MAP_FAILED) {
    return absl::ErrnoToStatus(errno,
                               absl::StrFormat("cannot take %d bytes out of shared memory", bytes));
  }
  std::memcpy(data() + begin, held.data(), bytes);
  return absl::OkStatus();
}

absl::StatusOr<size_t> SharedMemory::SizeOf(const Descriptor& descriptor) {
  struct stat file = {};
  if (fstat(descriptor.number(), &file) != 0) {
    return absl::ErrnoToStatus(errno, "cannot look at the peer's shared memory");
  }
  return static_cast<size_t>(file.st_size);
}

absl::StatusOr<SharedMemory> SharedMemory::Map(Descriptor descriptor) {
  BRAID_ASSIGN_OR_RETURN(const size_t bytes, SizeOf(descriptor));
  return Map(std::move(descriptor), bytes);
}

absl::StatusOr<SharedMemory> SharedMemory::Map(Descriptor descriptor, size_t bytes) {
  BRAID_ASSIGN_OR_RETURN(const size_t has, SizeOf(descriptor));
  if (has != bytes) {
    return absl::InvalidArgumentError(
        absl::StrFormat("its shared memory has %d bytes, must be %d", has, bytes));
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

size_t SystemPage() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

bool WaitForZero(const std::atomic<uint32_t>& word, Nanoseconds patience,
                 absl::FunctionRef<bool()> is_vain) {
  constexpr int kYields = 100;
  constexpr timespec kPause = {.tv_sec = 0, .tv_nsec = 100 * kMicrosecond};
  Nanoseconds waited = 0;
  for (int i = 0; word.load() != 0; ++i) {
    if (i < kYields) {
      sched_yield();
      continue;
    }
    if (waited >= patience || is_vain()) return false;
    nanosleep(&kPause, nullptr);
    waited += kPause.tv_nsec;
  }
  return true;
}

}  // namespace braid
