// Strangers at the master's control port, over real sockets: the handshake, the frames of a control
// connection, and what join.proto says in them; and a process that meets a strange master.
#include <fcntl.h>
#include <glog/logging.h>
#include <sys/socket.h>

#include <array>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "comm/control/handshake.h"
#include "comm/control/rendezvous.h"
#include "comm/network/network.h"
#include "tests/fuzz/input_reader.h"

namespace braid::fuzz {
namespace {

Environment& RealEnvironment() {
  static Environment& environment = *MakeRealEnvironment().release();
  return environment;
}

RendezvousOptions Options(int node) {
  RendezvousOptions options;
  options.environment = &RealEnvironment();
  options.self = {.node = static_cast<uint16_t>(node),
                  .num_nodes = 3,
                  .build = "build",
                  .agreed = "a:1 cpu:1\nb:1 cpu:1\nc:1 cpu:1\n",
                  .devices = "cpu:1",
                  .host = "host"};
  options.name_of = [](int number) { return "node " + std::to_string(number); };
  return options;
}

// The stranger's own end, which may wait.
void SayAndHearAll(const Socket& socket, const std::string& bytes) {
  const int descriptor = socket.descriptor();
  fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) & ~O_NONBLOCK);
  for (size_t sent = 0; sent < bytes.size();) {
    const ssize_t more = send(descriptor, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (more <= 0) break;
    sent += static_cast<size_t>(more);
  }
  shutdown(descriptor, SHUT_WR);
  std::array<char, 4096> rest;
  while (recv(descriptor, rest.data(), rest.size(), 0) > 0) {
  }
}

// Through the handshake; closed if the other end does not like it.
Socket Greet(Socket socket, HandshakeSide side) {
  const std::unique_ptr<Reactor> reactor = RealEnvironment().StartReactor("stranger");
  const std::unique_ptr<Event> done = RealEnvironment().MakeEvent();
  Socket greeted;
  reactor->Post([&] {
    StartHandshake(std::move(socket), {.reactor = reactor.get(), .side = side, .peer = "it"},
                   [&](absl::StatusOr<Socket> result) {
                     if (result.ok()) greeted = *std::move(result);
                     done->Set();
                   });
  });
  CHECK(RealEnvironment().Await(*done, 10 * kSecond).ok());
  return greeted;
}

// Frames, most of them well-formed around any payload.
std::string Frames(InputReader& reader) {
  std::string bytes;
  while (!reader.AtEnd()) {
    const uint8_t how = reader.Byte();
    const std::string piece = TextOf(reader.Piece());
    bytes += how % 8 == 0 ? piece : ControlConnection::MakeFrame(how % 8 == 1 ? how / 8 : 1, piece);
  }
  return bytes;
}

absl::StatusOr<Socket> Listen() { return ListenOn(*SocketAddress::Parse("127.0.0.1:0")); }

// A connection that is there, on a non-blocking socket.
Socket Dial(const SocketAddress& address) {
  absl::StatusOr<Socket> socket = StartConnect(address);
  CHECK(socket.ok()) << socket.status();
  return *std::move(socket);
}

void MeetMaster(InputReader& reader, bool is_greeted) {
  absl::StatusOr<Socket> listener = Listen();
  CHECK(listener.ok()) << listener.status();
  const SocketAddress address = *listener->LocalAddress();
  std::vector<Socket> listeners;
  listeners.push_back(*std::move(listener));
  RendezvousServer server(Options(0), std::move(listeners));
  Socket socket = Dial(address);
  if (is_greeted) socket = Greet(std::move(socket), HandshakeSide::kDialer);
  if (socket.is_open()) SayAndHearAll(socket, is_greeted ? Frames(reader) : TextOf(reader.Rest()));
}

void MeetNode(InputReader& reader) {
  absl::StatusOr<Socket> listener = Listen();
  CHECK(listener.ok()) << listener.status();
  RendezvousClient client(Options(1), {*listener->LocalAddress()}, SocketAddress());
  std::thread joining([&] {
    auto connection = client.Join();
    if (connection.ok()) (*connection)->Close(absl::CancelledError("over"));
  });
  fcntl(listener->descriptor(), F_SETFL, fcntl(listener->descriptor(), F_GETFL) & ~O_NONBLOCK);
  Socket socket(accept4(listener->descriptor(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (socket.is_open()) socket = Greet(std::move(socket), HandshakeSide::kListener);
  if (socket.is_open()) SayAndHearAll(socket, Frames(reader));
  client.Abort(absl::CancelledError("over"));
  joining.join();
}

void Run(Bytes input) {
  // The header alone, whatever follows.
  if (input.size() >= ControlConnection::kHeaderBytes) {
    ControlConnection::ParseHeader(AsBytes(input), ControlConnection::kMaxJoinBytes).IgnoreError();
  }
  InputReader reader(input);
  const uint8_t how = reader.Byte();
  if (how % 4 == 3) return MeetNode(reader);
  MeetMaster(reader, how % 4 != 0);
}

}  // namespace

Target JoinTarget() { return {.name = "join", .run = Run}; }

}  // namespace braid::fuzz
