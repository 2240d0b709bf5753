#include "comm/control/control_connection.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "comm/little_endian.h"
#include "glog/logging.h"
#include "runtime/base/crc32c.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

constexpr uint32_t kMessageMagic = 0x43445242;  // "BRDC"
constexpr size_t kReadBytes = size_t{256} << 10;
constexpr size_t kReadsPerEvent = 16;
constexpr size_t kMaxReasonBytes = 4096;
// How long a closed connection is kept for what is not yet sent, and for the peer's own end: a
// socket that is closed earlier throws away what the peer has not read.
constexpr Nanoseconds kControlLinger = 2 * kSecond;

std::span<std::byte> BytesOf(std::string& text) {
  return std::as_writable_bytes(std::span(text.data(), text.size()));
}

// Of everything after the checksum's own place.
uint32_t ChecksumOf(uint8_t kind, std::string_view payload) {
  const uint8_t prefix = kind;
  return CombineCrc32c(Crc32c(&prefix, 1), Crc32c(payload.data(), payload.size()), payload.size());
}

}  // namespace

std::string ControlConnection::MakeFrame(uint8_t kind, std::string_view payload) {
  std::string frame(kHeaderBytes, '\0');
  const std::span<std::byte> header = BytesOf(frame);
  PutLittleEndian(header, 0, kMessageMagic);
  PutLittleEndian(header, 4, uint32_t{kind});
  PutLittleEndian(header, 8, static_cast<uint32_t>(payload.size()));
  PutLittleEndian(header, 12, ChecksumOf(kind, payload));
  frame.append(payload);
  return frame;
}

absl::StatusOr<ControlConnection::Header> ControlConnection::ParseHeader(
    std::span<const std::byte> bytes, size_t max_bytes) {
  const auto magic = GetLittleEndian<uint32_t>(bytes, 0);
  if (magic != kMessageMagic) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "a control frame begins with %08x, not with %08x: what speaks there is not Braid", magic,
        kMessageMagic));
  }
  const auto kind = GetLittleEndian<uint32_t>(bytes, 4);
  if (kind < kMessage || kind > kClosing) {
    return absl::InvalidArgumentError(
        absl::StrFormat("a control frame of kind %d; kinds are 1 to %d", kind, int{kClosing}));
  }
  const auto size = GetLittleEndian<uint32_t>(bytes, 8);
  const size_t limit = kind == kMessage ? max_bytes : kind == kClosing ? kMaxReasonBytes : 0;
  if (size > limit) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "a control frame of kind %d has %d bytes; at most %d are taken", kind, size, limit));
  }
  return Header{static_cast<uint8_t>(kind), size, GetLittleEndian<uint32_t>(bytes, 12)};
}

std::shared_ptr<ControlConnection> ControlConnection::Make(Socket socket,
                                                           ControlConnectionOptions options) {
  CHECK(options.reactor != nullptr && options.reactor->InThread());
  std::shared_ptr<ControlConnection> connection(
      new ControlConnection(std::move(socket), std::move(options)));
  connection->Start();
  return connection;
}

ControlConnection::ControlConnection(Socket socket, ControlConnectionOptions options)
    : options_(std::move(options)), socket_(std::move(socket)) {}

ControlConnection::~ControlConnection() = default;

void ControlConnection::Start() {
  last_sent_ = last_received_ = last_confirmed_ = options_.reactor->Now();
  Watch();
  Beat();
}

// ---- the reactor's side -------------------------------------------------------------------------

void ControlConnection::Watch() {
  if (!socket_.is_open()) return;
  watches_writable_ = !out_.empty();
  const absl::Status status = options_.reactor->Watch(
      socket_.descriptor(), {.readable = true, .writable = watches_writable_},
      [self = shared_from_this()](Reactor::Readiness readiness) { self->OnReady(readiness); });
  if (!status.ok()) End(status);
}

void ControlConnection::Beat() {
  if (!socket_.is_open() || is_closing_) return;
  const Nanoseconds now = options_.reactor->Now();
  // This process did not run, nor did its whole machine, maybe: what came meanwhile is unread, and
  // the peer gets the time to say something.
  if (beat_due_ > 0 && now - beat_due_ >= options_.heartbeat) {
    const Nanoseconds earliest = now - options_.heartbeat_limit + 2 * options_.heartbeat;
    last_received_ = std::max(last_received_, earliest);
    last_confirmed_ = std::max(last_confirmed_, earliest);
  }
  NoteConfirmed();
  if (now - std::min(last_received_, last_confirmed_) >= options_.heartbeat_limit) {
    // Without a word to the peer: it would not read it, and is told by whoever still reaches it.
    return End(LostBy(ETIMEDOUT));
  }
  if (now - last_sent_ >= options_.heartbeat) {
    {
      MutexLock lock(mutex_);
      ++counters_.heartbeats_sent;
    }
    SendHeartbeat();
    if (!socket_.is_open()) return;
  }
  const Nanoseconds next =
      std::min(last_sent_ + options_.heartbeat,
               std::min(last_received_, last_confirmed_) + options_.heartbeat_limit) -
      options_.reactor->Now();
  beat_due_ = options_.reactor->Now() + std::max<Nanoseconds>(next, kMillisecond);
  beat_timer_ = options_.reactor->RunAfter(std::max<Nanoseconds>(next, kMillisecond),
                                           [self = shared_from_this()] {
                                             self->beat_timer_.reset();
                                             self->Beat();
                                           });
}

void ControlConnection::NoteConfirmed() {
  const size_t unconfirmed = socket_.UnconfirmedBytes();
  uint64_t sent = 0;
  {
    MutexLock lock(mutex_);
    sent = counters_.bytes_sent;
  }
  const uint64_t confirmed = sent - std::min<uint64_t>(sent, unconfirmed);
  if (unconfirmed > 0 && confirmed <= confirmed_bytes_) return;
  confirmed_bytes_ = confirmed;
  last_confirmed_ = options_.reactor->Now();
}

// Past the queue if nothing waits, so that a run's every second takes no memory.
void ControlConnection::SendHeartbeat() {
  size_t sent = 0;
  if (out_.empty()) {
    const IoResult written =
        socket_.Write(std::as_bytes(std::span(heartbeat_.data(), heartbeat_.size())));
    if (!written.is_blocked() && written.error != 0) return End(LostBy(written.error));
    sent = written.bytes;
    if (sent > 0) last_sent_ = options_.reactor->Now();
    MutexLock lock(mutex_);
    counters_.bytes_sent += sent;
  }
  if (sent == heartbeat_.size()) return;
  Queue(heartbeat_.substr(sent));
  Write();
}

absl::Status ControlConnection::LostBy(int error) const {
  switch (error) {
    case 0:
    case ECONNRESET:  // by a process that ends with something unread
    case EPIPE:
      return absl::UnavailableError(
          "the connection was closed without a word: its process has ended");
    case ETIMEDOUT:
    case EHOSTUNREACH:
    case ENETUNREACH: {
      const Nanoseconds now = options_.reactor->Now();
      const double limit = static_cast<double>(options_.heartbeat_limit) / kSecond;
      // Its heartbeats still come.
      if (now - last_received_ < options_.heartbeat_limit / 2) {
        return absl::UnavailableError(absl::StrFormat(
            "nothing that is sent to it is confirmed (limit %.1f s): the network between drops "
            "packets that way",
            limit));
      }
      return absl::UnavailableError(absl::StrFormat(
          "no heartbeat for %.1f s (limit %.1f s): its process is stopped or overloaded, or the "
          "network between drops packets",
          static_cast<double>(now - last_received_) / kSecond, limit));
    }
    default:
      return absl::UnavailableError(std::strerror(error));
  }
}

void ControlConnection::OnReady(Reactor::Readiness readiness) {
  const auto self = shared_from_this();  // the watch may go away in here
  if (readiness.readable) Read();
  if (readiness.writable && socket_.is_open() && !out_.empty()) Write();
}

void ControlConnection::Read() {
  for (size_t i = 0; i < kReadsPerEvent && socket_.is_open(); ++i) {
    if (in_begin_ > 0 && in_begin_ == in_.size()) {
      in_.clear();
      in_begin_ = 0;
    }
    const size_t before = in_.size();
    in_.resize(before + kReadBytes);
    const IoResult got = socket_.Read(BytesOf(in_).subspan(before));
    in_.resize(before + got.bytes);
    if (got.is_blocked()) return;
    if (got.error != 0 || got.bytes == 0) return End(LostBy(got.error));
    last_received_ = options_.reactor->Now();
    {
      MutexLock lock(mutex_);
      counters_.bytes_received += got.bytes;
      counters_.heard = last_received_;
    }
    TakeFrames();
    if (got.bytes < kReadBytes) return;
  }
}

void ControlConnection::TakeFrames() {
  while (socket_.is_open() && in_.size() - in_begin_ >= kHeaderBytes) {
    const std::span<const std::byte> bytes =
        std::as_bytes(std::span(in_.data() + in_begin_, in_.size() - in_begin_));
    const absl::StatusOr<Header> header = ParseHeader(bytes, max_bytes_);
    if (!header.ok()) return Close(header.status());
    if (bytes.size() < kHeaderBytes + header->bytes) {
      // The rest of a big plan: no growing by doubling, no moving twice.
      in_.erase(0, in_begin_);
      in_begin_ = 0;
      in_.reserve(kHeaderBytes + header->bytes + kReadBytes);
      return;
    }
    std::string payload = in_.substr(in_begin_ + kHeaderBytes, header->bytes);
    in_begin_ += kHeaderBytes + header->bytes;
    if (const uint32_t checksum = ChecksumOf(header->kind, payload); checksum != header->checksum) {
      return Close(absl::DataLossError(
          absl::StrFormat("a control frame of %d bytes has checksum %08x, its header says %08x",
                          header->bytes, checksum, header->checksum)));
    }
    switch (header->kind) {
      case kHeartbeat: {
        MutexLock lock(mutex_);
        ++counters_.heartbeats_received;
        break;
      }
      case kMessage: {
        {
          MutexLock lock(mutex_);
          ++counters_.messages_received;
        }
        if (!is_closing_) Deliver(std::move(payload), absl::OkStatus());
        break;
      }
      case kClosing:
        return End(absl::UnavailableError(payload));
    }
  }
}

void ControlConnection::Queue(std::string frame) { out_.push_back(std::move(frame)); }

void ControlConnection::Write() {
  while (!out_.empty()) {
    const std::string& front = out_.front();
    const IoResult sent =
        socket_.Write(std::as_bytes(std::span(front.data(), front.size()).subspan(out_begin_)));
    if (sent.is_blocked()) break;
    if (sent.error != 0) return End(LostBy(sent.error));
    last_sent_ = options_.reactor->Now();
    {
      MutexLock lock(mutex_);
      counters_.bytes_sent += sent.bytes;
    }
    out_begin_ += sent.bytes;
    if (out_begin_ == front.size()) {
      out_.pop_front();
      out_begin_ = 0;
    }
  }
  if (out_.empty() && is_closing_ && !is_writing_ended_) {
    is_writing_ended_ = true;
    socket_.ShutdownWrite();
  }
  if (watches_writable_ != !out_.empty()) Watch();
}

void ControlConnection::End(const absl::Status& reason) {
  CloseSocket();
  if (is_closing_) return;  // its owner has been told
  is_closing_ = true;
  Deliver(std::nullopt, reason);
}

void ControlConnection::CloseSocket() {
  if (!socket_.is_open()) return;
  for (std::optional<TimerId>* timer : {&beat_timer_, &linger_timer_}) {
    if (timer->has_value()) options_.reactor->CancelTimer(**timer);
    timer->reset();
  }
  options_.reactor->Unwatch(socket_.descriptor());
  socket_.Close();
  out_.clear();
  if (options_.on_socket_closed) options_.on_socket_closed();
}

void ControlConnection::Send(std::string message) {
  options_.reactor->Post([self = shared_from_this(), message = std::move(message)] {
    if (!self->socket_.is_open() || self->is_closing_) return;
    {
      MutexLock lock(self->mutex_);
      ++self->counters_.messages_sent;
    }
    const bool was_idle = self->out_.empty();
    self->Queue(MakeFrame(kMessage, message));
    if (was_idle) self->Write();
  });
}

void ControlConnection::Close(absl::Status reason) {
  CHECK(!reason.ok()) << "a connection closes for a reason";
  options_.reactor->Post([self = shared_from_this(), reason = std::move(reason)] {
    if (!self->socket_.is_open() || self->is_closing_) return;
    self->is_closing_ = true;
    self->Deliver(std::nullopt, reason);
    self->Queue(MakeFrame(kClosing, std::string(reason.message().substr(0, kMaxReasonBytes))));
    self->linger_timer_ = self->options_.reactor->RunAfter(kControlLinger, [self] {
      self->linger_timer_.reset();
      self->CloseSocket();
    });
    self->Write();
  });
}

void ControlConnection::AllowPlans() {
  options_.reactor->Post([self = shared_from_this()] { self->max_bytes_ = kMaxMessageBytes; });
}

ControlCounters ControlConnection::counters() const {
  MutexLock lock(mutex_);
  return counters_;
}

// ---- the owner's side ---------------------------------------------------------------------------

void ControlConnection::SetHandlers(Reactor* owner, MessageHandler on_message,
                                    ClosedHandler on_closed) {
  MutexLock lock(mutex_);
  owner_ = owner;
  ++generation_;
  is_scheduled_ = false;
  on_message_ = std::make_shared<MessageHandler>(std::move(on_message));
  on_closed_ = std::make_shared<ClosedHandler>(std::move(on_closed));
  Schedule();
}

void ControlConnection::DropHandlers() {
  MutexLock lock(mutex_);
  owner_ = nullptr;
  ++generation_;
  on_message_.reset();
  on_closed_.reset();
}

void ControlConnection::Deliver(std::optional<std::string> message, const absl::Status& closed) {
  MutexLock lock(mutex_);
  if (message.has_value()) {
    messages_.push_back(*std::move(message));
  } else {
    closed_ = closed;
  }
  Schedule();
}

// One event a batch.
void ControlConnection::Schedule() {
  if (owner_ == nullptr || is_scheduled_ || (messages_.empty() && !closed_.has_value())) return;
  is_scheduled_ = true;
  owner_->Post([self = shared_from_this(), generation = generation_] { self->Drain(generation); });
}

void ControlConnection::Drain(uint64_t generation) {
  for (;;) {
    std::optional<std::string> message;
    std::shared_ptr<MessageHandler> on_message;
    std::shared_ptr<ClosedHandler> on_closed;
    absl::Status closed;
    {
      MutexLock lock(mutex_);
      if (generation != generation_) return;
      on_message = on_message_;
      on_closed = on_closed_;
      if (!messages_.empty()) {
        message = std::move(messages_.front());
        messages_.pop_front();
      } else {
        is_scheduled_ = false;
        if (!closed_.has_value() || is_close_told_) return;
        is_close_told_ = true;
        closed = *closed_;
      }
    }
    if (!message.has_value()) return (*on_closed)(closed);
    (*on_message)(*std::move(message));
  }
}

namespace {

class TcpControlChannel final : public ControlChannel {
 public:
  TcpControlChannel(std::shared_ptr<ControlConnection> connection, Reactor* owner)
      : connection_(std::move(connection)), owner_(owner) {}
  ~TcpControlChannel() override {
    connection_->DropHandlers();
    connection_->Close(absl::CancelledError("the session has ended"));
  }

  void SetHandlers(MessageHandler on_message, ClosedHandler on_closed) override {
    connection_->SetHandlers(owner_, std::move(on_message), std::move(on_closed));
  }
  void Send(std::string message) override { connection_->Send(std::move(message)); }
  void Close(absl::Status reason) override { connection_->Close(std::move(reason)); }

 private:
  const std::shared_ptr<ControlConnection> connection_;
  Reactor* const owner_;
};

}  // namespace

std::unique_ptr<ControlChannel> MakeTcpControlChannel(std::shared_ptr<ControlConnection> connection,
                                                      Reactor* owner) {
  return std::make_unique<TcpControlChannel>(std::move(connection), owner);
}

}  // namespace braid
