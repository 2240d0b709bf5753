// Memory that the kernels of a thread take turns in: each has it while it runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

namespace braid {

class WorkMemory {
 public:
  // At least as much from now on. When a kernel is made: none may be running.
  void Reserve(int64_t bytes) {
    if (bytes <= bytes_) return;
    memory_.reset();  // first: the two need not fit together
    memory_.reset(static_cast<std::byte*>(operator new(static_cast<size_t>(bytes), kAlignment)));
    bytes_ = bytes;
  }

  // Aligned to a cache line, with anything in it. Null as long as nothing was reserved.
  std::byte* data() const { return memory_.get(); }

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Free {
    void operator()(std::byte* memory) const { operator delete(memory, kAlignment); }
  };

  std::unique_ptr<std::byte, Free> memory_;
  int64_t bytes_ = 0;
};

}  // namespace braid
