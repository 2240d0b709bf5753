#include "tests/comm/raw_peer.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "comm/network/network.h"
#include "glog/logging.h"
#include "gtest/gtest.h"

namespace braid {
namespace {

constexpr int kPatienceSeconds = 30;

void WaitUntilReadable(const Socket& socket) {
  pollfd ready{.fd = socket.descriptor(), .events = POLLIN};
  PCHECK(poll(&ready, 1, kPatienceSeconds * 1000) == 1);
}

}  // namespace

std::vector<std::byte> RawPacket(TcpHeader header, std::span<const std::byte> frame,
                                 std::span<const std::byte> payload) {
  const size_t head_bytes = kTcpHeaderBytes + frame.size();
  std::vector<std::byte> packet(head_bytes + payload.size());
  std::copy(frame.begin(), frame.end(), packet.begin() + kTcpHeaderBytes);
  std::copy(payload.begin(), payload.end(), packet.begin() + head_bytes);
  header.frame_bytes = static_cast<uint16_t>(frame.size());
  header.payload_bytes = payload.size();
  SealTcpPacket(header, std::span(packet).first(head_bytes));
  return packet;
}

RawPeer::RawPeer(Socket socket) : socket_(std::move(socket)) {
  const int flags = fcntl(socket_.descriptor(), F_GETFL);
  PCHECK(fcntl(socket_.descriptor(), F_SETFL, flags & ~O_NONBLOCK) == 0);
  const timeval patience{.tv_sec = kPatienceSeconds};
  PCHECK(setsockopt(socket_.descriptor(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) ==
         0);
}

RawPeer RawPeer::Dial(const SocketAddress& address) {
  auto socket = StartConnect(address);
  CHECK(socket.ok()) << socket.status();
  pollfd ready{.fd = socket->descriptor(), .events = POLLOUT};
  PCHECK(poll(&ready, 1, kPatienceSeconds * 1000) == 1);
  const absl::Status status = socket->ConnectResult();
  CHECK(status.ok()) << address.ToString() << ": " << status;
  return RawPeer(*std::move(socket));
}

RawPeer RawPeer::Accept(const Socket& listener) {
  WaitUntilReadable(listener);
  auto socket = AcceptFrom(listener);
  CHECK(socket.ok()) << socket.status();
  return RawPeer(*std::move(socket));
}

void RawPeer::Say(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(socket_.descriptor(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return;  // the other end has had enough
    bytes = bytes.subspan(sent);
  }
}

void RawPeer::Say(const NodeGreeting& greeting) { Say(EncodeNodeGreeting(greeting)); }

std::vector<std::byte> RawPeer::Hear(size_t bytes) {
  std::vector<std::byte> heard(bytes);
  size_t size = 0;
  while (size < bytes) {
    const ssize_t received = recv(socket_.descriptor(), heard.data() + size, bytes - size, 0);
    EXPECT_FALSE(received < 0 && errno == EAGAIN) << "nothing came within " << kPatienceSeconds;
    if (received <= 0) break;
    size += received;
  }
  heard.resize(size);
  return heard;
}

std::vector<std::byte> RawPeer::HearAll() {
  std::vector<std::byte> all;
  while (true) {
    const std::vector<std::byte> part = Hear(4096);
    all.insert(all.end(), part.begin(), part.end());
    if (part.size() < 4096) return all;
  }
}

bool RawPeer::HearsNothing() {
  pollfd ready{.fd = socket_.descriptor(), .events = POLLIN};
  return poll(&ready, 1, 100) == 0;
}

std::string RawPeer::HearFarewell() {
  const std::vector<std::byte> bytes = HearAll();
  if (bytes.size() < kTcpHeaderBytes) return "";
  const auto header = ReadTcpHeader(std::span(bytes).first(kTcpHeaderBytes));
  EXPECT_TRUE(header.ok()) << header.status();
  if (!header.ok() || header->kind != TcpHeader::Kind::kClose) return "";
  EXPECT_TRUE(CheckTcpChecksum(bytes).ok());
  return {reinterpret_cast<const char*>(bytes.data()) + kTcpHeaderBytes,
          bytes.size() - kTcpHeaderBytes};
}

void RawPeer::LeaveWithReset() {
  const linger now{.l_onoff = 1, .l_linger = 0};
  PCHECK(setsockopt(socket_.descriptor(), SOL_SOCKET, SO_LINGER, &now, sizeof(now)) == 0);
  socket_.Close();
}

}  // namespace braid
