#include "comm/shm/shm_link.h"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_format.h"
#include "comm/connection_link.h"
#include "comm/first_packets.h"
#include "comm/landing_regions.h"
#include "comm/link_owner.h"
#include "comm/shm/shm_bell.h"
#include "comm/shm/shm_landing.h"
#include "comm/shm/shm_segment.h"
#include "comm/write_answers.h"
#include "glog/logging.h"
#include "runtime/base/mutex.h"
#include "runtime/base/ring_buffer.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

// Others get their turn after that many entries, or kReadBytes.
constexpr int kReadEntries = 1024;
// Before memory counts as such that cannot be lent.
constexpr int kKeysTried = 8;

// The connection behind a Link, which it outlives by what is posted.
//
// What finds no room waits in the outbox until the peer, who is told that somebody waits, rings.
// Closing: nothing is put or taken any more, the peer gets the reason, every Write is answered and
// then the owner is told. What was put before, the peer still takes.
class ShmConnection : public std::enable_shared_from_this<ShmConnection>, private Lookout {
 public:
  static constexpr bool kIsWithinMachine = true;

  ShmConnection(Socket socket, ShmSegment segment, const ShmLinkOptions& options)
      : options_(options),
        bell_(std::move(socket)),
        sender_(std::move(segment)),
        grants_(sender_.segment(), options.heap, [this] { return PeerEnded(); }) {
    outbox_.Reserve(kFirstPackets);
  }

  const ShmLinkOptions& options() const { return options_; }
  std::string description() const { return "shm"; }

  MemoryKey Expose(std::span<std::byte> memory) {
    const MemoryKey key = regions_.Expose(memory);
    grants_.Grant(key.token, memory, ShmAccess::kWrite);
    return key;
  }
  std::optional<MemoryKey> Lend(std::span<const std::byte> memory) {
    return Lent(memory, ShmAccess::kRead, [&] { return regions_.Lend(memory); });
  }
  std::optional<MemoryKey> LendForWriting(std::span<std::byte> memory) {
    return Lent(memory, ShmAccess::kBoth, [&] { return regions_.LendForWriting(memory); });
  }
  void Withdraw(const MemoryKey& key) {
    grants_.Revoke(key.token);
    regions_.Withdraw(key);
  }
  bool ReadLent(uint64_t token, uint64_t bytes, Link::LentReader read) {
    const PeerMemory* const peer = Direct();
    return peer != nullptr && peer->heap.Read(peer->segment, token, bytes, read);
  }
  bool WriteLent(uint64_t token, uint64_t offset, std::span<const std::byte> payload) {
    const PeerMemory* const peer = Direct();
    return peer != nullptr &&
           peer->heap.WriteLent(
               peer->segment, {.token = token, .offset = offset, .bytes = payload.size()}, payload);
  }
  bool can_read_lent() const { return direct_.load(std::memory_order_acquire) != nullptr; }

  absl::Status Start() {
    CHECK(options_.reactor->InThread());
    MutexLock lock(out_mutex_);
    // First the heap: who gets a frame, and with it a key, has mapped it.
    if (options_.heap != nullptr) {
      BRAID_RETURN_IF_ERROR(bell_.SendHeap(options_.heap->descriptor()));
    }
    BRAID_RETURN_IF_ERROR(bell_.SendMemory(sender_.segment().memory().descriptor()));
    sender_.segment().memory().ForgetDescriptor();
    return options_.reactor->Watch(
        bell_.socket().descriptor(), {.readable = true},
        [self = shared_from_this()](Reactor::Readiness) { self->Hear(); });
  }

  void Send(std::span<const std::byte> frame) { Add(Packet::Of(frame)); }

  // Whether all of it was put.
  bool Write(std::span<const std::byte> payload, const MemoryKey& key, uint64_t offset,
             std::span<const std::byte> frame, Link::DoneCallback done) {
    CHECK(done) << "a Write needs a done callback";
    Packet packet = Packet::Of(frame);
    packet.payload = payload;
    packet.token = key.token;
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
    if (!farewell.empty()) bell_.SendReason(farewell);
    options_.reactor->Post([self = shared_from_this()] { self->Settle(); });
  }

  // The Link goes away, on its reactor's thread: nobody is called any more but the `done`s of
  // Writes.
  void Detach() {
    const std::string text =
        absl::StrFormat("node %d gave up the link to node %d", options_.node, options_.peer);
    Close(absl::CancelledError(text), text);
    options_.reactor->LookAway(this);
    owner_.Leave();
    grants_.RevokeAll();
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
  struct Packet {
    std::array<std::byte, kMaxFrameBytes> frame;
    size_t frame_bytes = 0;
    // Of a Write, which has a done callback.
    std::span<const std::byte> payload;
    uint64_t token = 0;
    uint64_t offset = 0;
    Link::DoneCallback done;
    uint64_t put = 0;         // bytes of the payload
    bool has_landed = false;  // all of them are in the peer's memory

    static Packet Of(std::span<const std::byte> frame) {
      CHECK(!frame.empty() && frame.size() <= kMaxFrameBytes)
          << "a frame has 1 to " << kMaxFrameBytes << " bytes, not " << frame.size();
      Packet packet;
      std::memcpy(packet.frame.data(), frame.data(), frame.size());
      packet.frame_bytes = frame.size();
      return packet;
    }
  };

  // What any thread may use of the peer's: its keys, and the heap that they are of.
  struct PeerMemory {
    const ShmSegment& segment;
    const ShmPeerHeap& heap;
  };

  // None once the link is closed: then the peer does not wait any more for who uses its memory.
  const PeerMemory* Direct() const {
    return is_closed() ? nullptr : direct_.load(std::memory_order_acquire);
  }

  // Where the place of a key is taken by one that lasts, the next one has another.
  std::optional<MemoryKey> Lent(std::span<const std::byte> memory, ShmAccess access,
                                absl::FunctionRef<MemoryKey()> lend) {
    for (int i = 0; i < kKeysTried && grants_.Has(memory); ++i) {
      const MemoryKey key = lend();
      if (grants_.Grant(key.token, memory, access)) return key;
      regions_.Withdraw(key);
    }
    return std::nullopt;
  }

  bool is_closed() const { return is_closed_.load(std::memory_order_acquire); }

  bool Add(Packet packet) {
    MutexLock lock(out_mutex_);
    if (!reason_.ok()) {
      if (!packet.done) return false;
      answers_.Add(std::move(packet.done), reason_);
      options_.reactor->Post([self = shared_from_this()] { self->answers_.GiveAll(); });
      return false;
    }
    ++frames_sent_;
    bytes_sent_ += packet.payload.size();
    if (outbox_.empty() && Put(packet)) return true;
    outbox_.push_back(std::move(packet));
    return false;
  }

  // Whether all of it was put; else the peer rings when there is room, or the peer is wrong.
  bool Put(Packet& packet) BRAID_REQUIRES(out_mutex_) {
    const std::span<const std::byte> frame(packet.frame.data(), packet.frame_bytes);
    while (true) {
      const auto wake = [this]() BRAID_REQUIRES(out_mutex_) {
        if (sender_.MustWake()) bell_.Ring();
      };
      absl::StatusOr<bool> is_put = Land(packet);
      if (is_put.ok() && packet.has_landed) {
        is_put = sender_.PutFrame(frame, packet.payload.size());
      } else if (is_put.ok() && packet.done) {
        is_put = sender_.PutWrite({.token = packet.token,
                                   .offset = packet.offset,
                                   .payload = packet.payload,
                                   .frame = frame},
                                  packet.put, wake);
      } else if (is_put.ok()) {
        is_put = sender_.PutFrame(frame);
      }
      wake();
      if (is_put.ok() && *is_put) return true;
      const absl::StatusOr<bool> waits =
          is_put.ok() ? sender_.WaitsForRoom() : absl::StatusOr<bool>(is_put.status());
      if (!waits.ok()) {
        options_.reactor->Post([self = shared_from_this(), status = waits.status()] {
          self->Fail(absl::IsInvalidArgument(status) ? self->WrongFrame(status) : status);
        });
        return false;
      }
      if (*waits) return false;
    }
  }

  // The payload straight to where it belongs, if the peer has granted that.
  absl::StatusOr<bool> Land(Packet& packet) BRAID_REQUIRES(out_mutex_) {
    const PeerMemory* const peer = direct_.load(std::memory_order_acquire);
    if (!packet.done || packet.has_landed || packet.put > 0 || peer == nullptr) return false;
    BRAID_ASSIGN_OR_RETURN(packet.has_landed, peer->heap.Write(peer->segment,
                                                               {.token = packet.token,
                                                                .offset = packet.offset,
                                                                .bytes = packet.payload.size()},
                                                               packet.payload));
    return packet.has_landed;
  }

  // Nothing is written by the peer any more: it has closed its end, which it does not do while it
  // writes. Any thread.
  bool PeerEnded() {
    if (peer_ended_.load(std::memory_order_acquire)) return true;
    MutexLock lock(out_mutex_);
    return bell_.socket().is_open() && bell_.PeerEnded();
  }

  // All that follows: the reactor's thread. What it calls of the owner's may destroy the Link, so
  // it comes last.

  void Hear() {
    if (is_closed()) return;
    ShmBell::Heard heard = bell_.Hear();
    if (heard.memory.is_open()) {
      absl::StatusOr<ShmSegment> segment = ShmSegment::Map(std::move(heard.memory));
      if (!segment.ok()) return Fail(WrongFrame(segment.status()));
      receiver_.emplace(*std::move(segment));
    }
    if (heard.heap.is_open()) {
      const absl::Status mapped = peer_heap_.Map(std::move(heard.heap));
      if (absl::IsInvalidArgument(mapped)) return Fail(WrongFrame(mapped));
      LOG_IF(WARNING, !mapped.ok()) << "what node " << options_.node << " sends to node "
                                    << options_.peer << " is copied twice: " << mapped.message();
    }
    if (!peer_memory_.has_value() && receiver_.has_value() && peer_heap_.is_mapped()) {
      peer_memory_.emplace(PeerMemory{receiver_->segment(), peer_heap_});
      direct_.store(&*peer_memory_, std::memory_order_release);
    }
    if (heard.reason.has_value() || !heard.status.ok()) {
      peer_ended_.store(true, std::memory_order_release);
    }
    if (heard.reason.has_value()) {
      end_ = absl::CancelledError(*heard.reason);
    } else if (!heard.status.ok()) {
      end_ = absl::IsInvalidArgument(heard.status) ? WrongFrame(heard.status) : heard.status;
    }
    if (!end_.ok()) options_.reactor->Unwatch(bell_.socket().descriptor());
    Flush();
    Take();
  }

  // What waits in the outbox.
  void Flush() {
    {
      MutexLock lock(out_mutex_);
      for (; !outbox_.empty() && Put(outbox_.front()); outbox_.pop_front()) {
        Packet& packet = outbox_.front();
        answers_.Add(std::move(packet.done), absl::OkStatus());
      }
    }
    answers_.GiveAll();
  }

  bool Look() override {
    if (is_closed() || !receiver_->HasNext()) return false;
    const auto self = shared_from_this();  // what comes may end the Link
    Take();
    return true;
  }
  bool Sleep() override { return is_closed() || receiver_->Sleeps(); }

  // What the peer has put; after that, if it has ended, the end.
  void Take() {
    if (is_closed()) return;
    const bool is_wanted = owner_.has_handler();
    uint64_t bytes = 0;
    for (int entries = 0; is_wanted && receiver_.has_value(); ++entries) {
      if (entries == kReadEntries || bytes >= kReadBytes) {
        return options_.reactor->Post([self = shared_from_this()] { self->Take(); });
      }
      ShmEntry entry;
      const absl::StatusOr<bool> is_there = receiver_->Next(entry);
      if (!is_there.ok()) return Fail(WrongFrame(is_there.status()));
      if (!*is_there) {
        options_.reactor->LookOut(this);
        break;
      }
      if (const absl::Status status = Land(entry); !status.ok()) return Fail(WrongFrame(status));
      bytes += entry.piece_bytes;
      if (receiver_->Take(entry)) {
        MutexLock lock(out_mutex_);
        bell_.Ring();
      }
      if (entry.kind != ShmEntry::Kind::kPiece && !Give(entry)) return;
    }
    if (!end_.ok()) Fail(end_);
  }

  absl::Status Land(const ShmEntry& entry) {
    const bool is_frame =
        entry.kind == ShmEntry::Kind::kFrame || entry.kind == ShmEntry::Kind::kWritten;
    const LandingWrite write{
        .token = entry.token, .offset = entry.offset, .bytes = entry.payload_bytes};
    if (landed_ == 0 && is_frame) return absl::OkStatus();
    if (landed_ == 0) {
      BRAID_RETURN_IF_ERROR(regions_.Check(write, options_.node));
      landing_ = write;
    }
    if (is_frame || entry.piece_begin != landed_ || write != landing_) {
      return absl::InvalidArgumentError(
          absl::StrFormat("it begins at byte %d of a write of %d bytes, must begin at byte %d of "
                          "one of %d",
                          entry.piece_begin, write.bytes, landed_, landing_.bytes));
    }
    const std::span<const std::byte> payload = receiver_->Payload(entry);
    regions_.WithRegion(write.token, [&](std::span<std::byte> region) {
      if (region.empty() || payload.empty()) return;
      std::memcpy(region.data() + write.offset + landed_, payload.data(), payload.size());
    });
    landed_ = entry.kind == ShmEntry::Kind::kPiece ? landed_ + payload.size() : 0;
    return absl::OkStatus();
  }

  // Whether the link is still open.
  bool Give(const ShmEntry& entry) {
    owner_.Give(std::span(entry.frame, entry.frame_bytes), entry.payload_bytes);
    return !is_closed();
  }

  absl::Status WrongFrame(const absl::Status& status) const {
    return WrongFrameOf(options_.peer, status);
  }

  void Fail(const absl::Status& status) {
    Close(EndOfLink(options_.node, options_.peer, status),
          absl::IsInvalidArgument(status) || absl::IsResourceExhausted(status)
              ? std::string(status.message())
              : "");
  }

  // After Close.
  void Settle() {
    grants_.RevokeAll();
    LeaveSocket();
    const bool tells = owner_.End();
    answers_.GiveAll();
    if (tells) owner_.Tell(reason());
  }

  void LeaveSocket() {
    MutexLock lock(out_mutex_);
    if (!bell_.socket().is_open()) return;
    options_.reactor->Unwatch(bell_.socket().descriptor());
    bell_.Close();
  }

  absl::Status reason() const {
    MutexLock lock(out_mutex_);
    return reason_;
  }

  const ShmLinkOptions options_;
  mutable Mutex out_mutex_;
  ShmBell bell_;  // who sends has out_mutex_; the reactor hears
  ShmSender sender_ BRAID_GUARDED_BY(out_mutex_);
  RingBuffer<Packet> outbox_ BRAID_GUARDED_BY(out_mutex_);
  WriteAnswers answers_{kFirstPackets};
  absl::Status reason_ BRAID_GUARDED_BY(out_mutex_);
  uint64_t frames_sent_ BRAID_GUARDED_BY(out_mutex_) = 0;
  uint64_t bytes_sent_ BRAID_GUARDED_BY(out_mutex_) = 0;
  std::atomic<bool> is_closed_{false};
  LinkOwner owner_;

  LandingRegions regions_;
  ShmGrants grants_;
  std::atomic<bool> peer_ended_{false};
  std::atomic<const PeerMemory*> direct_{nullptr};  // peer_memory_, once it is there

  // The reactor's thread only.
  std::optional<ShmReceiver> receiver_;  // once the peer's memory has come
  ShmPeerHeap peer_heap_;
  std::optional<PeerMemory> peer_memory_;
  LandingWrite landing_;  // whose payload is on the way, if any of it has come:
  uint64_t landed_ = 0;   // so many bytes
  absl::Status end_;      // of the connection; what was put before it counts
};

// Whoever maps this memory could write anything into it.
absl::Status CheckUser(const Socket& socket, uint16_t peer) {
  ucred peer_process = {};
  socklen_t length = sizeof(peer_process);
  if (getsockopt(socket.descriptor(), SOL_SOCKET, SO_PEERCRED, &peer_process, &length) != 0) {
    return absl::ErrnoToStatus(errno, "cannot find out whose process the peer is");
  }
  if (peer_process.uid == geteuid()) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrFormat(
      "node %d is a process of user %d and this one of user %d, who share no memory", peer,
      peer_process.uid, geteuid()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Link>> MakeShmLink(Socket socket, const ShmLinkOptions& options) {
  BRAID_RETURN_IF_ERROR(CheckUser(socket, options.peer));
  BRAID_ASSIGN_OR_RETURN(ShmSegment segment, ShmSegment::Make());
  auto connection = std::make_shared<ShmConnection>(std::move(socket), std::move(segment), options);
  BRAID_RETURN_IF_ERROR(connection->Start());
  return std::make_unique<ConnectionLink<ShmConnection>>(std::move(connection));
}

}  // namespace braid
