#include "comm/rdma/rdma_wire.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_format.h"
#include "comm/little_endian.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

// Where the fields of a message's head lie.
enum RdmaField : size_t {
  kRdmaKind = 0,
  kRdmaFrameBytes = 1,
  kRdmaCredits = 2,
  kRdmaSequence = 4,
  kRdmaToken = 8,
  kRdmaOffset = 16,
  kRdmaPayloadBytes = 24,
};

constexpr uint32_t kRdmaMagic = 0x4D445242;  // "BRDM"
constexpr uint32_t kRdmaVersion = 1;
constexpr uint32_t kMostOf24Bits = (1 << 24) - 1;

enum Note : uint8_t { kHelloNote = 1, kReadyNote = 2, kRefusedNote = 3, kReasonNote = 4 };
// kind, 0, the body's bytes in 16 bits
constexpr size_t kNoteHeadBytes = 4;
constexpr size_t kRefusedBytes = 24;

template <typename... Args>
absl::Status WrongRdma(const absl::FormatSpec<Args...>& format, const Args&... args) {
  return absl::InvalidArgumentError(absl::StrFormat(format, args...));
}

// Of a note of this kind.
size_t MostBodyBytes(uint8_t kind) {
  if (kind == kHelloNote) return kRdmaHelloBytes;
  if (kind == kRefusedNote) return kRefusedBytes;
  return kind == kReasonNote ? kMaxRdmaReason : 0;
}

}  // namespace

void PutRdmaHead(const RdmaMessage& message, std::span<std::byte> bytes) {
  PutLittleEndian(bytes, kRdmaKind, static_cast<uint8_t>(message.kind));
  PutLittleEndian(bytes, kRdmaFrameBytes, message.frame_bytes);
  PutLittleEndian(bytes, kRdmaCredits, message.credits);
  PutLittleEndian(bytes, kRdmaSequence, message.sequence);
  PutLittleEndian(bytes, kRdmaToken, message.write.token);
  PutLittleEndian(bytes, kRdmaOffset, message.write.offset);
  PutLittleEndian(bytes, kRdmaPayloadBytes, message.write.bytes);
}

absl::StatusOr<RdmaMessage> ReadRdmaMessage(std::span<const std::byte> bytes) {
  if (bytes.size() < kRdmaHeadBytes) {
    return WrongRdma("it has %d bytes, must have at least %d", bytes.size(), kRdmaHeadBytes);
  }
  RdmaMessage message;
  message.kind = static_cast<RdmaMessage::Kind>(bytes[kRdmaKind]);
  message.frame_bytes = GetLittleEndian<uint8_t>(bytes, kRdmaFrameBytes);
  message.credits = GetLittleEndian<uint16_t>(bytes, kRdmaCredits);
  message.sequence = GetLittleEndian<uint32_t>(bytes, kRdmaSequence);
  message.write = {.token = GetLittleEndian<uint64_t>(bytes, kRdmaToken),
                   .offset = GetLittleEndian<uint64_t>(bytes, kRdmaOffset),
                   .bytes = GetLittleEndian<uint64_t>(bytes, kRdmaPayloadBytes)};
  const bool is_credits = message.kind == RdmaMessage::Kind::kCredits;
  if (!is_credits && message.kind != RdmaMessage::Kind::kFrame &&
      message.kind != RdmaMessage::Kind::kWrite) {
    return WrongRdma("it has kind %d, must be 1 to 3", static_cast<int>(message.kind));
  }
  if (is_credits ? message.frame_bytes != 0
                 : message.frame_bytes < 1 || message.frame_bytes > kMaxFrameBytes) {
    return WrongRdma("its frame has %d bytes, must be %s", message.frame_bytes,
                     is_credits ? "0" : "1 to 64");
  }
  if (bytes.size() != kRdmaHeadBytes + message.frame_bytes) {
    return WrongRdma("it has %d bytes, must be %d", bytes.size(),
                     kRdmaHeadBytes + message.frame_bytes);
  }
  if (message.kind != RdmaMessage::Kind::kWrite && message.write != LandingWrite()) {
    return WrongRdma("it is no write and has key %d, offset %d and %d bytes, must be 0",
                     message.write.token, message.write.offset, message.write.bytes);
  }
  return message;
}

std::array<std::byte, kRdmaHelloBytes> EncodeRdmaHello(const RdmaHello& hello) {
  std::array<std::byte, kRdmaHelloBytes> bytes{};
  PutLittleEndian(bytes, 0, kRdmaMagic);
  PutLittleEndian(bytes, 4, kRdmaVersion);
  PutLittleEndian(bytes, 8, hello.queue_pair);
  PutLittleEndian(bytes, 12, hello.first_packet);
  PutLittleEndian(bytes, 16, hello.mtu_bytes);
  PutLittleEndian(bytes, 20, hello.receives);
  std::ranges::copy(hello.gid, bytes.begin() + 24);
  return bytes;
}

absl::StatusOr<RdmaHello> ReadRdmaHello(std::span<const std::byte> bytes) {
  if (bytes.size() != kRdmaHelloBytes) {
    return WrongRdma("its hello has %d bytes, must be %d", bytes.size(), kRdmaHelloBytes);
  }
  if (const auto magic = GetLittleEndian<uint32_t>(bytes, 0); magic != kRdmaMagic) {
    return WrongRdma("its hello begins with %08x, must begin with %08x", magic, kRdmaMagic);
  }
  if (const auto version = GetLittleEndian<uint32_t>(bytes, 4); version != kRdmaVersion) {
    return WrongRdma("its hello has version %d, must be %d", version, kRdmaVersion);
  }
  RdmaHello hello;
  hello.queue_pair = GetLittleEndian<uint32_t>(bytes, 8);
  hello.first_packet = GetLittleEndian<uint32_t>(bytes, 12);
  hello.mtu_bytes = GetLittleEndian<uint32_t>(bytes, 16);
  hello.receives = GetLittleEndian<uint32_t>(bytes, 20);
  std::ranges::copy(bytes.subspan(24), hello.gid.begin());
  if (hello.queue_pair > kMostOf24Bits || hello.first_packet > kMostOf24Bits) {
    return WrongRdma("its queue pair has number %d and first packet %d, must be at most %d",
                     hello.queue_pair, hello.first_packet, kMostOf24Bits);
  }
  const uint32_t mtu = hello.mtu_bytes;
  if (mtu < 256 || mtu > 4096 || (mtu & (mtu - 1)) != 0) {
    return WrongRdma("its port has an MTU of %d, must be 256, 512, 1024, 2048 or 4096", mtu);
  }
  if (hello.receives < kLeastRdmaReceives || hello.receives > kMostRdmaReceives) {
    return WrongRdma("it can take %d messages, must be from %d to %d", hello.receives,
                     kLeastRdmaReceives, kMostRdmaReceives);
  }
  return hello;
}

absl::Status RdmaNotes::Send(uint8_t kind, std::span<const std::byte> body) const {
  std::vector<std::byte> note(kNoteHeadBytes + body.size());
  note[0] = static_cast<std::byte>(kind);
  PutLittleEndian(note, 2, static_cast<uint16_t>(body.size()));
  std::ranges::copy(body, note.begin() + kNoteHeadBytes);
  const IoResult sent = socket_.Write(note);
  if (sent.bytes == note.size()) return absl::OkStatus();
  return absl::UnavailableError(sent.error != 0 ? sent.ErrorText() : "the socket is full");
}

absl::Status RdmaNotes::SendHello(const RdmaHello& hello) const {
  return Send(kHelloNote, EncodeRdmaHello(hello));
}

absl::Status RdmaNotes::SendReady() const { return Send(kReadyNote, {}); }

void RdmaNotes::SendRefused(const LandingWrite& write) const {
  std::array<std::byte, kRefusedBytes> body{};
  PutLittleEndian(body, 0, write.token);
  PutLittleEndian(body, 8, write.offset);
  PutLittleEndian(body, 16, write.bytes);
  Send(kRefusedNote, body).IgnoreError();
}

void RdmaNotes::SendReason(std::string_view reason) const {
  Send(kReasonNote, std::as_bytes(std::span(reason.substr(0, kMaxRdmaReason)))).IgnoreError();
}

RdmaNotes::Heard RdmaNotes::Hear() {
  Heard heard;
  while (heard.status.ok() && !heard.reason.has_value()) {
    std::array<std::byte, 2048> bytes;
    const IoResult received = socket_.Read(bytes);
    if (received.is_blocked()) return heard;
    if (received.bytes == 0) {
      heard.status = absl::UnavailableError(received.error != 0 ? received.ErrorText()
                                                                : "connection closed by the peer");
      return heard;
    }
    unread_.insert(unread_.end(), bytes.begin(),
                   bytes.begin() + static_cast<ptrdiff_t>(received.bytes));
    heard.status = Read(heard);
  }
  return heard;
}

absl::Status RdmaNotes::Read(Heard& heard) {
  size_t at = 0;
  absl::Status status;
  while (unread_.size() - at >= kNoteHeadBytes && status.ok() && !heard.reason.has_value()) {
    const std::span<const std::byte> rest = std::span<const std::byte>(unread_).subspan(at);
    const auto kind = static_cast<uint8_t>(rest[0]);
    const auto bytes = GetLittleEndian<uint16_t>(rest, 2);
    if (rest[1] != std::byte{0} || bytes > MostBodyBytes(kind)) {
      status = WrongRdma("its note of kind %d has %d bytes, must have at most %d", kind, bytes,
                         MostBodyBytes(kind));
      break;
    }
    if (rest.size() < kNoteHeadBytes + bytes) break;
    status = Take(kind, rest.subspan(kNoteHeadBytes, bytes), heard);
    at += kNoteHeadBytes + bytes;
  }
  unread_.erase(unread_.begin(), unread_.begin() + static_cast<ptrdiff_t>(at));
  return status;
}

absl::Status RdmaNotes::Take(uint8_t kind, std::span<const std::byte> body, Heard& heard) {
  if (kind == kHelloNote && !std::exchange(has_hello_, true)) {
    BRAID_ASSIGN_OR_RETURN(heard.hello, ReadRdmaHello(body));
  } else if (kind == kReadyNote && has_hello_ && !std::exchange(has_ready_, true)) {
    heard.is_ready = true;
  } else if (kind == kRefusedNote && has_ready_ && body.size() == kRefusedBytes) {
    heard.refused = {.token = GetLittleEndian<uint64_t>(body, 0),
                     .offset = GetLittleEndian<uint64_t>(body, 8),
                     .bytes = GetLittleEndian<uint64_t>(body, 16)};
  } else if (kind == kReasonNote) {
    heard.reason = std::string(reinterpret_cast<const char*>(body.data()), body.size());
  } else {
    return WrongRdma(
        "its note has kind %d and %d bytes, must be 1 and then 2, once, 3 with %d "
        "bytes, or 4",
        kind, body.size(), kRefusedBytes);
  }
  return absl::OkStatus();
}

bool RdmaNotes::ThrowAway() const {
  while (true) {
    std::array<std::byte, 2048> bytes;
    const IoResult received = socket_.Read(bytes);
    if (received.bytes == 0) return received.is_blocked();
  }
}

}  // namespace braid
