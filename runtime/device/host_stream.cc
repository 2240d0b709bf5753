#include "runtime/device/host_stream.h"

#include <cstring>

namespace braid {

void HostStream::Copy(std::byte* to, const std::byte* from, uint64_t bytes) {
  std::memcpy(to, from, bytes);
}

void HostStream::Clear(std::byte* to, uint64_t bytes) { std::memset(to, 0, bytes); }

void HostStream::CopyBox(const BoxRuns& runs, size_t element_size, const std::byte* from,
                         std::byte* to) {
  CopyRuns(runs, element_size, from, to);
}

void HostStream::CombineBox(const BoxRuns& runs, DType dtype, Sbp::Kind kind, const std::byte* from,
                            std::byte* to) {
  CombineRuns(runs, dtype, kind, from, to);
}

}  // namespace braid
