#include "runtime/actions/collective.h"

#include <memory>
#include <utility>

#include "runtime/actions/make_action.h"
#include "runtime/base/status.h"
#include "runtime/plan_read.h"

namespace braid {

void CollectiveAction::Start(const Act& act, ActDone done) {
  const uint32_t* inputs = act.input_slots.data();
  const uint32_t* outputs = act.output_slots.data();
  done_ = done;
  options_.collective->Start(act.index, memory_.Locate(options_.input, inputs, outputs),
                             memory_.Locate(options_.output, inputs, outputs),
                             [this](absl::Status status) { (*done_)(std::move(status)); });
}

std::vector<ThreadId> CollectiveAction::Awaits() const {
  std::vector<ThreadId> threads;
  for (int rank : options_.collective->Awaits()) threads.push_back(options_.threads[rank]);
  return threads;
}

ThreadId CollectiveAction::LastAwaited() const {
  const int rank = options_.collective->LastHeard();
  return rank < 0 ? ThreadId() : options_.threads[rank];
}

absl::StatusOr<MadeAction> MakeAction(const plan::Collective& collective, ActionContext& context) {
  const plan::Task& task = context.task;
  CollectiveSpec spec = CollectiveSpecOf(context.plan, task);
  spec.id += context.first_collective;
  CollectiveAction::Options options;
  ASSIGN_OR_RETURN(options.input, context.addresses.AddressOf(task, collective.input));
  ASSIGN_OR_RETURN(options.output, context.addresses.AddressOf(task, collective.output));
  MadeAction made;
  ASSIGN_OR_RETURN(made.collective,
                   context.collectives->Create(spec, *context.reactor,
                                               MemoryOf(context.device, MemoryKind::kPinned)));
  made.collective_id = spec.id;
  options.collective = made.collective.get();
  for (const Member& member : spec.members) {
    options.threads.push_back(
        {.node = member.node,
         .thread = static_cast<int>(ThreadOf(member.device, StreamOfThread(task.id.thread)))});
  }
  made.action = std::make_unique<CollectiveAction>(std::move(context.memory), std::move(options));
  return made;
}

}  // namespace braid
