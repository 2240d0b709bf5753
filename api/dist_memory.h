// Memory for what the calls of groups read and write, where the other ranks of the machine reach it
// by themselves: over shm a call copies less of it than of any other memory.
//
//   BRAID_ASSIGN_OR_RETURN(const auto gradient, dist::Alloc<float>(*world, 1 << 20));
//   absl::Status summed = world->AllReduce(gradient);
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "api/dist.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"

namespace braid::dist {

// A contiguous range, and so a Buffer. Movable; a const one has elements that can be written, as a
// std::span has.
template <typename T>
requires std::is_trivially_copyable_v<T>
class Elements {
 public:
  Elements() = default;  // none
  Elements(Memory memory, int64_t count)
      : memory_(std::move(memory)), count_(static_cast<size_t>(count)) {}

  T* data() const { return reinterpret_cast<T*>(memory_.data()); }
  size_t size() const { return count_; }
  T* begin() const { return data(); }
  T* end() const { return data() + count_; }
  T& operator[](size_t i) const { return data()[i]; }

 private:
  Memory memory_;
  size_t count_ = 0;
};

// `count` elements, of zeros. They may outlive the world. INVALID_ARGUMENT for a count that is
// negative, RESOURCE_EXHAUSTED where there is no memory.
template <typename T>
absl::StatusOr<Elements<T>> Alloc(World& world, int64_t count) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max() / static_cast<int64_t>(sizeof(T));
  if (count < 0 || count > kMost) {
    return absl::InvalidArgumentError(
        absl::StrFormat("Alloc of %d elements of %d bytes: 0 to %d elements were expected", count,
                        sizeof(T), kMost));
  }
  BRAID_ASSIGN_OR_RETURN(Memory memory, world.Allocate(count * static_cast<int64_t>(sizeof(T))));
  return Elements<T>(std::move(memory), count);
}

}  // namespace braid::dist
