#include "comm/rdma/rdma_queue_pair.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_format.h"
#include "runtime/base/random_bytes.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

// A request that is not answered is sent again 6 times, each after 4.096 us * 2^17: it fails after
// some 4 s, about when a silent TCP connection does. (rxe takes 7 times for ever.)
constexpr uint8_t kAnswerTime = 17;
constexpr uint8_t kRetries = 6;
// None: a message never finds its receive missing, or the credits are wrong.
constexpr uint8_t kReceiverRetries = 0;
// Of the networks between: routers decrease it.
constexpr uint8_t kHopLimit = 64;

}  // namespace

bool RdmaCompletions::HasNext() {
  if (taken_ < count_) return true;
  taken_ = 0;
  count_ = std::max(ibv_poll_cq(queue_, kAtOnce, found_.data()), 0);
  return count_ > 0;
}

const ibv_wc* RdmaCompletions::Next() { return HasNext() ? &found_[taken_++] : nullptr; }

absl::StatusOr<std::unique_ptr<RdmaQueuePair>> RdmaQueuePair::Make(const RdmaRoute& route) {
  auto made = std::make_unique<RdmaQueuePair>(route);
  made->memory_ = std::make_unique<std::byte[]>(ReceiveBytes() + kRdmaStagingBytes);
  BRAID_ASSIGN_OR_RETURN(made->region_, route.device->Register({made->memory_.get(),
                                                                ReceiveBytes() + kRdmaStagingBytes},
                                                               RdmaAccess::kLocal));
  BRAID_RETURN_IF_ERROR(made->MakeQueues());
  BRAID_RETURN_IF_ERROR(made->MakePair());
  for (uint64_t slot = 0; slot < kRdmaReceives; ++slot) {
    BRAID_RETURN_IF_ERROR(made->PostReceive(slot));
  }
  return made;
}

RdmaQueuePair::~RdmaQueuePair() {
  if (queue_pair_ != nullptr) verbs_.destroy_qp(queue_pair_);
  for (ibv_cq* queue : {sent_.queue(), received_.queue()}) {
    if (queue != nullptr) verbs_.destroy_cq(queue);
  }
  if (channel_ != nullptr) verbs_.destroy_comp_channel(channel_);
}

absl::Status RdmaQueuePair::Refused(int error, const std::string& what) const {
  return VerbsError(error, absl::StrFormat("RDMA port %s: %s", route_.PortName(), what));
}

absl::Status RdmaQueuePair::MakeQueues() {
  const ibv_device_attr& limits = route_.device->limits();
  sends_ = std::min(sends_, static_cast<uint32_t>(std::max(limits.max_qp_wr, 0)));
  channel_ = verbs_.create_comp_channel(route_.device->context());
  if (channel_ == nullptr) return Refused(errno, "no completion channel");
  const int flags = fcntl(channel_->fd, F_GETFL);
  if (flags < 0 || fcntl(channel_->fd, F_SETFL, flags | O_NONBLOCK) != 0) {
    return Refused(errno, "cannot wait for completions");
  }
  const auto make = [&](RdmaCompletions& completions, uint32_t entries) {
    completions.SetQueue(verbs_.create_cq(route_.device->context(), static_cast<int>(entries),
                                          nullptr, channel_, 0));
    return completions.queue() != nullptr;
  };
  if (!make(sent_, sends_) || !make(received_, kRdmaReceives)) {
    return Refused(errno, "no completion queue");
  }
  return absl::OkStatus();
}

absl::Status RdmaQueuePair::MakePair() {
  ibv_qp_init_attr wanted = {};
  wanted.send_cq = sent_.queue();
  wanted.recv_cq = received_.queue();
  wanted.qp_type = IBV_QPT_RC;
  wanted.cap = {.max_send_wr = sends_,
                .max_recv_wr = kRdmaReceives,
                .max_send_sge = 1,
                .max_recv_sge = 1,
                .max_inline_data = kRdmaMessageBytes};
  queue_pair_ = verbs_.create_qp(route_.device->domain(), &wanted);
  if (queue_pair_ == nullptr) {
    return Refused(errno, absl::StrFormat("no queue pair for %d requests, %d receives and messages "
                                          "of %d bytes inline",
                                          sends_, kRdmaReceives, kRdmaMessageBytes));
  }
  ibv_qp_attr attributes = {};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = route_.port;
  attributes.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  BRAID_RETURN_IF_ERROR(Modify(
      attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, "initial"));
  hello_ = {.queue_pair = queue_pair_->qp_num,
            .mtu_bytes = BytesOfMtu(route_.mtu),
            .receives = kRdmaReceives};
  std::memcpy(hello_.gid.data(), route_.gid.raw, hello_.gid.size());
  BRAID_RETURN_IF_ERROR(
      FillRandom(std::as_writable_bytes(std::span(&hello_.first_packet, size_t{1}))));
  hello_.first_packet &= 0xffffff;
  return absl::OkStatus();
}

absl::Status RdmaQueuePair::Modify(ibv_qp_attr& attributes, int mask, const char* to) {
  const int error = verbs_.modify_qp(queue_pair_, &attributes, mask);
  if (error == 0) return absl::OkStatus();
  return Refused(error, absl::StrFormat("its queue pair does not become %s", to));
}

absl::Status RdmaQueuePair::Connect(const RdmaHello& peer, uint32_t mtu_bytes) {
  ibv_qp_attr attributes = {};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = MtuOfBytes(mtu_bytes);
  attributes.dest_qp_num = peer.queue_pair;
  attributes.rq_psn = peer.first_packet;
  attributes.max_dest_rd_atomic = 1;
  attributes.ah_attr.is_global = 1;
  std::memcpy(attributes.ah_attr.grh.dgid.raw, peer.gid.data(), peer.gid.size());
  attributes.ah_attr.grh.sgid_index = route_.gid_index;
  attributes.ah_attr.grh.hop_limit = kHopLimit;
  attributes.ah_attr.port_num = route_.port;
  BRAID_RETURN_IF_ERROR(Modify(attributes,
                               IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                   IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
                               "ready to receive"));
  attributes = {};
  attributes.qp_state = IBV_QPS_RTS;
  attributes.timeout = kAnswerTime;
  attributes.retry_cnt = kRetries;
  attributes.rnr_retry = kReceiverRetries;
  attributes.sq_psn = hello_.first_packet;
  attributes.max_rd_atomic = 1;
  return Modify(attributes,
                IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                    IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
                "ready to send");
}

uint32_t RdmaQueuePair::SendsOf(const Request& request) {
  return (request.payload.empty() ? 0 : 1) + (request.message.empty() ? 0 : 1);
}

absl::Status RdmaQueuePair::Send(const Request& request) {
  ibv_sge payload = {.addr = reinterpret_cast<uintptr_t>(request.payload.data()),
                     .length = static_cast<uint32_t>(request.payload.size()),
                     .lkey = request.local_key};
  ibv_sge message = {.addr = reinterpret_cast<uintptr_t>(request.message.data()),
                     .length = static_cast<uint32_t>(request.message.size()),
                     .lkey = 0};
  const unsigned signal = request.is_signaled ? unsigned{IBV_SEND_SIGNALED} : 0u;
  ibv_send_wr send = {};
  send.wr_id = request.number;
  send.sg_list = &message;
  send.num_sge = 1;
  send.opcode = IBV_WR_SEND;
  send.send_flags = IBV_SEND_INLINE | signal;
  if (request.payload.empty()) return Post(&send);
  ibv_send_wr write = {};
  write.wr_id = request.number;
  write.sg_list = &payload;
  write.num_sge = 1;
  write.opcode = IBV_WR_RDMA_WRITE;
  write.wr.rdma.remote_addr = request.remote_address;
  write.wr.rdma.rkey = request.remote_key;
  if (request.message.empty()) {
    write.send_flags = signal;
  } else {
    write.next = &send;
  }
  return Post(&write);
}

absl::Status RdmaQueuePair::SendProbe(uint64_t number) {
  ibv_send_wr write = {};
  write.wr_id = number;
  write.opcode = IBV_WR_RDMA_WRITE;
  write.send_flags = IBV_SEND_SIGNALED;
  return Post(&write);
}

absl::Status RdmaQueuePair::Post(ibv_send_wr* first) {
  ibv_send_wr* refused = nullptr;
  const int error = ibv_post_send(queue_pair_, first, &refused);
  return error == 0 ? absl::OkStatus() : Refused(error, "a request cannot be posted");
}

std::span<const std::byte> RdmaQueuePair::Received(uint64_t slot, size_t bytes) const {
  return {memory_.get() + slot * kSlotBytes, bytes};
}

absl::Status RdmaQueuePair::PostReceive(uint64_t slot) {
  ibv_sge place = {.addr = reinterpret_cast<uintptr_t>(memory_.get() + slot * kSlotBytes),
                   .length = kSlotBytes,
                   .lkey = region_.local_key()};
  ibv_recv_wr receive = {};
  receive.wr_id = slot;
  receive.sg_list = &place;
  receive.num_sge = 1;
  ibv_recv_wr* refused = nullptr;
  const int error = ibv_post_recv(queue_pair_, &receive, &refused);
  return error == 0 ? absl::OkStatus() : Refused(error, "a receive cannot be posted");
}

std::string RdmaQueuePair::ErrorOf(const ibv_wc& failed) const {
  std::string text = verbs_.wc_status_str(failed.status);
  if (failed.status == IBV_WC_RETRY_EXC_ERR) {
    text +=
        ": nothing answers; look at the peer's process, at both ports (rdma link) and at what "
        "drops packets between them";
  }
  return text;
}

bool RdmaQueuePair::AskToBeWoken() {
  ibv_req_notify_cq(sent_.queue(), 0);
  ibv_req_notify_cq(received_.queue(), 0);
  return !sent_.HasNext() && !received_.HasNext();
}

void RdmaQueuePair::TakeWakeUps() {
  ibv_cq* queue = nullptr;
  void* context = nullptr;
  while (verbs_.get_cq_event(channel_, &queue, &context) == 0) verbs_.ack_cq_events(queue, 1);
}

}  // namespace braid
