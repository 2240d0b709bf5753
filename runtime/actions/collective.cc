#include "runtime/actions/collective.h"

#include <algorithm>
#include <memory>
#include <span>
#include <utility>

#include "absl/strings/str_format.h"
#include "runtime/actions/make_action.h"
#include "runtime/base/status.h"
#include "runtime/plan_read.h"

namespace braid {

void CollectiveAction::Start(const Act& act, ActDone done) {
  const uint32_t* inputs = act.input_slots.data();
  const uint32_t* outputs = act.output_slots.data();
  done_ = done;
  const std::byte* input = memory_.Locate(options_.input, inputs, outputs);
  std::byte* output = memory_.Locate(options_.output, inputs, outputs);
  if (options_.on_device != nullptr) {
    options_.on_device->Come(input, output);
    if (options_.spans_nodes) {
      std::ranges::fill(said_, std::byte{0});
      if (absl::Status told = options_.on_device->Tell(said_); !told.ok()) {
        return (*done_)(std::move(told));
      }
      input = said_.data();
      output = heard_.data();
    }
  }
  options_.collective->Start(act.index, input, output,
                             [this](absl::Status status) { OnMet(std::move(status)); });
}

void CollectiveAction::OnMet(absl::Status status) {
  if (!status.ok() || options_.on_device == nullptr) return (*done_)(std::move(status));
  options_.on_device->Queue(std::span(heard_).first(std::min(heard_.size(), kDeviceWordBytes)),
                            [this](absl::Status queued) { (*done_)(std::move(queued)); });
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

namespace {

absl::StatusOr<std::unique_ptr<DeviceCollective>> MakeOnDevice(const plan::Collective& collective,
                                                               const CollectiveSpec& spec,
                                                               const ActionContext& context) {
  const bool spans_nodes = spec.algorithm != CollectiveAlgorithm::kDevice;
  if (context.device_group == nullptr) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "%s '%s' is for devices to do among themselves, and %s devices cannot here; start the same "
        "program on every node",
        CollectiveKindName(collective.kind), spec.name, context.device.kind()));
  }
  DeviceCollectiveSpec on_device = {.id = spec.id,
                                    .kind = collective.kind,
                                    .devices = {},
                                    .nodes = {},
                                    .reactor = context.reactor,
                                    .my_rank = spec.my_rank,
                                    .dtype = collective.dtype,
                                    .reduction = collective.reduction,
                                    .counts = collective.counts,
                                    .receives = collective.receives,
                                    .root = spec.root};
  for (const Member& member : spec.members) {
    on_device.devices.push_back(static_cast<int>(member.device));
    if (spans_nodes) on_device.nodes.push_back(member.node);
  }
  return context.device_group->Create(on_device);
}

}  // namespace

absl::StatusOr<MadeAction> MakeAction(const plan::Collective& collective, ActionContext& context) {
  const plan::Task& task = context.task;
  CollectiveSpec spec = CollectiveSpecOf(context.plan, task);
  spec.id += context.first_collective;
  CollectiveAction::Options options;
  BRAID_ASSIGN_OR_RETURN(options.input, context.addresses.AddressOf(task, collective.input));
  BRAID_ASSIGN_OR_RETURN(options.output, context.addresses.AddressOf(task, collective.output));
  MadeAction made;
  BRAID_ASSIGN_OR_RETURN(
      made.collective, context.collectives->Create(spec, *context.reactor,
                                                   MemoryOf(context.device, MemoryKind::kPinned)));
  made.collective_id = spec.id;
  options.collective = made.collective.get();
  if (collective.algorithm == CollectiveAlgorithm::kDevice) {
    options.spans_nodes = spec.algorithm != collective.algorithm;
    BRAID_ASSIGN_OR_RETURN(options.on_device, MakeOnDevice(collective, spec, context));
  }
  for (const Member& member : spec.members) {
    options.threads.push_back(
        {.node = member.node,
         .thread = static_cast<int>(ThreadOf(member.device, StreamOfThread(task.id.thread)))});
  }
  made.action = std::make_unique<CollectiveAction>(std::move(context.memory), std::move(options));
  return made;
}

}  // namespace braid
