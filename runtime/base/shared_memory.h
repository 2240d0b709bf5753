// Memory that processes of one machine map together. It has no name: it is there as long as one of
// them maps it or has its descriptor. Its size is sealed, so that nobody can take pages away under
// a process that reads them, and it is filled before it is used: later a lack would be a signal.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "runtime/base/descriptor.h"
#include "runtime/base/reactor.h"

namespace braid {

// A mapping for reading and writing. A value that moves.
class SharedMemory {
 public:
  // Zeros, which take no memory before they are filled. `name` is what debuggers show.
  // RESOURCE_EXHAUSTED, or what errno says, with the bytes.
  static absl::StatusOr<SharedMemory> Reserve(const char* name, size_t bytes);
  // What another process reserved, of whatever size. INVALID_ARGUMENT if it is not sealed.
  static absl::StatusOr<SharedMemory> Map(Descriptor descriptor);
  // What another process made. INVALID_ARGUMENT with both values if it is of another size or not
  // sealed.
  static absl::StatusOr<SharedMemory> Map(Descriptor descriptor, size_t bytes);
  SharedMemory(SharedMemory&& other) noexcept { *this = std::move(other); }
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  std::byte* data() const { return static_cast<std::byte*>(mapped_); }
  size_t bytes() const { return bytes_; }
  // Of whole pages. RESOURCE_EXHAUSTED with the bytes.
  absl::Status Fill(size_t begin, size_t bytes);
  // The same by who has forgotten the descriptor. UNIMPLEMENTED where the system does not do that.
  absl::Status Populate(size_t begin, size_t bytes);
  // As Fill; what is whole of large pages in these, where the system has some left.
  absl::Status FillInLargePages(size_t begin, size_t bytes);
  // These pages become this process's own, with what they hold: what others store there is not seen
  // any more.
  absl::Status Separate(size_t begin, size_t bytes);
  // For the other process; -1 once it is forgotten, or where it was mapped only.
  int descriptor() const { return descriptor_.number(); }
  void ForgetDescriptor() { descriptor_.Close(); }

 private:
  SharedMemory() = default;
  absl::Status MapIt(const Descriptor& descriptor, size_t bytes);
  static absl::StatusOr<size_t> SizeOf(const Descriptor& descriptor);

  Descriptor descriptor_;
  void* mapped_ = nullptr;
  size_t bytes_ = 0;
};

// Bytes of a page of this machine's.
size_t SystemPage();

// Until another process has set `word`, which is in shared memory, to 0: true. False if it has not
// within `patience`, or as soon as `is_vain`. What takes others microseconds: the thread stands
// still meanwhile.
bool WaitForZero(const std::atomic<uint32_t>& word, Nanoseconds patience,
                 absl::FunctionRef<bool()> is_vain);

}  // namespace braid
