// What arrives on a node's data port: greetings, packets of a link, and payload that must land
// where the peer may write and nowhere else.
#include <glog/logging.h>
#include <sys/socket.h>

#include <memory>
#include <string>
#include <vector>

#include "comm/joining/node_greeting.h"
#include "comm/tcp/tcp_inbox.h"
#include "comm/tcp/tcp_wire.h"
#include "tests/fuzz/input_reader.h"

namespace braid::fuzz {
namespace {

constexpr size_t kRegionBytes = 256;

void RunGreeting(InputReader reader) {
  std::array<std::byte, kNodeGreetingBytes> bytes{};
  const Bytes said = reader.Take(bytes.size());
  std::copy(AsBytes(said).begin(), AsBytes(said).end(), bytes.begin());
  const NodeGreeting expected{.stage = NodeGreeting::Stage::kHello, .from = 0, .to = 1};
  const auto greeting = CheckNodeGreeting(bytes, expected);
  if (greeting.ok()) CHECK(EncodeNodeGreeting(*greeting) == bytes);
  const auto address = NodeAddress::Parse(TextOf(reader.Rest()));
  if (address.ok()) CHECK(NodeAddress::Parse(address->ToString()).ok()) << address->ToString();
}

// The peer's end of a link: says packets, sealed or not, in pieces.
class Peer {
 public:
  explicit Peer(int descriptor) : descriptor_(descriptor) {}

  void SayPacket(InputReader& reader, uint8_t how) {
    TcpHeader header;
    header.kind = static_cast<TcpHeader::Kind>(how >> 4 & 3);
    header.sequence = sequence_++;
    if (header.kind == TcpHeader::Kind::kWrite || (how & 8) != 0) {
      header.token = reader.Byte();
      header.offset = reader.Short();
      header.payload_bytes = reader.Short();
    }
    const Bytes frame = reader.Take(reader.Byte());
    header.frame_bytes = static_cast<uint16_t>(frame.size());
    std::vector<std::byte> packet(kTcpHeaderBytes);
    packet.insert(packet.end(), AsBytes(frame).begin(), AsBytes(frame).end());
    SealTcpPacket(header, packet);
    Say(packet);
    Say(AsBytes(reader.Take(header.payload_bytes)));
  }

  void Say(std::span<const std::byte> bytes) {
    if (bytes.empty()) return;
    send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }

 private:
  const int descriptor_;
  uint64_t sequence_ = 0;
};

void RunLink(InputReader reader) {
  int ends[2];
  PCHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
  const Socket mine(ends[0]);
  Socket theirs(ends[1]);
  size_t frames = 0;
  TcpInbox inbox({.socket = &mine, .node = 1, .peer = 0},
                 [&](std::span<const std::byte> frame, uint64_t) {
                   CHECK(!frame.empty() && frame.size() <= kMaxFrameBytes);
                   return ++frames < 1000;
                 });
  std::vector<std::unique_ptr<std::byte[]>> regions;
  std::vector<MemoryKey> keys;
  for (int i = 0; i < 2; ++i) {
    regions.emplace_back(new std::byte[kRegionBytes]);
    keys.push_back(inbox.regions().Expose({regions.back().get(), kRegionBytes}));
  }
  Peer peer(ends[1]);
  absl::Status status;
  while (!reader.AtEnd() && status.ok()) {
    const uint8_t how = reader.Byte();
    if ((how & 1) != 0) {
      peer.Say(AsBytes(reader.Take(reader.Byte())));
    } else {
      peer.SayPacket(reader, how);
    }
    if ((how & 2) != 0) status = inbox.Read();
    if (how == 0xfe) inbox.regions().Withdraw(keys[0]);
  }
  theirs.Close();
  // Ends with the connection, unless its reader has had enough.
  for (int i = 0; i < 100 && status.ok() && frames < 1000; ++i) status = inbox.Read();
  CHECK(!status.ok() || frames >= 1000);
}

void Run(Bytes input) {
  InputReader reader(input);
  if (reader.Byte() % 4 == 0) return RunGreeting(reader);
  RunLink(reader);
}

}  // namespace

Target TcpTarget() { return {.name = "tcp", .run = Run}; }

}  // namespace braid::fuzz
