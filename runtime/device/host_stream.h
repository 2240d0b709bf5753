// A stream of the host itself: whatever is queued is done before the call returns. CPU devices have
// no other; on other devices readers, feeds, fetches and what travels work on it.
#pragma once

#include <memory>

#include "runtime/device/stream.h"

namespace braid {

class HostStream final : public Stream {
 public:
  void Copy(std::byte* to, const std::byte* from, uint64_t bytes) override;
  void Clear(std::byte* to, uint64_t bytes) override;
  void CopyBox(const BoxRuns& runs, size_t element_size, const std::byte* from,
               std::byte* to) override;
  void CombineBox(const BoxRuns& runs, DType dtype, Sbp::Kind kind, const std::byte* from,
                  std::byte* to) override;
  // There is nothing to wait for.
  void Record(StreamEvent& /*event*/) override {}
  void Wait(const StreamEvent& /*event*/) override {}
  void Notify(Notice notice) override { notice(absl::OkStatus()); }
  void SetName(const WorkName* /*name*/) override {}
};

}  // namespace braid
