// The calls of a compute task whose work a stream captures, to be launched at once in later acts: a
// CUDA graph for each set of addresses that a range of calls meets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "runtime/device/stream.h"

namespace braid {

class CapturedCalls {
 public:
  // What decides on the work of a range: where its operands are, and the micro-batch.
  struct Act {
    std::vector<std::byte*> addresses;
    int64_t micro_batch = 0;
    friend auto operator<=>(const Act&, const Act&) = default;
  };
  // The calls [begin, end).
  struct Range {
    size_t begin = 0, end = 0;
    struct Launch {
      bool has_run = false;  // once, as it is
      bool is_captured = false;
      std::unique_ptr<CapturedWork> work = nullptr;  // null: it cannot be captured
    };
    std::map<Act, Launch> launches = {};
  };

  // Each longest range of calls that are repeatable (Kernel::is_repeatable) and more than one; none
  // where the stream does not capture. `stream` is borrowed.
  CapturedCalls(Stream* stream, const std::vector<bool>& are_repeatable);

  // The range that begins with this call; null if none does.
  Range* At(size_t call);

  // The range's work in this act. `run` queues it call by call: in the first act with such
  // addresses, which may allocate, and in the second to be captured.
  absl::Status Run(Range& range, const Act& act, absl::FunctionRef<absl::Status()> run);

 private:
  Stream& stream_;
  std::vector<Range> ranges_;  // by begin
};

}  // namespace braid
