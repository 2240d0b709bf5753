#include "comm/tcp/tcp_wire.h"

#include "absl/strings/str_format.h"
#include "comm/little_endian.h"
#include "comm/transport.h"
#include "runtime/base/crc32c.h"

namespace braid {
namespace {

constexpr uint32_t kPacketMagic = 0x44524251;  // "QBRD"
constexpr uint8_t kWireVersion = 1;

// Where the fields of a packet's header lie; the checksum covers all that follows it.
enum PacketField : size_t {
  kPacketChecksum = 0,
  kPacketMagicAt = 4,
  kPacketSequence = 8,
  kPacketToken = 16,
  kPacketOffset = 24,
  kPacketPayloadBytes = 32,
  kPacketFrameBytes = 40,
  kPacketKind = 42,
  kPacketVersion = 43,
};

template <typename... Args>
absl::Status WrongPacket(const absl::FormatSpec<Args...>& format, const Args&... args) {
  return absl::InvalidArgumentError(absl::StrFormat(format, args...));
}

uint32_t ChecksumOf(std::span<const std::byte> packet) {
  return Crc32c(packet.data() + kPacketMagicAt, packet.size() - kPacketMagicAt);
}

}  // namespace

void SealTcpPacket(const TcpHeader& header, std::span<std::byte> packet) {
  PutLittleEndian(packet, kPacketMagicAt, kPacketMagic);
  PutLittleEndian(packet, kPacketSequence, header.sequence);
  PutLittleEndian(packet, kPacketToken, header.token);
  PutLittleEndian(packet, kPacketOffset, header.offset);
  PutLittleEndian(packet, kPacketPayloadBytes, header.payload_bytes);
  PutLittleEndian(packet, kPacketFrameBytes, header.frame_bytes);
  PutLittleEndian(packet, kPacketKind, static_cast<uint8_t>(header.kind));
  PutLittleEndian(packet, kPacketVersion, kWireVersion);
  PutLittleEndian(packet, kPacketChecksum, ChecksumOf(packet));
}

absl::StatusOr<TcpHeader> ReadTcpHeader(std::span<const std::byte> bytes) {
  if (const auto magic = GetLittleEndian<uint32_t>(bytes, kPacketMagicAt); magic != kPacketMagic) {
    return WrongPacket("it begins with magic %x, must be %x", magic, kPacketMagic);
  }
  if (const auto version = GetLittleEndian<uint8_t>(bytes, kPacketVersion);
      version != kWireVersion) {
    return WrongPacket("it has version %d, must be %d", version, kWireVersion);
  }
  TcpHeader header;
  header.sequence = GetLittleEndian<uint64_t>(bytes, kPacketSequence);
  header.token = GetLittleEndian<uint64_t>(bytes, kPacketToken);
  header.offset = GetLittleEndian<uint64_t>(bytes, kPacketOffset);
  header.payload_bytes = GetLittleEndian<uint64_t>(bytes, kPacketPayloadBytes);
  header.frame_bytes = GetLittleEndian<uint16_t>(bytes, kPacketFrameBytes);
  header.kind = static_cast<TcpHeader::Kind>(bytes[kPacketKind]);
  const bool is_close = header.kind == TcpHeader::Kind::kClose;
  if (!is_close && header.kind != TcpHeader::Kind::kFrame &&
      header.kind != TcpHeader::Kind::kWrite) {
    return WrongPacket("it has kind %d, must be 1 to 3", static_cast<int>(header.kind));
  }
  const size_t least = is_close ? 0 : 1, most = is_close ? kMaxCloseText : kMaxFrameBytes;
  if (header.frame_bytes < least || header.frame_bytes > most) {
    return WrongPacket("its frame has %d bytes, must be %d to %d", header.frame_bytes, least, most);
  }
  if (header.kind != TcpHeader::Kind::kWrite &&
      (header.token != 0 || header.offset != 0 || header.payload_bytes != 0)) {
    return WrongPacket("it is no write and has key %d, offset %d and %d bytes, must be 0",
                       header.token, header.offset, header.payload_bytes);
  }
  return header;
}

absl::Status CheckTcpChecksum(std::span<const std::byte> packet) {
  const auto said = GetLittleEndian<uint32_t>(packet, kPacketChecksum);
  if (const uint32_t computed = ChecksumOf(packet); said != computed) {
    return WrongPacket("its checksum is %08x, computed is %08x", said, computed);
  }
  return absl::OkStatus();
}

}  // namespace braid
