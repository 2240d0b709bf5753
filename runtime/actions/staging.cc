#include "runtime/actions/staging.h"

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "runtime/actions/make_action.h"
#include "runtime/base/status.h"
#include "runtime/plan_read.h"

namespace braid {

void StagingAction::Start(const Act& act, ActDone done) {
  options_.stream->SetName(&options_.name);
  for (const Part& part : options_.parts) {
    options_.stream->Copy(
        memory_.Locate(part.to, act.input_slots.data(), act.output_slots.data()),
        memory_.Locate(part.from, act.input_slots.data(), act.output_slots.data()), part.bytes);
  }
  done(absl::OkStatus());
}

absl::StatusOr<MadeAction> MakeAction(const plan::Staging& staging, ActionContext& context) {
  StagingAction::Options options;
  options.stream = &context.stream();
  options.name.what = absl::StrCat("copy '", std::string(context.task.name), "'");
  for (const plan::Staging::Part& part : staging.parts) {
    StagingAction::Part& out = options.parts.emplace_back();
    BRAID_ASSIGN_OR_RETURN(out.from, context.addresses.AddressOf(context.task, part.from));
    BRAID_ASSIGN_OR_RETURN(out.to, context.addresses.AddressOf(context.task, part.to));
    out.bytes = static_cast<uint64_t>(BytesOf(OperandOf(part.from.shard)));
  }
  MadeAction made;
  made.action = std::make_unique<StagingAction>(std::move(context.memory), std::move(options));
  return made;
}

}  // namespace braid
