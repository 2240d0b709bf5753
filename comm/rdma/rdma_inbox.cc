#include "comm/rdma/rdma_inbox.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "comm/rdma/rdma_wire.h"
#include "runtime/base/status.h"

namespace braid {

absl::StatusOr<RdmaInbox::Arrived> RdmaInbox::Read(const ibv_wc& received) {
  BRAID_ASSIGN_OR_RETURN(const RdmaMessage message,
                         ReadRdmaMessage(pair_.Received(received.wr_id, received.byte_len)));
  if (message.sequence != expected_sequence_) {
    return absl::InvalidArgumentError(absl::StrFormat("it has sequence number %d, must be %d",
                                                      message.sequence, expected_sequence_));
  }
  ++expected_sequence_;
  if (message.kind == RdmaMessage::Kind::kWrite) {
    BRAID_RETURN_IF_ERROR(landing_.Check(message.write, node_));
  }
  return Arrived{.slot = received.wr_id,
                 .frame_bytes = message.frame_bytes,
                 .payload_bytes = message.write.bytes,
                 .credits = message.credits};
}

absl::Status RdmaInbox::Take(const Arrived& arrived, std::span<std::byte> frame) {
  std::ranges::copy(
      pair_.Received(arrived.slot, kRdmaHeadBytes + arrived.frame_bytes).subspan(kRdmaHeadBytes),
      frame.begin());
  BRAID_RETURN_IF_ERROR(pair_.PostReceive(arrived.slot));
  owed_.fetch_add(1, std::memory_order_relaxed);
  return absl::OkStatus();
}

}  // namespace braid
