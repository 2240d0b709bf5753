#include "comm/joining/node_greeting.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "absl/strings/str_format.h"
#include "comm/little_endian.h"

namespace braid {
namespace {

constexpr uint32_t kGreetingMagic = 0x44524247;  // "GBRD"
constexpr uint8_t kGreetingVersion = 2;

enum GreetingField : size_t {
  kMagic = 0,
  kVersion = 4,
  kStage = 5,
  kFrom = 6,
  kTo = 8,
  kZero = 10,
  kCookie = 12,
};

template <typename... Args>
absl::Status WrongGreeting(const absl::FormatSpec<Args...>& format, const Args&... args) {
  return absl::InvalidArgumentError(absl::StrFormat(format, args...));
}

// Takes the same time wherever they differ.
bool AreEqual(std::span<const std::byte> a, std::span<const std::byte> b) {
  std::byte difference{0};
  for (size_t i = 0; i < a.size(); ++i) difference |= a[i] ^ b[i];
  return difference == std::byte{0};
}

}  // namespace

std::array<std::byte, kNodeGreetingBytes> EncodeNodeGreeting(const NodeGreeting& greeting) {
  std::array<std::byte, kNodeGreetingBytes> bytes{};
  PutLittleEndian(bytes, kMagic, kGreetingMagic);
  PutLittleEndian(bytes, kVersion, kGreetingVersion);
  PutLittleEndian(bytes, kStage, static_cast<uint8_t>(greeting.stage));
  PutLittleEndian(bytes, kFrom, greeting.from);
  PutLittleEndian(bytes, kTo, greeting.to);
  std::memcpy(bytes.data() + kCookie, greeting.cookie.data(), greeting.cookie.size());
  return bytes;
}

absl::StatusOr<NodeGreeting> CheckNodeGreeting(std::span<const std::byte> bytes,
                                               const NodeGreeting& expected) {
  if (const auto magic = GetLittleEndian<uint32_t>(bytes, kMagic); magic != kGreetingMagic) {
    return WrongGreeting("the greeting begins with magic %x, must be %x", magic, kGreetingMagic);
  }
  if (const auto version = GetLittleEndian<uint8_t>(bytes, kVersion); version != kGreetingVersion) {
    return WrongGreeting("the greeting has version %d, must be %d: all nodes run the same build",
                         version, kGreetingVersion);
  }
  if (const auto zero = GetLittleEndian<uint16_t>(bytes, kZero); zero != 0) {
    return WrongGreeting("the greeting has %d where must be 0", zero);
  }
  NodeGreeting greeting;
  greeting.stage = static_cast<NodeGreeting::Stage>(bytes[kStage]);
  greeting.from = GetLittleEndian<uint16_t>(bytes, kFrom);
  greeting.to = GetLittleEndian<uint16_t>(bytes, kTo);
  std::memcpy(greeting.cookie.data(), bytes.data() + kCookie, greeting.cookie.size());
  if (greeting.stage != expected.stage) {
    return WrongGreeting("the greeting is of stage %d, must be %d",
                         static_cast<int>(greeting.stage), static_cast<int>(expected.stage));
  }
  const bool is_hello = greeting.stage == NodeGreeting::Stage::kHello;
  if (greeting.to != expected.to || greeting.from == greeting.to ||
      (!is_hello && greeting.from != expected.from)) {
    return WrongGreeting(
        "the greeting is from node %d to node %d, must be from %s to node %d", greeting.from,
        greeting.to,
        is_hello ? std::string("another node") : absl::StrFormat("node %d", expected.from),
        expected.to);
  }
  if (!AreEqual(greeting.cookie, expected.cookie)) {
    return WrongGreeting("the greeting of node %d has the wrong cookie: it is of another job",
                         greeting.from);
  }
  return greeting;
}

std::string NodeAddress::ToString() const {
  std::string text;
  for (const std::byte byte : cookie) absl::StrAppendFormat(&text, "%02x", static_cast<int>(byte));
  char separator = '@';
  for (const SocketAddress& candidate : candidates) {
    text += separator + candidate.ToString();
    separator = ',';
  }
  return text;
}

absl::StatusOr<NodeAddress> NodeAddress::Parse(std::string_view text) {
  constexpr size_t kDigits = 2 * sizeof(NodeCookie);
  // Without the cookie, which is no one's business who reads a log.
  const std::string_view shown = text.substr(std::min(kDigits, text.size()));
  const auto error = [shown](std::string_view why) {
    return WrongGreeting("'...%s' is no address of a node: %s", shown, why);
  };
  NodeAddress address;
  if (text.size() < kDigits + 1 || text[kDigits] != '@') {
    return error("it must begin with 32 hexadecimal digits and '@'");
  }
  for (size_t i = 0; i < address.cookie.size(); ++i) {
    const char* const digits = text.data() + 2 * i;
    uint8_t byte = 0;
    const auto [end, failure] = std::from_chars(digits, digits + 2, byte, 16);
    if (failure != std::errc() || end != digits + 2) {
      return error("it must begin with 32 hexadecimal digits and '@'");
    }
    address.cookie[i] = static_cast<std::byte>(byte);
  }
  std::string_view rest = text.substr(kDigits + 1);
  while (true) {
    const size_t comma = rest.find(',');
    const absl::StatusOr<SocketAddress> candidate = SocketAddress::Parse(rest.substr(0, comma));
    if (!candidate.ok()) return error(candidate.status().ToString());
    address.candidates.push_back(*candidate);
    if (comma == std::string_view::npos) return address;
    rest.remove_prefix(comma + 1);
  }
}

absl::Status SendNodeGreeting(const Socket& socket, const NodeGreeting& greeting) {
  const auto bytes = EncodeNodeGreeting(greeting);
  const IoResult sent = socket.Write(bytes);
  if (sent.bytes == bytes.size()) return absl::OkStatus();
  // A new connection has room for it.
  return absl::UnavailableError(sent.error != 0 ? sent.ErrorText() : "it takes no greeting");
}

absl::StatusOr<bool> NodeGreetingReader::Read(const Socket& socket) {
  while (received_ < bytes_.size()) {
    const IoResult received = socket.Read(std::span(bytes_).subspan(received_));
    if (received.is_blocked()) return false;
    if (received.error != 0) return absl::UnavailableError(received.ErrorText());
    if (received.bytes == 0) {
      return absl::UnavailableError("connection closed by the peer before its greeting");
    }
    received_ += received.bytes;
  }
  return true;
}

}  // namespace braid
