#include "comm/rdma/rdma_link.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "comm/connection_link.h"
#include "comm/first_packets.h"
#include "comm/link_owner.h"
#include "comm/rdma/rdma_inbox.h"
#include "comm/rdma/rdma_landing.h"
#include "comm/rdma/rdma_queue_pair.h"
#include "comm/rdma/rdma_sender.h"
#include "comm/rdma/rdma_wire.h"
#include "comm/write_answers.h"
#include "glog/logging.h"
#include "runtime/base/descriptor.h"
#include "runtime/base/mutex.h"
#include "runtime/base/ring_buffer.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

// Others get their turn after that many messages.
constexpr int kMessagesAtOnce = 1024;
// How often a silent link asks whether its peer's device still answers.
constexpr Nanoseconds kProbeTime = kSecond;
// A queue pair has failed: so long the peer may take to say why, over the connection.
constexpr Nanoseconds kNewsTime = 2 * kSecond;
// As of tcp: so long the peer has to read the reason of a close.
constexpr Nanoseconds kNotesLinger = 500 * kMillisecond;

// The connection behind a Link. It outlives the Link for as long as callbacks that were posted to
// the reactor hold it.
//
// What finds no room waits in the outbox until requests complete or the peer gives credits, which
// the reactor sees. Closing: the peer gets the reason over the connection, and the queue pair goes,
// so that no memory is touched any more; then every Write is answered and the owner is told.
class RdmaConnection : public std::enable_shared_from_this<RdmaConnection>, private Lookout {
 public:
  RdmaConnection(Socket socket, std::unique_ptr<RdmaQueuePair> pair, Descriptor events,
                 const RdmaLinkOptions& options)
      : options_(options),
        device_(*options.route.device),
        notes_(std::move(socket)),
        events_(std::move(events)),
        pair_(std::move(pair)),
        sender_(*pair_, owed_),
        landing_(options.route.device),
        inbox_(*pair_, owed_, landing_, options.node) {
    outbox_.Reserve(kFirstPackets);
  }

  const RdmaLinkOptions& options() const { return options_; }
  std::string description() const {
    const uint32_t mtu = path_mtu_.load(std::memory_order_relaxed);
    return absl::StrFormat("rdma %s%s", options_.route.ToString(),
                           mtu == 0 ? "" : absl::StrFormat(", path MTU %d", mtu));
  }

  absl::StatusOr<MemoryKey> Expose(std::span<std::byte> memory) { return landing_.Expose(memory); }
  void Withdraw(const MemoryKey& key) { landing_.Withdraw(key); }

  absl::Status Start() {
    CHECK(options_.reactor->InThread());
    {
      MutexLock lock(out_mutex_);
      BRAID_RETURN_IF_ERROR(notes_.SendHello(pair_->hello()));
    }
    BRAID_RETURN_IF_ERROR(Watch(notes_.socket().descriptor(), &RdmaConnection::Hear));
    BRAID_RETURN_IF_ERROR(Watch(pair_->descriptor(), &RdmaConnection::WakeUp));
    BRAID_RETURN_IF_ERROR(Watch(events_.number(), &RdmaConnection::TakeEvents));
    device_.ListenToEvents(
        pair_->handle(), options_.route.port,
        [weak = weak_from_this(), reactor = options_.reactor](const RdmaEvent& event) {
          if (const auto self = weak.lock()) {
            reactor->Post([self, event] { self->OnEvent(event); });
          }
        });
    options_.reactor->LookOut(this);
    return absl::OkStatus();
  }

  void Send(std::span<const std::byte> frame) { Add(PacketOf(frame)); }

  // Whether the payload may be reused.
  bool Write(std::span<const std::byte> payload, const MemoryKey& key, uint64_t offset,
             std::span<const std::byte> frame, Link::DoneCallback done) {
    CHECK(done) << "a Write needs a done callback";
    RdmaPacket packet = PacketOf(frame);
    packet.payload = payload;
    packet.key = key;
    packet.offset = offset;
    packet.done = std::move(done);
    return Add(std::move(packet));
  }

  void SetHandler(Link::FrameHandler handler) {
    owner_.SetHandler(std::move(handler));
    options_.reactor->Post([self = shared_from_this()] { self->Take(); });
  }

  void OnClosed(std::function<void(absl::Status)> closed) {
    options_.reactor->Post([self = shared_from_this(), closed = std::move(closed)] {
      self->owner_.OnClosed(closed, [&self] { return self->reason(); });
    });
  }

  // Any thread. `farewell`: what the peer is told; empty: nothing, for it is gone.
  void Close(const absl::Status& reason, std::string_view farewell) {
    CHECK(!reason.ok()) << "a link closes for a reason";
    MutexLock lock(out_mutex_);
    if (!reason_.ok()) return;
    reason_ = reason;
    is_closed_.store(true, std::memory_order_release);
    for (; !outbox_.empty(); outbox_.pop_front()) {
      answers_.Add(std::move(outbox_.front().done), reason);
    }
    if (!farewell.empty()) notes_.SendReason(farewell);
    notes_.EndOfNotes();
    options_.reactor->Post([self = shared_from_this()] { self->Settle(); });
  }

  // The Link goes away, on its reactor's thread: nobody is called any more but the `done`s of
  // Writes. They do not wait for the peer, for the reactor may be gone soon.
  void Detach() {
    const std::string text =
        absl::StrFormat("node %d gave up the link to node %d", options_.node, options_.peer);
    Close(absl::CancelledError(text), text);
    owner_.Leave();
    LeavePair();
    if (notes_.socket().is_open()) notes_.ThrowAway();
    LeaveSocket();
    answers_.PostAll(*options_.reactor);
  }

  LinkCounters counters() const {
    MutexLock lock(out_mutex_);
    return {.frames_sent = frames_sent_,
            .bytes_sent = bytes_sent_,
            .frames_received = owner_.frames(),
            .bytes_received = owner_.bytes()};
  }

 private:
  static RdmaPacket PacketOf(std::span<const std::byte> frame) {
    CHECK(!frame.empty() && frame.size() <= kMaxFrameBytes)
        << "a frame has 1 to " << kMaxFrameBytes << " bytes, not " << frame.size();
    RdmaPacket packet;
    std::memcpy(packet.frame.data(), frame.data(), frame.size());
    packet.frame_bytes = frame.size();
    return packet;
  }

  bool is_closed() const { return is_closed_.load(std::memory_order_acquire); }

  bool Add(RdmaPacket packet) {
    MutexLock lock(out_mutex_);
    if (!reason_.ok()) {
      if (!packet.done) return false;
      answers_.Add(std::move(packet.done), reason_);
      options_.reactor->Post([self = shared_from_this()] { self->answers_.GiveAll(); });
      return false;
    }
    ++frames_sent_;
    bytes_sent_ += packet.payload.size();
    if (outbox_.empty()) {
      const auto progress = sender_.Post(packet);
      if (!progress.ok()) {
        options_.reactor->Post(
            [self = shared_from_this(), status = progress.status()] { self->Fail(status); });
      } else if (*progress != RdmaSender::Progress::kWaits) {
        return *progress == RdmaSender::Progress::kDone;
      }
    }
    outbox_.push_back(std::move(packet));
    return false;
  }

  // All that follows: the reactor's thread. What it calls of the owner's may destroy the Link, so
  // it comes last.

  absl::Status Watch(int descriptor, void (RdmaConnection::*then)()) {
    return options_.reactor->Watch(
        descriptor, {.readable = true},
        [self = shared_from_this(), then](Reactor::Readiness) { ((*self).*then)(); });
  }

  void Hear() {
    if (is_closed()) {
      if (!notes_.ThrowAway()) LeaveSocket();
      return;
    }
    TakeNotes();
    Take();
  }

  void TakeNotes() {
    RdmaNotes::Heard heard = notes_.Hear();
    if (heard.hello.has_value()) {
      if (const absl::Status status = Join(*heard.hello); !status.ok()) return End(status);
    }
    if (heard.is_ready) {
      MutexLock lock(out_mutex_);
      sender_.Begin(peer_receives_);
      must_flush_ = true;
    }
    if (heard.refused.has_value()) return End(RefusedByThis(*heard.refused));
    if (heard.reason.has_value()) return End(absl::CancelledError(*heard.reason));
    if (!heard.status.ok()) {
      End(absl::IsInvalidArgument(heard.status) ? WrongFrame(heard.status) : heard.status);
    }
  }

  // The connection's; what has arrived before it counts.
  void End(const absl::Status& status) {
    if (!end_.ok()) return;
    end_ = status;
    options_.reactor->Unwatch(notes_.socket().descriptor());
  }

  absl::Status Join(const RdmaHello& hello) {
    const uint32_t own = pair_->hello().mtu_bytes;
    const uint32_t mtu = std::min(own, hello.mtu_bytes);
    LOG_IF(INFO, own != hello.mtu_bytes)
        << "the RDMA port of node " << options_.node << " has an MTU of " << own
        << " and that of node " << options_.peer << " one of " << hello.mtu_bytes
        << ": packets have " << mtu << " bytes";
    peer_receives_ = hello.receives;
    BRAID_RETURN_IF_ERROR(pair_->Connect(hello, mtu));
    path_mtu_.store(mtu, std::memory_order_relaxed);
    VLOG(1) << "node " << options_.node << " <-> node " << options_.peer << ": " << description();
    ProbeLater();
    MutexLock lock(out_mutex_);
    return notes_.SendReady();
  }

  // What the peer asked this node's device for, and it refused.
  absl::Status RefusedByThis(const LandingWrite& write) const {
    const absl::Status wrong = landing_.Check(write, options_.node);
    if (!wrong.ok()) return WrongFrame(wrong);
    if (landing_.IsWithdrawn(write.token)) {
      return absl::CancelledError(absl::StrFormat(
          "node %d wrote %d bytes at offset %d of key %d, which node %d had withdrawn",
          options_.peer, write.bytes, write.offset, write.token, options_.node));
    }
    return WrongFrame(absl::InvalidArgumentError(
        absl::StrFormat("RDMA port %s refused to be written %d bytes at offset %d of key %d",
                        options_.route.PortName(), write.bytes, write.offset, write.token)));
  }

  void WakeUp() {
    if (is_closed()) return;
    pair_->TakeWakeUps();
    options_.reactor->LookOut(this);
  }

  bool Look() override {
    if (is_closed() || is_failed_) return false;
    if (!pair_->sent().HasNext() && !pair_->received().HasNext()) return false;
    const auto self = shared_from_this();  // what comes may end the Link
    Take();
    return true;
  }
  bool Sleep() override { return is_closed() || is_failed_ || pair_->AskToBeWoken(); }

  // What has completed and arrived; after that, if the connection has ended, the end.
  void Take() {
    if (is_closed()) return;
    if (!is_failed_ && TakeSent()) TakeMessages();
    if (is_closed()) return;
    if (!end_.ok()) return Fail(end_);
    Flush();
  }

  // Whether the queue pair goes on.
  bool TakeSent() {
    while (const ibv_wc* const sent = pair_->sent().Next()) {
      if (sent->status != IBV_WC_SUCCESS) return FailToSend(*sent), false;
      MutexLock lock(out_mutex_);
      sender_.Complete(sent->wr_id, answers_);
      must_flush_ = true;
    }
    return true;
  }

  void TakeMessages() {
    if (owner_.has_handler()) {
      for (const RdmaInbox::Arrived& held : inbox_.TakeHeld()) {
        if (!Give(held)) return;
      }
    }
    for (int count = 0; count < kMessagesAtOnce; ++count) {
      const ibv_wc* const received = pair_->received().Next();
      if (received == nullptr) {
        options_.reactor->LookOut(this);
        return;
      }
      if (received->status != IBV_WC_SUCCESS) return AwaitNews(pair_->ErrorOf(*received));
      if (!TakeMessage(*received)) return;
    }
    options_.reactor->Post([self = shared_from_this()] { self->Take(); });
  }

  // Whether the link is still open.
  bool TakeMessage(const ibv_wc& received) {
    absl::StatusOr<RdmaInbox::Arrived> arrived = inbox_.Read(received);
    if (arrived.ok() && arrived->credits > 0) {
      MutexLock lock(out_mutex_);
      if (const absl::Status wrong = sender_.Grant(arrived->credits); !wrong.ok()) arrived = wrong;
      must_flush_ = true;
    }
    if (!arrived.ok()) return Fail(WrongFrame(arrived.status())), false;
    const bool is_held = arrived->frame_bytes > 0 && !owner_.has_handler();
    if (!is_held) return Give(*arrived);
    inbox_.Hold(*arrived);
    return true;
  }

  bool Give(const RdmaInbox::Arrived& arrived) {
    std::array<std::byte, kMaxFrameBytes> frame;
    absl::Status status = inbox_.Take(arrived, frame);
    if (status.ok() && RdmaSender::OwesMany(owed_)) {
      MutexLock lock(out_mutex_);
      if (reason_.ok()) status = sender_.PostCredits();
    }
    if (!status.ok()) return Fail(status), false;
    if (arrived.frame_bytes == 0) return !is_closed();
    owner_.Give(std::span(frame).first(arrived.frame_bytes), arrived.payload_bytes);
    return !is_closed();
  }

  // What waits in the outbox, and credits.
  void Flush() {
    absl::Status status;
    {
      MutexLock lock(out_mutex_);
      if (!reason_.ok()) return;
      if (std::exchange(must_flush_, false)) status = FlushOutbox();
      if (status.ok()) status = sender_.PostCredits();
    }
    if (!status.ok()) return Fail(status);
    answers_.GiveAll();
  }

  absl::Status FlushOutbox() BRAID_REQUIRES(out_mutex_) {
    for (; !outbox_.empty(); outbox_.pop_front()) {
      RdmaPacket& packet = outbox_.front();
      BRAID_ASSIGN_OR_RETURN(const RdmaSender::Progress progress, sender_.Post(packet));
      if (progress == RdmaSender::Progress::kWaits) return absl::OkStatus();
      answers_.Add(std::move(packet.done), absl::OkStatus());
    }
    return absl::OkStatus();
  }

  void FailToSend(const ibv_wc& sent) {
    const std::string what = pair_->ErrorOf(sent);
    if (sent.status == IBV_WC_REM_ACCESS_ERR) {
      LandingWrite write;
      {
        MutexLock lock(out_mutex_);
        write = sender_.WriteOf(sent.wr_id);
        if (reason_.ok()) notes_.SendRefused(write);
      }
      return Fail(absl::UnavailableError(
          absl::StrFormat("node %d has no such memory for %d bytes at offset %d of key %d (%s)",
                          options_.peer, write.bytes, write.offset, write.token, what)));
    }
    if (sent.status != IBV_WC_RETRY_EXC_ERR) return AwaitNews(what);
    // The peer may have said why before it went.
    if (end_.ok()) TakeNotes();
    Fail(end_.ok() ? Broken(what) : end_);
  }

  // What the device says of a queue pair or a port. A port's own event may come late.
  absl::Status Broken(const std::string& what) const {
    return absl::UnavailableError(absl::StrFormat(
        "RDMA port %s: %s%s", options_.route.PortName(), what,
        options_.route.is_up() ? "" : "; the port is down: look at its interface (ip link)"));
  }

  // The queue pair has failed. The peer may say why, or the device: a port that went down.
  void AwaitNews(const std::string& what) {
    if (std::exchange(is_failed_, true) || is_closed()) return;
    news_ = options_.reactor->RunAfter(kNewsTime, [self = shared_from_this(), what] {
      self->news_.reset();
      if (!self->is_closed()) self->Fail(self->Broken(what));
    });
  }

  void TakeEvents() { device_.TakeEvents(); }

  void OnEvent(const RdmaEvent& event) {
    if (is_closed()) return;
    if (event.is_refusal) return AwaitNews(event.text);
    Fail(Broken(event.text));
  }

  void ProbeLater() {
    probe_ = options_.reactor->RunAfter(kProbeTime, [self = shared_from_this()] {
      self->probe_.reset();
      self->Probe();
    });
  }

  void Probe() {
    if (is_closed()) return;
    absl::Status status;
    {
      MutexLock lock(out_mutex_);
      status = sender_.PostProbe();
    }
    if (!status.ok()) return Fail(status);
    ProbeLater();
  }

  absl::Status WrongFrame(const absl::Status& status) const {
    return WrongFrameOf(options_.peer, status);
  }

  // With a status of the connection, of the device, or INVALID_ARGUMENT: the peer was wrong. The
  // peer is told what is not known to it.
  void Fail(const absl::Status& status) {
    const bool is_end = !end_.ok() && !absl::IsInvalidArgument(status);
    const absl::Status reason = EndOfLink(options_.node, options_.peer, status);
    Close(reason, is_end ? "" : std::string(status.message()));
    Settle();
  }

  // After Close.
  void Settle() {
    LeavePair();
    if (notes_.socket().is_open() && !linger_.has_value()) {
      if (!end_.ok()) {
        LeaveSocket();
      } else {
        linger_ = options_.reactor->RunAfter(kNotesLinger, [self = shared_from_this()] {
          self->linger_.reset();
          self->LeaveSocket();
        });
      }
    }
    const bool tells = owner_.End();
    answers_.GiveAll();
    if (tells) owner_.Tell(reason());
  }

  // After Close: no memory is touched any more.
  void LeavePair() {
    options_.reactor->LookAway(this);
    for (std::optional<TimerId>* timer : {&probe_, &news_}) {
      if (timer->has_value()) options_.reactor->CancelTimer(**timer);
      timer->reset();
    }
    if (pair_ == nullptr) return;
    device_.LeaveEvents(pair_->handle());
    options_.reactor->Unwatch(events_.number());
    options_.reactor->Unwatch(pair_->descriptor());
    pair_.reset();
    landing_.WithdrawAll();
    MutexLock lock(out_mutex_);
    sender_.Abandon(reason_, answers_);
  }

  void LeaveSocket() {
    if (linger_.has_value()) options_.reactor->CancelTimer(*std::exchange(linger_, std::nullopt));
    MutexLock lock(out_mutex_);
    if (!notes_.socket().is_open()) return;
    options_.reactor->Unwatch(notes_.socket().descriptor());
    notes_.Close();
  }

  absl::Status reason() const {
    MutexLock lock(out_mutex_);
    return reason_;
  }

  const RdmaLinkOptions options_;
  RdmaDevice& device_;
  mutable Mutex out_mutex_;
  RdmaNotes notes_;  // who writes has out_mutex_; the reactor hears
  const Descriptor events_;
  // Who posts has out_mutex_, and the link is open; the reactor polls, and takes it away.
  std::unique_ptr<RdmaQueuePair> pair_;
  std::atomic<uint32_t> owed_{0};  // receives that were posted again and not given back
  RdmaSender sender_ BRAID_GUARDED_BY(out_mutex_);
  RingBuffer<RdmaPacket> outbox_ BRAID_GUARDED_BY(out_mutex_);
  bool must_flush_ BRAID_GUARDED_BY(out_mutex_) = false;  // there may be room by now
  WriteAnswers answers_{kFirstPackets};
  absl::Status reason_ BRAID_GUARDED_BY(out_mutex_);
  uint64_t frames_sent_ BRAID_GUARDED_BY(out_mutex_) = 0;
  uint64_t bytes_sent_ BRAID_GUARDED_BY(out_mutex_) = 0;
  std::atomic<bool> is_closed_{false};
  LinkOwner owner_;
  std::atomic<uint32_t> path_mtu_{0};  // 0: not known yet
  RdmaLanding landing_;

  // The reactor's thread only.
  RdmaInbox inbox_;
  uint32_t peer_receives_ = 0;
  bool is_failed_ = false;  // the queue pair
  absl::Status end_;        // of the connection; what had arrived before it counts
  std::optional<TimerId> probe_, news_, linger_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Link>> MakeRdmaLink(Socket socket, const RdmaLinkOptions& options) {
  BRAID_ASSIGN_OR_RETURN(std::unique_ptr<RdmaQueuePair> pair, RdmaQueuePair::Make(options.route));
  BRAID_ASSIGN_OR_RETURN(Descriptor events, options.route.device->EventDescriptor());
  auto connection = std::make_shared<RdmaConnection>(std::move(socket), std::move(pair),
                                                     std::move(events), options);
  if (const absl::Status status = connection->Start(); !status.ok()) {
    connection->Detach();
    return status;
  }
  return std::make_unique<ConnectionLink<RdmaConnection>>(std::move(connection));
}

}  // namespace braid
