#include "runtime/actions/copy.h"

#include <memory>
#include <utility>

#include "runtime/actions/make_action.h"
#include "runtime/base/status.h"
#include "runtime/plan_read.h"

namespace braid {

void CopyAction::Start(const Act& act, ActDone done) {
  const uint32_t* inputs = act.input_slots.data();
  const uint32_t* outputs = act.output_slots.data();
  Stream& stream = *options_.stream;
  std::byte* to = memory_.Locate(options_.destination, inputs, outputs);
  if (options_.zero_first) stream.Clear(to, options_.destination_bytes);
  for (const Move& move : options_.moves) {
    const std::byte* from = memory_.Locate(move.source, inputs, outputs);
    if (move.add) {
      stream.CombineBox(move.runs, options_.dtype, options_.reduction, from, to);
    } else {
      stream.CopyBox(move.runs, SizeOf(options_.dtype), from, to);
    }
  }
  done(absl::OkStatus());
}

absl::StatusOr<MadeAction> MakeAction(const plan::Copy& copy, ActionContext& context) {
  const OperandSpec destination = OperandOf(copy.destination.shard);
  CopyAction::Options options;
  options.stream = &context.stream();
  BRAID_ASSIGN_OR_RETURN(options.destination,
                         context.addresses.AddressOf(context.task, copy.destination));
  options.destination_bytes = static_cast<uint64_t>(BytesOf(destination));
  options.dtype = destination.dtype;
  options.reduction = copy.reduction;
  options.zero_first = copy.zero_first;
  for (const plan::Copy::Move& move : copy.moves) {
    CopyAction::Move& out = options.moves.emplace_back();
    BRAID_ASSIGN_OR_RETURN(out.source, context.addresses.AddressOf(context.task, move.source));
    out.runs = RunsOf(move.source.shard.region, destination.region, move.box);
    out.add = move.add;
  }
  MadeAction made;
  made.action = std::make_unique<CopyAction>(std::move(context.memory), std::move(options));
  return made;
}

}  // namespace braid
