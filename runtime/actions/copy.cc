#include "runtime/actions/copy.h"

#include <cstring>

namespace braid {

void CopyAction::Start(const Act& act, ActDone done) {
  const uint32_t* inputs = act.input_slots.data();
  const uint32_t* outputs = act.output_slots.data();
  std::byte* to = memory_.Locate(options_.destination, inputs, outputs);
  if (options_.zero_first) std::memset(to, 0, options_.destination_bytes);
  for (const Move& move : options_.moves) {
    const std::byte* from = memory_.Locate(move.source, inputs, outputs);
    if (move.add) {
      CombineRuns(move.runs, options_.dtype, options_.reduction, from, to);
    } else {
      CopyRuns(move.runs, SizeOf(options_.dtype), from, to);
    }
  }
  done(absl::OkStatus());
}

}  // namespace braid
