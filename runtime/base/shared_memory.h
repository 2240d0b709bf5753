// Memory that processes of one machine map together. It has no name: it is there as long as one of
// them maps it or has its descriptor. Its size is sealed, so that nobody can take pages away under
// a process that reads them, and all of it is there from the start: later a lack would be a signal.
#pragma once

#include <cstddef>
#include <utility>

#include "absl/status/statusor.h"
#include "runtime/base/descriptor.h"

namespace braid {

// A mapping for reading and writing. A value that moves.
class SharedMemory {
 public:
  // Zeros. `name` is what debuggers show. RESOURCE_EXHAUSTED, or what errno says, with the bytes.
  static absl::StatusOr<SharedMemory> Make(const char* name, size_t bytes);
  // What another process made. INVALID_ARGUMENT with both values if it is of another size or not
  // sealed.
  static absl::StatusOr<SharedMemory> Map(Descriptor descriptor, size_t bytes);
  SharedMemory(SharedMemory&& other) noexcept { *this = std::move(other); }
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  std::byte* data() const { return static_cast<std::byte*>(mapped_); }
  // For the other process; -1 once it is forgotten, or where it was mapped only.
  int descriptor() const { return descriptor_.number(); }
  void ForgetDescriptor() { descriptor_.Close(); }

 private:
  SharedMemory() = default;
  absl::Status MapIt(const Descriptor& descriptor, size_t bytes);

  Descriptor descriptor_;
  void* mapped_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace braid
