// Addresses as text, listening and connecting over both families, and the errors that users meet.
#include "comm/network/socket.h"

#include <netinet/in.h>
#include <netinet/tcp.h>

#include <algorithm>

#include "comm/network/network.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/reactor.h"
#include "tests/comm/comm_cluster.h"

namespace braid {
namespace {

using ::testing::HasSubstr;

SocketAddress Address(std::string_view text) {
  const auto address = SocketAddress::Parse(text);
  EXPECT_TRUE(address.ok()) << address.status();
  return address.ok() ? *address : SocketAddress();
}

TEST(SocketAddressTest, KeepsItsValueAsText) {
  for (const char* text : {"10.0.0.1:9988", "127.0.0.1:0", "0.0.0.0:65535", "[::1]:9988", "[::]:1",
                           "[fd00::2]:80", "[fe80::1%lo]:9988"}) {
    EXPECT_EQ(Address(text).ToString(), text);
    EXPECT_EQ(Address(text), Address(text));
  }
  EXPECT_EQ(Address("[fd00::2]:80").host(), "fd00::2");
  EXPECT_EQ(Address("10.0.0.1:9988").host(), "10.0.0.1");
  EXPECT_EQ(Address("[fd00::2]:80").port(), 80);
  EXPECT_EQ(Address("10.0.0.1:80").WithPort(90), Address("10.0.0.1:90"));
  EXPECT_EQ(Address("[fd00::2]:80").WithPort(90), Address("[fd00::2]:90"));
}

TEST(SocketAddressTest, Compares) {
  EXPECT_FALSE(Address("10.0.0.1:80") == Address("10.0.0.1:81"));
  EXPECT_FALSE(Address("10.0.0.1:80") == Address("10.0.0.2:80"));
  EXPECT_FALSE(Address("[::1]:80") == Address("[::2]:80"));
  EXPECT_FALSE(Address("[fe80::1%lo]:80") == Address("[fe80::1]:80"));
  EXPECT_TRUE(Address("10.0.0.1:80").SameHost(Address("10.0.0.1:81")));
  EXPECT_FALSE(Address("10.0.0.1:80").SameHost(Address("10.0.0.2:80")));
  EXPECT_FALSE(Address("0.0.0.0:80").SameHost(Address("[::]:80")));
  EXPECT_TRUE(Address("127.0.0.1:80").is_loopback());
  EXPECT_TRUE(Address("127.200.0.1:80").is_loopback());
  EXPECT_TRUE(Address("[::1]:80").is_loopback());
  EXPECT_FALSE(Address("10.127.0.1:80").is_loopback());
  EXPECT_FALSE(Address("[::127.0.0.1]:80").is_loopback());
  EXPECT_TRUE(Address("0.0.0.0:80").is_any());
  EXPECT_TRUE(Address("[::]:80").is_any());
  EXPECT_FALSE(Address("[::1]:80").is_any());
}

TEST(SocketAddressTest, KnowsThisMachines) {
  const std::vector<SocketAddress> local = {Address("10.0.0.1:0"), Address("[fd00::1]:0")};
  for (const char* text :
       {"10.0.0.1:80", "[fd00::1]:80", "127.0.0.1:80", "127.0.1.1:80", "[::1]:80"}) {
    EXPECT_TRUE(IsLocalAddress(Address(text), local)) << text;
  }
  for (const char* text : {"10.0.0.2:80", "[fd00::2]:80", "0.0.0.0:80"}) {
    EXPECT_FALSE(IsLocalAddress(Address(text), local)) << text;
  }
  EXPECT_TRUE(IsLocalAddress(Address("127.0.0.1:80"), {}));
}

TEST(SocketAddressTest, WrongTextIsQuoted) {
  for (const char* text :
       {"", "10.0.0.1", "10.0.0.1:", "10.0.0.1:x", "10.0.0.1:65536", "10.0.0.1:-1", "10.0.0.1: 1",
        "10.0.0.1:+1", "10.0.0:1", "localhost:1", "::1:80", "[::1]", "[::1:80", "[]:80", "[::g]:80",
        "[fe80::1%no_such_if]:80", "[fe80::1%]:80", "[10.0.0.1]:80", ":80"}) {
    const auto address = SocketAddress::Parse(text);
    EXPECT_EQ(address.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(address.status().message()),
                HasSubstr("'" + std::string(text) + "' is no address"));
  }
}

TEST(ResolveHostTest, NamesAndNumbers) {
  const auto number = ResolveHost("10.1.2.3", 77);
  ASSERT_TRUE(number.ok()) << number.status();
  ASSERT_EQ(number->size(), 1u);
  EXPECT_EQ((*number)[0].ToString(), "10.1.2.3:77");
  EXPECT_EQ((*ResolveHost("::1", 77))[0].ToString(), "[::1]:77");
  const auto name = ResolveHost("localhost", 78);
  ASSERT_TRUE(name.ok()) << name.status();
  for (const SocketAddress& address : *name) {
    EXPECT_TRUE(address.is_loopback()) << address.ToString();
    EXPECT_EQ(address.port(), 78);
    EXPECT_EQ(std::count(name->begin(), name->end(), address), 1) << address.ToString();
  }
  // A name that cannot exist (RFC 2606), and one that is no name.
  for (const char* host : {"no-such-host.invalid", "10.0.0.300", ""}) {
    const auto missing = ResolveHost(host, 1);
    EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound) << host;
    EXPECT_THAT(std::string(missing.status().message()),
                HasSubstr("host '" + std::string(host) + "' has no address: "));
  }
}

TEST(InterfaceTest, HasItsAddresses) {
  const auto loopback = InterfaceAddresses("lo");
  ASSERT_TRUE(loopback.ok()) << loopback.status();
  EXPECT_NE(std::find(loopback->begin(), loopback->end(), Address("127.0.0.1:0")), loopback->end());
  const auto all = LocalAddresses();
  ASSERT_TRUE(all.ok()) << all.status();
  for (const SocketAddress& address : *loopback) {
    EXPECT_NE(std::find(all->begin(), all->end(), address), all->end()) << address.ToString();
  }
  const auto missing = InterfaceAddresses("eth77");
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.status().message()), HasSubstr("'eth77'"));
  EXPECT_THAT(std::string(missing.status().message()), HasSubstr("lo"));
  EXPECT_EQ(InterfaceOf(Address("127.0.0.1:80")), "lo");
  EXPECT_EQ(InterfaceOf(Address("192.0.2.99:80")), "");
}

class SocketTest : public ::testing::TestWithParam<const char*> {
 protected:
  SocketTest() : environment_(MakeRealEnvironment()), reactor_(environment_->StartReactor("io")) {}

  // Waits until the socket is ready. Events other than the wanted ones do not come.
  void WaitFor(const Socket& socket, Reactor::Readiness interest) {
    const std::unique_ptr<Event> event = environment_->MakeEvent();
    RunOn(*environment_, *reactor_, [&] {
      const int descriptor = socket.descriptor();
      EXPECT_TRUE(reactor_
                      ->Watch(descriptor, interest,
                              [this, descriptor, &event](Reactor::Readiness) {
                                reactor_->Unwatch(descriptor);
                                event->Set();
                              })
                      .ok());
    });
    EXPECT_TRUE(environment_->Await(*event, kTestTimeout).ok());
  }

  SocketAddress Local(const Socket& socket) {
    const auto address = socket.LocalAddress();
    EXPECT_TRUE(address.ok()) << address.status();
    return address.ok() ? *address : SocketAddress();
  }

  std::unique_ptr<Environment> environment_;
  std::unique_ptr<Reactor> reactor_;
};

TEST_P(SocketTest, ConnectsAndCarriesBytes) {
  auto listener = ListenOn(Address(GetParam()));
  ASSERT_TRUE(listener.ok()) << listener.status();
  const SocketAddress address = Local(*listener);
  EXPECT_NE(address.port(), 0);
  EXPECT_TRUE(absl::IsUnavailable(AcceptFrom(*listener).status()));
  auto client = StartConnect(address, address.WithPort(0));
  ASSERT_TRUE(client.ok()) << client.status();
  WaitFor(*client, {.writable = true});
  EXPECT_TRUE(client->ConnectResult().ok()) << client->ConnectResult();
  WaitFor(*listener, {.readable = true});
  auto server = AcceptFrom(*listener);
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_EQ(*server->PeerAddress(), Local(*client));
  EXPECT_EQ(*client->PeerAddress(), address);
  for (const Socket* socket : {&*client, &*server}) {
    EXPECT_TRUE(PrepareConnection(*socket, 5).ok());
    int nodelay = 0, timeout = 0;
    socklen_t length = sizeof(int);
    getsockopt(socket->descriptor(), IPPROTO_TCP, TCP_NODELAY, &nodelay, &length);
    getsockopt(socket->descriptor(), IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout, &length);
    EXPECT_EQ(nodelay, 1);
    EXPECT_EQ(timeout, 5000);
    char congestion[16] = {};
    length = sizeof(congestion);
    getsockopt(socket->descriptor(), IPPROTO_TCP, TCP_CONGESTION, congestion, &length);
    EXPECT_STREQ(congestion, "reno") << "nothing is paced within this machine";
  }
  char byte = 'x';
  EXPECT_EQ(send(client->descriptor(), &byte, 1, MSG_NOSIGNAL), 1);
  WaitFor(*server, {.readable = true});
  EXPECT_EQ(recv(server->descriptor(), &byte, 1, 0), 1);
  EXPECT_EQ(recv(server->descriptor(), &byte, 1, 0), -1) << "sockets do not block";
}

TEST_P(SocketTest, ABusyPortIsNamed) {
  auto listener = ListenOn(Address(GetParam()));
  ASSERT_TRUE(listener.ok()) << listener.status();
  const absl::Status status = ListenOn(Local(*listener)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(status.message()), HasSubstr(Local(*listener).ToString()));
  // Free again at once, although a connection to it was open.
  const SocketAddress address = Local(*listener);
  auto client = StartConnect(address);
  ASSERT_TRUE(client.ok());
  WaitFor(*listener, {.readable = true});
  ASSERT_TRUE(AcceptFrom(*listener).ok());
  listener->Close();
  EXPECT_FALSE(listener->is_open());
  EXPECT_TRUE(ListenOn(address).ok());
}

TEST_P(SocketTest, AReservedPortIsForWhoNamesIt) {
  const auto reserved = ReservePort(Address(GetParam()));
  ASSERT_TRUE(reserved.ok()) << reserved.status();
  const SocketAddress address = Local(*reserved);
  EXPECT_NE(address.port(), 0);
  EXPECT_TRUE(ListenOn(address).ok());
  const auto again = ListenOn(address);
  ASSERT_TRUE(again.ok()) << "once the first was closed: " << again.status();
  EXPECT_TRUE(absl::IsAlreadyExists(ListenOn(address).status()));
  EXPECT_FALSE(ReservePort(address).ok()) << "the port is not free";
}

TEST_P(SocketTest, ARefusedConnectionSaysSo) {
  auto listener = ListenOn(Address(GetParam()));
  ASSERT_TRUE(listener.ok());
  const SocketAddress address = Local(*listener);
  listener->Close();
  auto client = StartConnect(address);
  absl::Status status = client.status();
  if (client.ok()) {
    WaitFor(*client, {.writable = true});
    status = client->ConnectResult();
  }
  EXPECT_EQ(status.message(), "Connection refused");
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
}

INSTANTIATE_TEST_SUITE_P(Families, SocketTest, ::testing::Values("127.0.0.1:0", "[::1]:0"),
                         [](const auto& info) { return info.index == 0 ? "Ipv4" : "Ipv6"; });

TEST(SocketErrorTest, AnAddressOfNobodyIsNamed) {
  const absl::Status status = ListenOn(Address("192.0.2.99:0")).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("192.0.2.99:0"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("Cannot assign requested address"));
  EXPECT_THAT(
      std::string(StartConnect(Address("127.0.0.1:1"), Address("192.0.2.99:0")).status().message()),
      HasSubstr("192.0.2.99"));
}

// Both families may listen on the same port: an IPv6 listener takes no IPv4 connections.
TEST(SocketErrorTest, TheFamiliesShareNoPort) {
  absl::Status status;
  for (int attempt = 0; attempt < 10; ++attempt) {  // the port may be another process's
    auto v6 = ListenOn(Address("[::]:0"));
    ASSERT_TRUE(v6.ok()) << v6.status();
    status = ListenOn(Address("0.0.0.0:0").WithPort(v6->LocalAddress()->port())).status();
    if (status.ok()) break;
  }
  EXPECT_TRUE(status.ok()) << status;
}

}  // namespace
}  // namespace braid
