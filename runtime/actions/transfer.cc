#include "runtime/actions/transfer.h"

#include <array>

namespace braid {

void TransferAction::Start(const Act& act, ActDone done) {
  const std::byte* from = memory_.Locate(options_.source, act.input_slots.data(), nullptr);
  if (options_.is_contiguous) {
    from += options_.first_byte;
  } else {
    CopyRuns(options_.pack, options_.element_size, from, options_.staging);
    from = options_.staging;
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

}  // namespace braid
