// Processes become nodes: every check at joining, on both sides, over real sockets on loopback.
#include "comm/control/rendezvous.h"

#include <sys/socket.h>

#include <thread>

#include "comm/control/handshake.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/comm/comm_cluster.h"

namespace braid {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

std::string MessageOf(const absl::Status& status) { return std::string(status.message()); }

// A master and clients in one process. Clients join on threads of their own, as processes would.
class RendezvousTest : public ::testing::Test {
 protected:
  RendezvousOptions Options(int node, int num_nodes) {
    RendezvousOptions options;
    options.environment = environment_.get();
    options.self = {.node = static_cast<uint16_t>(node),
                    .num_nodes = num_nodes,
                    .build = "100-cafe",
                    .agreed = "10.0.0.1:9988 cpu:1\n10.0.0.2:9988 cpu:1\n",
                    .devices = "cpu:1",
                    .host = "host" + std::to_string(node),
                    .pid = 100u + static_cast<uint32_t>(node)};
    options.secret = "secret";
    options.join_timeout = 20 * kSecond;
    options.name_of = [](int n) { return "node " + std::to_string(n) + " (there)"; };
    return options;
  }

  void StartServer(RendezvousOptions options) {
    auto listener = ListenOn(*SocketAddress::Parse("127.0.0.1:0"));
    ASSERT_TRUE(listener.ok()) << listener.status();
    address_ = *listener->LocalAddress();
    std::vector<Socket> listeners;
    listeners.push_back(*std::move(listener));
    server_ = std::make_unique<RendezvousServer>(std::move(options), std::move(listeners));
  }

  std::unique_ptr<RendezvousClient> MakeClient(RendezvousOptions options) {
    return std::make_unique<RendezvousClient>(std::move(options), std::vector{address_},
                                              SocketAddress());
  }

  // What a client's Join and the server's Join say.
  struct Outcome {
    absl::Status client;
    absl::Status server;
  };
  Outcome JoinOne(RendezvousOptions client_options) {
    const auto client = MakeClient(std::move(client_options));
    Outcome outcome;
    std::thread joining([&] { outcome.client = client->Join().status(); });
    outcome.server = server_->Join().status();
    joining.join();
    return outcome;
  }

  Socket Dial() {
    const int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT_EQ(connect(descriptor, address_.get(), address_.length()), 0);
    return Socket(descriptor);
  }

  std::unique_ptr<Environment> environment_ = MakeRealEnvironment();
  SocketAddress address_;
  std::unique_ptr<RendezvousServer> server_;
};

TEST_F(RendezvousTest, EverybodyJoinsAndTalks) {
  StartServer(Options(0, 3));
  auto reactor = environment_->StartReactor("nodes");
  std::unique_ptr<RendezvousClient> clients[2];
  std::unique_ptr<ControlChannel> channels[2];
  std::vector<std::thread> joining;
  for (int i : {0, 1}) {
    clients[i] = MakeClient(Options(i + 1, 3));
    joining.emplace_back([&, i] {
      auto connection = clients[i]->Join();
      ASSERT_TRUE(connection.ok()) << connection.status();
      channels[i] = MakeTcpControlChannel(*std::move(connection), reactor.get());
    });
  }
  auto nodes = server_->Join();
  for (std::thread& thread : joining) thread.join();
  ASSERT_TRUE(nodes.ok()) << nodes.status();
  ASSERT_EQ(nodes->size(), 2u);
  auto master = environment_->StartReactor("master");
  const std::string big(5 << 20, 'x');  // a plan
  for (int i : {0, 1}) {
    EXPECT_EQ((*nodes)[i].identity.node, i + 1);
    EXPECT_EQ((*nodes)[i].identity.host, "host" + std::to_string(i + 1));
    auto channel = MakeTcpControlChannel((*nodes)[i].connection, master.get());
    channel->Send("first");
    channel->Send(big);
    auto received = environment_->MakeEvent();
    auto closed = environment_->MakeEvent();
    std::vector<std::string> messages;
    absl::Status reason;
    channels[i]->SetHandlers(
        [&](std::string message) {
          messages.push_back(std::move(message));
          if (messages.size() == 2) received->Set();
        },
        [&](absl::Status status) {
          reason = status;
          closed->Set();
        });
    ASSERT_TRUE(environment_->Await(*received, kTestTimeout).ok());
    EXPECT_EQ(messages[0], "first");
    EXPECT_EQ(messages[1], big);
    channel->Close(absl::AbortedError("the test is over"));
    ASSERT_TRUE(environment_->Await(*closed, kTestTimeout).ok());
    EXPECT_THAT(MessageOf(reason), HasSubstr("the test is over"));
    RunOn(*environment_, *master, [&] { channel.reset(); });
    RunOn(*environment_, *reactor, [&, i] { channels[i].reset(); });
  }
  nodes->clear();
  master.reset();
  reactor.reset();
}

TEST_F(RendezvousTest, AMissingNodeIsNamedToEverybody) {
  auto options = Options(0, 3);
  options.join_timeout = 300 * kMillisecond;
  StartServer(options);
  const Outcome outcome = JoinOne(Options(1, 3));
  EXPECT_EQ(outcome.server.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(MessageOf(outcome.server),
              AllOf(HasSubstr("node 2 (there)"), HasSubstr("0.3 s"), HasSubstr("--join_timeout")));
  EXPECT_EQ(MessageOf(outcome.client), MessageOf(outcome.server));
}

TEST_F(RendezvousTest, AMissingMasterIsNamedWithTheSystemsAnswer) {
  StartServer(Options(0, 2));
  server_.reset();  // the port is closed again
  auto options = Options(1, 2);
  options.join_timeout = 200 * kMillisecond;
  const absl::Status status = MakeClient(options)->Join().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(MessageOf(status), AllOf(HasSubstr("node 1"), HasSubstr(address_.ToString()),
                                       HasSubstr("Connection refused")));
}

struct Difference {
  const char* name;
  void (*change)(RendezvousOptions& options);
  std::vector<const char*> words;
};

TEST_F(RendezvousTest, WhatMustBeEqualIsComparedAndNamedOnBothSides) {
  const Difference differences[] = {
      {"binary",
       [](RendezvousOptions& options) { options.self.build = "101-beef"; },
       {"another binary", "101-beef", "100-cafe", "node 1", "host1"}},
      {"node list",
       [](RendezvousOptions& options) {
         options.self.agreed = "10.0.0.1:9988 cpu:1\n10.0.0.3:9988 cpu:1\n";
       },
       {"another node list", "10.0.0.2", "10.0.0.3", "node 1"}},
      {"number of nodes",
       [](RendezvousOptions& options) { options.self.num_nodes = 3; },
       {"counts 3 nodes and the master 2"}},
      {"rank too big",
       [](RendezvousOptions& options) { options.self.node = 2; },
       {"node rank 2", "1 to 1"}},
      {"rank of the master",
       [](RendezvousOptions& options) { options.self.node = 0; },
       {"node rank 0", "0 is the master"}},
  };
  for (const Difference& difference : differences) {
    SCOPED_TRACE(difference.name);
    StartServer(Options(0, 2));
    auto options = Options(1, 2);
    difference.change(options);
    const Outcome outcome = JoinOne(options);
    for (const char* word : difference.words) {
      EXPECT_THAT(MessageOf(outcome.server), HasSubstr(word));
    }
    EXPECT_EQ(outcome.client, outcome.server);
  }
}

TEST_F(RendezvousTest, ARankTakenTwiceNamesBothProcesses) {
  StartServer(Options(0, 3));
  const auto first = MakeClient(Options(1, 3));
  auto twin_options = Options(1, 3);
  twin_options.self.host = "twin";
  twin_options.self.pid = 777;
  const auto second = MakeClient(twin_options);
  absl::Status statuses[2];
  std::thread joining([&] { statuses[0] = first->Join().status(); });
  std::thread twin([&] { statuses[1] = second->Join().status(); });
  const absl::Status status = server_->Join().status();
  joining.join();
  twin.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  for (const absl::Status& each : {status, statuses[0], statuses[1]}) {
    EXPECT_THAT(MessageOf(each),
                AllOf(HasSubstr("node rank 1 is taken twice"), HasSubstr("777 on twin"),
                      HasSubstr("101 on host1"), HasSubstr("--node_rank")));
  }
}

// Also where the master comes first and ends as soon as it knows.
TEST_F(RendezvousTest, WhoComesAfterTheMistakeIsToldToo) {
  StartServer(Options(0, 3));
  absl::Status statuses[3];
  std::thread master([&] {
    statuses[0] = server_->Join().status();
    server_ = nullptr;
  });
  const auto wrong = MakeClient(Options(2, 4));
  statuses[2] = wrong->Join().status();
  const auto late = MakeClient(Options(1, 3));
  statuses[1] = late->Join().status();
  master.join();
  for (const absl::Status& status : statuses) {
    EXPECT_THAT(MessageOf(status), HasSubstr("counts 4 nodes and the master 3"));
    EXPECT_EQ(status, statuses[0]);
  }
}

TEST_F(RendezvousTest, SecretsMustBeEqual) {
  struct Case {
    const char* secret;
    const char* message;
  };
  for (const Case& c : {Case{"other", "another shared secret"}, Case{"", "has a shared secret"}}) {
    auto options = Options(0, 2);
    options.join_timeout = kSecond;
    StartServer(options);
    auto client = Options(1, 2);
    client.secret = c.secret;
    const Outcome outcome = JoinOne(client);
    EXPECT_EQ(outcome.client.code(), absl::StatusCode::kUnauthenticated);
    EXPECT_THAT(MessageOf(outcome.client),
                AllOf(HasSubstr(c.message), HasSubstr("BRAID_AUTH_TOKEN")));
    // A stranger does not end the start, but is told about.
    EXPECT_EQ(outcome.server.code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_THAT(MessageOf(outcome.server), HasSubstr("last refused: 127.0.0.1"));
  }
}

// What has no secret does not get as far as a parser, and disturbs nobody.
TEST_F(RendezvousTest, GarbageAndScansDoNoHarm) {
  StartServer(Options(0, 2));
  std::vector<Socket> strangers;
  for (int i = 0; i < 40; ++i) {
    Socket stranger = Dial();
    const std::string garbage(i * 7, static_cast<char>('A' + i % 5));
    if (i % 3 != 0) {
      EXPECT_GE(send(stranger.descriptor(), garbage.data(), garbage.size(), MSG_NOSIGNAL), -1);
    }
    if (i % 2 == 0) strangers.push_back(std::move(stranger));  // others leave at once
  }
  const Outcome outcome = JoinOne(Options(1, 2));
  EXPECT_TRUE(outcome.client.ok()) << outcome.client;
  EXPECT_TRUE(outcome.server.ok()) << outcome.server;
}

TEST_F(RendezvousTest, WhatIsNotBraidIsSaidSo) {
  auto listener = ListenOn(*SocketAddress::Parse("127.0.0.1:0"));
  ASSERT_TRUE(listener.ok());
  address_ = *listener->LocalAddress();
  const auto client = MakeClient(Options(1, 2));
  absl::Status status;
  std::thread joining([&] { status = client->Join().status(); });
  Socket peer;
  while (!peer.is_open()) {
    if (auto accepted = AcceptFrom(*listener); accepted.ok()) peer = *std::move(accepted);
  }
  const std::string banner = "SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3 and enough to fill it\r\n";
  ASSERT_EQ(send(peer.descriptor(), banner.data(), banner.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(banner.size()));
  joining.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(MessageOf(status), AllOf(HasSubstr("is not Braid"), HasSubstr("SSH-2.0-")));
}

TEST_F(RendezvousTest, AJobThatRunsIsNotDisturbedByALatecomer) {
  StartServer(Options(0, 2));
  const auto client = MakeClient(Options(1, 2));
  absl::StatusOr<std::shared_ptr<ControlConnection>> connection;
  std::thread joining([&] { connection = client->Join(); });
  auto nodes = server_->Join();
  joining.join();
  ASSERT_TRUE(nodes.ok() && connection.ok());
  const auto late = MakeClient(Options(1, 2));
  EXPECT_THAT(MessageOf(late->Join().status()), HasSubstr("node rank 1 is taken twice"));
  server_->SetStatusSource([](std::function<void(std::string)> done) { done("stepping\n"); });
  const auto text = MakeClient(Options(0, 2))->AskStatus();
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(*text, "stepping\n");
  EXPECT_EQ((*nodes)[0].connection->counters().messages_sent, 1u) << "Complete, and no more";
  (*connection)->Close(absl::CancelledError("over"));
  (*nodes)[0].connection->Close(absl::CancelledError("over"));
  nodes->clear();
}

TEST_F(RendezvousTest, ANodeThatLeavesWhileJoiningEndsTheStart) {
  StartServer(Options(0, 3));
  absl::Status status;
  std::thread joining([&] { status = server_->Join().status(); });
  auto client = MakeClient(Options(1, 3));
  auto options = Options(0, 3);
  std::thread leaving([&] { client->Join().IgnoreError(); });
  // It is accepted once the status says that only node 2 is missing.
  for (std::string text; text.find("missing: node 2 (there)\n") == std::string::npos;) {
    const auto asked = MakeClient(options)->AskStatus();
    ASSERT_TRUE(asked.ok()) << asked.status();
    text = *asked;
  }
  client->Abort(absl::CancelledError("gives up"));
  leaving.join();
  client.reset();
  joining.join();
  EXPECT_THAT(MessageOf(status), AllOf(HasSubstr("joining: node 1 (there) lost")));
}

// Beside each missing node, why the last process that came from its address did not get in.
TEST_F(RendezvousTest, TheMasterSaysWhyAMissingNodeWasRefused) {
  RendezvousOptions options = Options(0, 3);
  options.nodes_at = [](const SocketAddress& address) {
    return address.is_loopback() ? std::vector<int>{2} : std::vector<int>();
  };
  StartServer(options);
  RendezvousOptions stranger = Options(2, 3);
  stranger.secret = "another";
  EXPECT_EQ(MakeClient(stranger)->Join().status().code(), absl::StatusCode::kUnauthenticated);
  const auto text = MakeClient(Options(0, 3))->AskStatus();
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_THAT(*text,
              ContainsRegex("missing: node 1 \\(there\\); node 2 \\(there\\), refused 0 s ago: "
                            "127\\.0\\.0\\.1:[0-9]+.* has another shared secret"));
}

TEST_F(RendezvousTest, AWorkerSaysHowFarItGot) {
  // Connections wait in its backlog, where nobody fetches them.
  auto listener = ListenOn(*SocketAddress::Parse("127.0.0.1:0"));
  ASSERT_TRUE(listener.ok()) << listener.status();
  address_ = *listener->LocalAddress();
  RendezvousOptions options = Options(1, 2);
  options.join_timeout = 300 * kMillisecond;
  EXPECT_THAT(MessageOf(MakeClient(options)->Join().status()),
              HasSubstr("(--join_timeout): " + address_.ToString() +
                        ": connected, but no greeting yet; is it started"));
}

TEST_F(RendezvousTest, AbortEndsBothSides) {
  StartServer(Options(0, 2));
  server_->Abort(absl::CancelledError("interrupted"));
  EXPECT_EQ(server_->Join().status(), absl::CancelledError("interrupted"));
  const auto client = MakeClient(Options(1, 3));
  client->Abort(absl::CancelledError("interrupted, too"));
  EXPECT_EQ(client->Join().status(), absl::CancelledError("interrupted, too"));
}

TEST(ControlConnectionTest, HeadersAreChecked) {
  const std::string frame = ControlConnection::MakeFrame(1, "hello");
  const auto bytes = std::as_bytes(std::span(frame));
  const auto header = ControlConnection::ParseHeader(bytes, 100);
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(header->bytes, 5u);
  EXPECT_THAT(MessageOf(ControlConnection::ParseHeader(bytes, 4).status()),
              AllOf(HasSubstr("5 bytes"), HasSubstr("at most 4")));
  struct Case {
    size_t at;
    char value;
    const char* message;
  };
  for (const Case& c : {Case{0, 'x', "not Braid"}, Case{4, 9, "kind 9"}, Case{4, 2, "kind 2"}}) {
    std::string wrong = frame;
    wrong[c.at] = c.value;
    EXPECT_THAT(
        MessageOf(ControlConnection::ParseHeader(std::as_bytes(std::span(wrong)), 100).status()),
        HasSubstr(c.message));
  }
}

// Two ends over a socket pair, one of which may be played by the test.
class ControlPairTest : public ::testing::Test {
 protected:
  ControlPairTest() {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
    other_ = Socket(ends[1]);
    RunOn(*environment_, *reactor_, [&] {
      connection_ =
          ControlConnection::Make(Socket(ends[0]), {.reactor = reactor_.get(),
                                                    .peer = "peer",
                                                    .heartbeat = 20 * kMillisecond,
                                                    .heartbeat_limit = 200 * kMillisecond});
    });
    connection_->SetHandlers(
        reactor_.get(), [](std::string) {},
        [this](absl::Status status) {
          reason_ = status;
          closed_->Set();
        });
  }
  absl::Status WaitClosed() {
    EXPECT_TRUE(environment_->Await(*closed_, kTestTimeout).ok());
    return reason_;
  }

  std::unique_ptr<Environment> environment_ = MakeRealEnvironment();
  std::unique_ptr<Reactor> reactor_ = environment_->StartReactor("control");
  std::unique_ptr<Event> closed_ = environment_->MakeEvent();
  absl::Status reason_;
  Socket other_;
  std::shared_ptr<ControlConnection> connection_;
};

TEST_F(ControlPairTest, SilenceIsNoticed) {
  EXPECT_THAT(MessageOf(WaitClosed()),
              AllOf(HasSubstr("no heartbeat for 0.2 s"), HasSubstr("limit 0.2 s")));
  EXPECT_GE(connection_->counters().heartbeats_sent, 5u);
}

// As from a node that packets do not reach, but whose own still come.
TEST_F(ControlPairTest, WhatIsNeverConfirmedIsNoticed) {
  const std::string beat = ControlConnection::MakeFrame(2, "");
  absl::Status closed;
  for (int i = 0; i < 200; ++i) {
    send(other_.descriptor(), beat.data(), beat.size(), MSG_NOSIGNAL);
    closed = environment_->Await(*closed_, 20 * kMillisecond);
    if (closed.ok()) break;
  }
  ASSERT_TRUE(closed.ok());
  EXPECT_THAT(MessageOf(reason_),
              HasSubstr("nothing that is sent to it is confirmed (limit 0.2 s)"));
}

// Heartbeats that are read are confirmed: both ends stay as long as they are heard.
TEST_F(ControlPairTest, HeartbeatsBothWaysKeepIt) {
  const std::string beat = ControlConnection::MakeFrame(2, "");
  for (int i = 0; i < 30; ++i) {
    send(other_.descriptor(), beat.data(), beat.size(), MSG_NOSIGNAL);
    EXPECT_FALSE(environment_->Await(*closed_, 20 * kMillisecond).ok());
    char bytes[4096];
    while (recv(other_.descriptor(), bytes, sizeof(bytes), MSG_DONTWAIT) > 0) {
    }
  }
  EXPECT_EQ(connection_->counters().heartbeats_received, 30u);
  connection_->Close(absl::CancelledError("the test is over"));
  EXPECT_THAT(MessageOf(WaitClosed()), HasSubstr("the test is over"));
}

TEST_F(ControlPairTest, AnEndWithoutAWordIsNoticedAtOnce) {
  other_.Close();
  EXPECT_THAT(MessageOf(WaitClosed()), HasSubstr("closed without a word"));
}

TEST_F(ControlPairTest, ADamagedFrameClosesIt) {
  std::string frame = ControlConnection::MakeFrame(1, "hello");
  frame.back() ^= 1;
  ASSERT_EQ(send(other_.descriptor(), frame.data(), frame.size(), 0),
            static_cast<ssize_t>(frame.size()));
  EXPECT_THAT(MessageOf(WaitClosed()), HasSubstr("checksum"));
}

}  // namespace
}  // namespace braid
