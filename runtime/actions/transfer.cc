#include "runtime/actions/transfer.h"

#include <array>
#include <memory>
#include <utility>

#include "absl/strings/str_format.h"
#include "runtime/actions/make_action.h"
#include "runtime/base/status.h"
#include "runtime/plan_read.h"

namespace braid {

void TransferAction::Start(const Act& act, ActDone done) {
  const std::byte* from = memory_.Locate(options_.source, act.input_slots.data(), nullptr);
  if (options_.staging != nullptr) {
    options_.stream->CopyBox(options_.pack, options_.element_size, from, options_.staging);
    from = options_.staging;
  } else {
    from += options_.first_byte;
  }
  const LandingPort& port = *options_.port;
  // The kReady that the actor sends after `done` follows the payload on the same link, in order;
  // the frame that Write needs says nothing by itself.
  constexpr std::array<std::byte, 1> kNothing = {static_cast<std::byte>(Channel::kPayload)};
  done_ = done;
  if (port.link->Write({from, options_.bytes}, port.key,
                       act.output_slots[0] * port.stride + options_.landing, kNothing,
                       [this](absl::Status status) { (*done_)(std::move(status)); })) {
    done(absl::OkStatus());
  }
}

absl::StatusOr<MadeAction> MakeAction(const plan::Transfer& transfer, ActionContext& context) {
  const plan::Task& task = context.task;
  const OperandSpec source = OperandOf(transfer.source.shard);
  TransferAction::Options options;
  options.stream = &context.stream();
  BRAID_ASSIGN_OR_RETURN(options.source, context.addresses.AddressOf(task, transfer.source));
  options.bytes = transfer.bytes;
  options.landing = transfer.landing;
  options.element_size = SizeOf(source.dtype);
  options.pack = RunsOf(source.region, transfer.box, transfer.box);
  if (transfer.staging.has_value()) {
    BRAID_ASSIGN_OR_RETURN(const SlotMemory staging, context.addresses.Of(*transfer.staging));
    options.staging = staging.base;
  } else if (!options.pack.from.empty()) {
    options.first_byte = options.pack.from[0] * options.element_size;
  }
  auto port = std::make_unique<LandingPort>();
  port->link = context.link_of(static_cast<uint16_t>(transfer.peer));
  if (port->link == nullptr) {
    return absl::InternalError(absl::StrFormat(
        "task '%s' sends to node %d, to which there is no link", task.name, transfer.peer));
  }
  port->stride = task.outputs[0].memory->stride;
  options.port = port.get();
  MadeAction made;
  made.action = std::make_unique<TransferAction>(std::move(context.memory), std::move(options));
  made.port = std::move(port);
  return made;
}

}  // namespace braid
