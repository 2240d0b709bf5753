#include "comm/tcp/tcp_link.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "comm/connection_link.h"
#include "comm/landing_regions.h"
#include "comm/link_owner.h"
#include "comm/tcp/tcp_inbox.h"
#include "comm/tcp/tcp_outbox.h"
#include "glog/logging.h"

namespace braid {
namespace {

// What a closed link may still say, and how long it waits for the peer to hear it.
constexpr Nanoseconds kLinkLinger = 500 * kMillisecond;

// How often a link asks whether its peer's machine still answers.
constexpr Nanoseconds kSilenceCheck = kSecond;

// Frames that may wait for the handler before the peer has to.
constexpr size_t kMaxHeldFrames = 4096;

// The connection behind a Link, which it outlives: by what is posted, and by what it still has to
// say when the Link is gone.
//
// Closing: the outbox drops what it has not begun, says the reason and answers every Write. As soon
// as nothing of a Write's payload is needed any more, the owner is told. Then the peer gets
// kLinkLinger to hear all, while what it sends is thrown away: closing a socket with unread bytes
// would make the kernel drop what the peer has not read.
class TcpConnection : public std::enable_shared_from_this<TcpConnection>, private Lookout {
 public:
  TcpConnection(Socket socket, const TcpLinkOptions& options)
      : options_(options),
        socket_(std::move(socket)),
        outbox_(socket_),
        inbox_({.socket = &socket_, .node = options.node, .peer = options.peer},
               [this](std::span<const std::byte> frame, uint64_t payload_bytes) {
                 return Deliver(frame, payload_bytes);
               }) {
    answers_.reserve(kFirstPackets);
  }

  const TcpLinkOptions& options() const { return options_; }
  const std::string& description() const { return options_.description; }
  MemoryKey Expose(std::span<std::byte> memory) { return inbox_.regions().Expose(memory); }
  void Withdraw(const MemoryKey& key) { inbox_.regions().Withdraw(key); }

  void Start() {
    CHECK(options_.reactor->InThread());
    UpdateWatch();
    CheckSilenceLater();
  }

  void Send(std::span<const std::byte> frame) {
    Add({.kind = TcpHeader::Kind::kFrame}, frame, {}, nullptr);
  }
  void SendLater(std::span<const std::byte> frame) {
    if (!options_.reactor->InThread() || !options_.reactor->looks_out()) return Send(frame);
    CheckFrame(frame);
    if (!outbox_.AddForLater({.kind = TcpHeader::Kind::kFrame}, frame)) return;
    was_looked_at_ = false;
    if (!std::exchange(looks_out_, true)) options_.reactor->LookOut(this);
  }
  bool Write(std::span<const std::byte> payload, const MemoryKey& key, uint64_t offset,
             std::span<const std::byte> frame, Link::DoneCallback done) {
    CHECK(done) << "a Write needs a done callback";
    return Add({.kind = TcpHeader::Kind::kWrite, .token = key.token, .offset = offset}, frame,
               payload, std::move(done));
  }

  // Whether it was written, with nothing left to answer.
  bool Add(const TcpHeader& header, std::span<const std::byte> frame,
           std::span<const std::byte> payload, Link::DoneCallback done) {
    CheckFrame(frame);
    const TcpOutbox::Added added = outbox_.Add(header, frame, payload, std::move(done));
    if (added.asks_for_service) PostService();
    return added.is_written;
  }

  void SetHandler(Link::FrameHandler handler) {
    owner_.SetHandler(std::move(handler));
    options_.reactor->Post([self = shared_from_this()] {
      if (!self->DeliverHeld()) return;
      self->UpdateWatch();
    });
  }

  void OnClosed(std::function<void(absl::Status)> closed) {
    options_.reactor->Post([self = shared_from_this(), closed = std::move(closed)] {
      self->owner_.OnClosed(closed, [&self] { return self->reason(); });
    });
  }

  // Any thread. `farewell`: what the peer is told; empty: nothing, for it is gone.
  void Close(const absl::Status& reason, const std::string& farewell) {
    CHECK(!reason.ok()) << "a link closes for a reason";
    {
      MutexLock lock(reason_mutex_);
      if (is_closed_.load(std::memory_order_relaxed)) return;
      reason_ = reason;
      is_closed_.store(true, std::memory_order_release);
    }
    if (outbox_.Stop(reason, farewell)) PostService();
  }

  // The Link goes away, on its reactor's thread: nobody is called any more but the `done`s of
  // Writes. They do not wait for the peer, for the reactor may be gone soon.
  void Detach() {
    const std::string text =
        absl::StrFormat("node %d gave up the link to node %d", options_.node, options_.peer);
    Close(absl::CancelledError(text), text);
    if (std::exchange(looks_out_, false)) options_.reactor->LookAway(this);
    owner_.Leave();
    SettleSocket();
    if (outbox_.borrows_payload()) Break();
    std::vector<TcpOutbox::Answer> answers;
    outbox_.TakeAnswers(answers);
    if (answers.empty()) return;
    options_.reactor->Post([answers = std::move(answers)] { Answer(answers); });
  }

  LinkCounters counters() const {
    return {.frames_sent = outbox_.frames(),
            .bytes_sent = outbox_.bytes(),
            .frames_received = owner_.frames(),
            .bytes_received = owner_.bytes()};
  }

 private:
  bool is_closed() const { return is_closed_.load(std::memory_order_acquire); }

  static void CheckFrame(std::span<const std::byte> frame) {
    CHECK(!frame.empty() && frame.size() <= kMaxFrameBytes)
        << "a frame has 1 to " << kMaxFrameBytes << " bytes, not " << frame.size();
  }

  // Flushes what was to be sent later. Not at the first look, which follows at once: a thread that
  // has borrowed the loop may then go on with its program, whose next call takes the frame along.
  bool Look() override {
    if (!std::exchange(was_looked_at_, true)) return false;
    const std::shared_ptr<TcpConnection> self = shared_from_this();
    looks_out_ = false;
    options_.reactor->LookAway(this);
    if (is_closed()) {
      Settle();
    } else {
      Flush();
      AnswerAll();
    }
    return is_closed();  // its owner was told, and may have done anything
  }
  bool Sleep() override { return !looks_out_; }

  void PostService() {
    options_.reactor->Post([self = shared_from_this()] { self->Service(); });
  }

  // All that follows: the reactor's thread. What it calls of the owner's may destroy the Link, so
  // it comes last.

  void Service() {
    outbox_.BeginService();
    if (is_closed()) return Settle();
    Flush();
    AnswerAll();
  }

  void Ready(Reactor::Readiness readiness) {
    if (is_closed()) {
      if (readiness.readable) ThrowAwayInput();
      return Settle();
    }
    if (readiness.writable && watched_.writable) {
      Flush();
      AnswerAll();
    }
    // Unwanted input is the end of the connection, which cannot wait.
    if (readiness.readable && !is_closed()) ReadPackets();
  }

  void ReadPackets() {
    const absl::Status status = inbox_.Read();
    if (!is_closed() && !status.ok()) return Fail(status);
    UpdateWatch();
  }

  // Returns whether the link is still open.
  bool Deliver(std::span<const std::byte> frame, uint64_t payload_bytes) {
    if (is_closed()) return false;
    if (!owner_.has_handler()) {
      held_.push_back({std::vector<std::byte>(frame.begin(), frame.end()), payload_bytes});
      return true;
    }
    return DeliverHeld() && Give(frame, payload_bytes);
  }

  bool DeliverHeld() {
    if (held_.empty()) return !is_closed();
    for (const HeldFrame& held : std::exchange(held_, {})) {
      if (!Give(held.frame, held.payload_bytes)) return false;
    }
    return !is_closed();
  }

  bool Give(std::span<const std::byte> frame, uint64_t payload_bytes) {
    if (is_closed()) return false;
    owner_.Give(frame, payload_bytes);
    return !is_closed();
  }

  void Flush() {
    const TcpOutbox::Progress progress = outbox_.Flush();
    if (progress == TcpOutbox::Progress::kBroken) return FailToWrite();
    is_blocked_ =
        progress == TcpOutbox::Progress::kBlocked || progress == TcpOutbox::Progress::kMore;
    UpdateWatch();
  }

  // The peer may have said why before it went: that is what the connection still holds.
  void FailToWrite() {
    absl::Status status;
    constexpr int kMostReads = 100;
    for (int i = 0; i < kMostReads && status.ok() && !is_closed(); ++i) status = inbox_.Read();
    if (is_closed()) return Settle();
    const int error = outbox_.error();
    if (error != EPIPE && (status.ok() || absl::IsUnavailable(status))) {
      status = absl::UnavailableError(std::strerror(error));
    } else if (status.ok()) {
      status = absl::UnavailableError("connection closed by the peer");
    }
    Fail(status);
  }

  void CheckSilenceLater() {
    silence_check_ = options_.reactor->RunAfter(kSilenceCheck, [self = shared_from_this()] {
      self->silence_check_.reset();
      self->CheckSilence();
    });
  }

  // Twice in a row, for one time may be a probe that is on its way; so a second earlier.
  void CheckSilence() {
    if (is_closed()) return;
    const bool was_unanswered =
        std::exchange(is_unanswered_, IsUnanswered(socket_, kTcpSilenceSeconds - 1));
    if (was_unanswered && is_unanswered_) {
      return Fail(absl::UnavailableError(std::strerror(ETIMEDOUT)));
    }
    CheckSilenceLater();
  }

  // With a status of TcpInbox::Read.
  void Fail(const absl::Status& status) {
    const bool is_wrong = absl::IsInvalidArgument(status);
    Close(EndOfLink(options_.node, options_.peer, status),
          is_wrong ? std::string(status.message()) : "");
    is_broken_ = is_broken_ || !is_wrong;
    Settle();
  }

  // A closed link goes on: at every event until the socket is closed.
  void Settle() {
    SettleSocket();
    const bool tells = !outbox_.borrows_payload() && owner_.End();
    AnswerAll();
    if (tells) owner_.Tell(reason());
  }

  void SettleSocket() {
    if (silence_check_) options_.reactor->CancelTimer(*std::exchange(silence_check_, std::nullopt));
    if (!socket_.is_open()) return;
    if (!linger_) {
      linger_ = options_.reactor->RunAfter(kLinkLinger, [self = shared_from_this()] {
        self->Break();
        self->Settle();
      });
    }
    if (is_broken_) return Break();
    const TcpOutbox::Progress progress = outbox_.Flush();
    if (progress == TcpOutbox::Progress::kBroken) return Break();
    is_blocked_ = !outbox_.is_idle();
    if (!is_blocked_ && !std::exchange(has_said_all_, true)) {
      socket_.ShutdownWrite();
    }
    if (has_said_all_ && has_heard_all_) return Break();
    UpdateWatch();
  }

  void ThrowAwayInput() {
    if (!socket_.is_open()) return;
    std::array<std::byte, 64 << 10> scratch;
    constexpr int kMostReads = 16;
    for (int i = 0; i < kMostReads; ++i) {
      const IoResult heard = socket_.Read(scratch);
      if (heard.bytes > 0) continue;
      if (heard.error == 0) {
        has_heard_all_ = true;
      } else if (!heard.is_blocked()) {
        is_broken_ = true;
      }
      return;
    }
  }

  // Nothing more is said; closes the socket unless a thread is still writing to it: that thread
  // asks for service.
  void Break() {
    is_broken_ = true;
    outbox_.Abandon();
    if (!socket_.is_open() || !outbox_.is_idle()) return;
    options_.reactor->Unwatch(socket_.descriptor());
    socket_.Close();
    if (linger_) options_.reactor->CancelTimer(*linger_);
  }

  // An answer may lead back here: what is answered is not the member meanwhile.
  void AnswerAll() {
    std::vector<TcpOutbox::Answer> answers = std::move(answers_);
    outbox_.TakeAnswers(answers);
    Answer(answers);
    answers.clear();
    if (answers_.capacity() < answers.capacity()) answers_ = std::move(answers);
  }

  static void Answer(const std::vector<TcpOutbox::Answer>& answers) {
    for (const TcpOutbox::Answer& answer : answers) answer.done(answer.status);
  }

  absl::Status reason() const {
    MutexLock lock(reason_mutex_);
    return reason_;
  }

  void UpdateWatch() {
    if (!socket_.is_open()) return;
    const bool hears = is_closed() ? !has_heard_all_ : held_.size() < kMaxHeldFrames;
    const Reactor::Readiness wanted{.readable = hears, .writable = is_blocked_};
    if (is_watching_ && wanted.readable == watched_.readable &&
        wanted.writable == watched_.writable) {
      return;
    }
    const absl::Status status =
        is_watching_ ? options_.reactor->SetInterest(socket_.descriptor(), wanted)
                     : options_.reactor->Watch(socket_.descriptor(), wanted,
                                               [self = shared_from_this()](Reactor::Readiness now) {
                                                 self->Ready(now);
                                               });
    CHECK(status.ok()) << status;
    is_watching_ = true;
    watched_ = wanted;
  }

  struct HeldFrame {
    std::vector<std::byte> frame;
    uint64_t payload_bytes = 0;
  };

  const TcpLinkOptions options_;
  Socket socket_;
  TcpOutbox outbox_;
  TcpInbox inbox_;
  LinkOwner owner_;
  mutable Mutex reason_mutex_;
  absl::Status reason_ BRAID_GUARDED_BY(reason_mutex_);
  std::atomic<bool> is_closed_{false};

  // The reactor's thread only.
  std::vector<HeldFrame> held_;
  std::vector<TcpOutbox::Answer> answers_;  // empty: memory for AnswerAll
  bool is_broken_ = false;                  // no use in saying anything more
  bool is_blocked_ = false;
  bool has_said_all_ = false;
  bool has_heard_all_ = false;
  bool is_unanswered_ = false;
  bool looks_out_ = false;
  bool was_looked_at_ = false;
  std::optional<TimerId> silence_check_;
  std::optional<TimerId> linger_;
  bool is_watching_ = false;
  Reactor::Readiness watched_;
};

}  // namespace

std::unique_ptr<Link> MakeTcpLink(Socket socket, const TcpLinkOptions& options) {
  auto connection = std::make_shared<TcpConnection>(std::move(socket), options);
  connection->Start();
  return std::make_unique<ConnectionLink<TcpConnection>>(std::move(connection));
}

}  // namespace braid
