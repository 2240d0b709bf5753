// How nodes join over TCP: who is let in at the data port and who is not, candidates, interfaces,
// and what is said when nobody comes.
#include "comm/tcp/tcp_transport.h"

#include <algorithm>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/comm/comm_cluster.h"
#include "tests/comm/raw_peer.h"

namespace braid {
namespace {

using ::testing::HasSubstr;

// A link that comes later.
class LinkOutcome {
 public:
  explicit LinkOutcome(Environment& environment) : outcome_(environment) {}
  Transport::ConnectCallback callback() {
    return [this](absl::StatusOr<std::unique_ptr<Link>> link) {
      const absl::Status status = link.status();
      if (link.ok()) link_ = *std::move(link);
      outcome_.Take(status);
    };
  }
  absl::Status Wait() { return outcome_.Wait(); }
  int times() const { return outcome_.times(); }
  std::unique_ptr<Link>& link() { return link_; }

 private:
  Outcome outcome_;
  std::unique_ptr<Link> link_;
};

class TcpTransportTest : public ::testing::Test {
 protected:
  TcpTransportTest()
      : environment_(MakeRealEnvironment()), reactor_(environment_->StartReactor("tcp")) {}

  ~TcpTransportTest() override {
    RunOn(*environment_, *reactor_, [&] { links_.clear(); });
    transports_.clear();
  }

  struct Node {
    uint16_t number = 0;
    Transport* transport = nullptr;
    std::string address;
    NodeAddress parsed;
  };

  Node Open(uint16_t node, TransportOptions options = {.host = "127.0.0.1"}) {
    options.node = node;
    options.reactor = reactor_.get();
    transports_.push_back(MakeTcpTransport(options));
    auto address = transports_.back()->Open();
    EXPECT_TRUE(address.ok()) << address.status();
    auto parsed = NodeAddress::Parse(*address);
    EXPECT_TRUE(parsed.ok()) << parsed.status();
    return {node, transports_.back().get(), *address, *parsed};
  }

  LinkOutcome& Connect(const Node& from, uint16_t to, const std::string& address,
                       Nanoseconds timeout = 30 * kSecond) {
    outcomes_.push_back(std::make_unique<LinkOutcome>(*environment_));
    from.transport->Connect(
        {.peer = to, .peer_address = address, .reactor = reactor_.get(), .timeout = timeout},
        outcomes_.back()->callback());
    return *outcomes_.back();
  }

  // Joins two nodes and sends a frame each way.
  void ExpectToJoin(const Node& a, const Node& b) { ExpectToJoin(a, a.address, b, b.address); }
  void ExpectToJoin(const Node& a, const std::string& address_of_a, const Node& b,
                    const std::string& address_of_b) {
    LinkOutcome& at_a = Connect(a, b.number, address_of_b);
    LinkOutcome& at_b = Connect(b, a.number, address_of_a);
    ASSERT_TRUE(at_a.Wait().ok()) << at_a.Wait();
    ASSERT_TRUE(at_b.Wait().ok()) << at_b.Wait();
    for (auto [from, to] : {std::pair(&at_a, &at_b), std::pair(&at_b, &at_a)}) {
      auto came = std::make_shared<Outcome>(*environment_);
      to->link()->SetHandler([came](std::span<const std::byte>) { came->Take(absl::OkStatus()); });
      from->link()->Send(std::vector<std::byte>(3));
      EXPECT_TRUE(came->Wait().ok());
      EXPECT_EQ(came->times(), 1);
    }
    descriptions_.push_back(at_a.link()->Describe());
    for (LinkOutcome* end : {&at_a, &at_b}) links_.push_back(std::move(end->link()));
  }

  NodeGreeting Hello(const Node& to) {
    return {.stage = NodeGreeting::Stage::kHello,
            .from = 1,
            .to = to.number,
            .cookie = to.parsed.cookie};
  }

  const std::unique_ptr<Environment> environment_;
  const std::unique_ptr<Reactor> reactor_;
  std::vector<std::unique_ptr<Transport>> transports_;
  std::vector<std::unique_ptr<LinkOutcome>> outcomes_;
  std::vector<std::unique_ptr<Link>> links_;
  std::vector<std::string> descriptions_;
};

TEST_F(TcpTransportTest, WrongGreetingsAreDroppedWithoutAnAnswer) {
  const Node node = Open(0), other = Open(1);
  const SocketAddress port = node.parsed.candidates[0];
  const auto changed = [&](const std::function<void(NodeGreeting&)>& change) {
    NodeGreeting greeting = Hello(node);
    change(greeting);
    const auto bytes = EncodeNodeGreeting(greeting);
    return std::vector<std::byte>(bytes.begin(), bytes.end());
  };
  const auto with = [&](size_t at, int value) {
    std::vector<std::byte> bytes = changed([](NodeGreeting&) {});
    bytes[at] = static_cast<std::byte>(value);
    return bytes;
  };
  const std::vector<std::pair<const char*, std::vector<std::byte>>> wrongs = {
      {"garbage", std::vector<std::byte>(1000, std::byte{0x5a})},
      {"magic", with(0, 0)},
      {"version", with(4, 200)},
      {"zero", with(10, 1)},
      {"stage 0", with(5, 0)},
      {"stage", changed([](NodeGreeting& g) { g.stage = NodeGreeting::Stage::kJoined; })},
      {"to", changed([](NodeGreeting& g) { g.to = 2; })},
      {"itself", changed([](NodeGreeting& g) { g.from = 0; })},
      {"first byte of the cookie", changed([](NodeGreeting& g) { g.cookie[0] ^= std::byte{1}; })},
      {"last byte of the cookie", changed([](NodeGreeting& g) { g.cookie[15] ^= std::byte{128}; })},
      {"cookie of another node", changed([&](NodeGreeting& g) { g.cookie = other.parsed.cookie; })},
  };
  LinkOutcome& waiting = Connect(node, 1, other.address);
  for (const auto& [name, bytes] : wrongs) {
    SCOPED_TRACE(name);
    RawPeer stranger = RawPeer::Dial(port);
    stranger.Say(bytes);
    EXPECT_TRUE(stranger.HearAll().empty());
  }
  EXPECT_EQ(waiting.times(), 0);
  LinkOutcome& joined = Connect(other, 0, node.address);
  EXPECT_TRUE(joined.Wait().ok());
  EXPECT_TRUE(waiting.Wait().ok());
  for (LinkOutcome* end : {&waiting, &joined}) links_.push_back(std::move(end->link()));
}

// The lower number does not dial.
TEST_F(TcpTransportTest, AHelloFromALowerNodeIsDropped) {
  const Node node = Open(5);
  RawPeer stranger = RawPeer::Dial(node.parsed.candidates[0]);
  stranger.Say(Hello(node));
  EXPECT_TRUE(stranger.HearAll().empty());
}

// A port scan, half greetings, and more silent connections than the port keeps: peers still join.
TEST_F(TcpTransportTest, StrangersHoldUpNobody) {
  const Node node = Open(0), other = Open(1);
  const SocketAddress port = node.parsed.candidates[0];
  for (int i = 0; i < 50; ++i) RawPeer::Dial(port);
  for (int i = 0; i < 50; ++i) RawPeer::Dial(port).LeaveWithReset();
  const auto hello = EncodeNodeGreeting(Hello(node));
  for (size_t bytes = 1; bytes < hello.size(); ++bytes) {
    RawPeer::Dial(port).Say(std::span(hello).first(bytes));
  }
  std::vector<RawPeer> silent;
  for (int i = 0; i < 70; ++i) silent.push_back(RawPeer::Dial(port));
  EXPECT_TRUE(silent.front().HearAll().empty()) << "the oldest of too many is dropped";
  EXPECT_TRUE(silent.back().HearsNothing());
  const Nanoseconds start = environment_->Now();
  ExpectToJoin(node, other);
  EXPECT_LT(environment_->Now() - start, 5 * kSecond) << "it waited for strangers";
  EXPECT_TRUE(silent.back().HearAll().empty()) << "a silent one is dropped after a while";
}

TEST_F(TcpTransportTest, APeerMayComeBeforeItIsWantedAndLeaveAgain) {
  const Node node = Open(0), other = Open(1);
  for (int i = 0; i < 3; ++i) {
    RawPeer early = RawPeer::Dial(node.parsed.candidates[0]);
    early.Say(Hello(node));
    const std::vector<std::byte> welcome = early.Hear(kNodeGreetingBytes);
    ASSERT_EQ(welcome.size(), kNodeGreetingBytes);
    EXPECT_TRUE(CheckNodeGreeting(welcome, {.stage = NodeGreeting::Stage::kWelcome,
                                            .from = 0,
                                            .to = 1,
                                            .cookie = node.parsed.cookie})
                    .ok());
    EXPECT_TRUE(early.HearsNothing()) << "it was not wanted yet";
  }
  LinkOutcome& at_other = Connect(other, 0, node.address);
  RawPeer scan = RawPeer::Dial(node.parsed.candidates[0]);
  EXPECT_TRUE(scan.HearsNothing());
  EXPECT_EQ(at_other.times(), 0);
  LinkOutcome& at_node = Connect(node, 1, other.address);
  EXPECT_TRUE(at_other.Wait().ok());
  EXPECT_TRUE(at_node.Wait().ok());
  for (LinkOutcome* end : {&at_other, &at_node}) links_.push_back(std::move(end->link()));
}

// A slow node may join a connection that its dialer has just given up; the dialer comes again.
TEST_F(TcpTransportTest, AConnectionThatIsNotConfirmedIsNoLink) {
  const Node node = Open(0), other = Open(1);
  LinkOutcome& at_node = Connect(node, 1, other.address);
  const auto dial = [&] {
    RawPeer peer = RawPeer::Dial(node.parsed.candidates[0]);
    peer.Say(Hello(node));
    EXPECT_EQ(peer.Hear(2 * kNodeGreetingBytes).size(), 2 * kNodeGreetingBytes);
    return peer;
  };
  dial();  // hangs up
  dial().LeaveWithReset();
  RawPeer repeats = dial();
  repeats.Say(Hello(node));
  EXPECT_TRUE(repeats.HearAll().empty()) << "kConfirmed was its turn";
  RawPeer forgets = dial();  // its connection stands, and another one comes
  ASSERT_EQ(at_node.times(), 0);
  LinkOutcome& at_other = Connect(other, 0, node.address);
  EXPECT_TRUE(at_other.Wait().ok());
  EXPECT_TRUE(at_node.Wait().ok());
  EXPECT_TRUE(forgets.HearAll().empty());
  for (LinkOutcome* end : {&at_other, &at_node}) links_.push_back(std::move(end->link()));
}

// The dialer, too, makes sure whom it reached.
TEST_F(TcpTransportTest, TheDialerChecksWhoAnswers) {
  const Node node = Open(1);
  auto listener = ListenOn(*SocketAddress::Parse("127.0.0.1:0"));
  ASSERT_TRUE(listener.ok());
  NodeAddress address;
  address.cookie.fill(std::byte{7});
  address.candidates = {*listener->LocalAddress()};
  LinkOutcome& outcome = Connect(node, 0, address.ToString());
  const NodeGreeting welcome{
      .stage = NodeGreeting::Stage::kWelcome, .from = 0, .to = 1, .cookie = address.cookie};
  const NodeGreeting joined{
      .stage = NodeGreeting::Stage::kJoined, .from = 0, .to = 1, .cookie = node.parsed.cookie};
  const auto answer = [&](std::vector<NodeGreeting> greetings) {
    RawPeer peer = RawPeer::Accept(*listener);
    const std::vector<std::byte> hello = peer.Hear(kNodeGreetingBytes);
    EXPECT_EQ(hello.size(), kNodeGreetingBytes);
    EXPECT_TRUE(CheckNodeGreeting(hello, {.to = 0, .cookie = address.cookie}).ok());
    for (const NodeGreeting& greeting : greetings) peer.Say(greeting);
    return peer;
  };
  const auto changed = [](NodeGreeting greeting, const std::function<void(NodeGreeting&)>& change) {
    change(greeting);
    return greeting;
  };
  const std::vector<std::vector<NodeGreeting>> wrongs = {
      {joined},
      {changed(welcome, [](NodeGreeting& g) { g.stage = NodeGreeting::Stage::kHello; })},
      {changed(welcome, [](NodeGreeting& g) { g.from = 3; })},
      {changed(welcome, [](NodeGreeting& g) { g.to = 3; })},
      {changed(welcome, [](NodeGreeting& g) { g.cookie[3] ^= std::byte{1}; })},
      {welcome, welcome},
      {welcome, changed(joined, [](NodeGreeting& g) { g.cookie[3] ^= std::byte{1}; })},
      {welcome, changed(joined, [](NodeGreeting& g) { g.to = 2; })},
  };
  for (size_t i = 0; i < wrongs.size(); ++i) {
    SCOPED_TRACE(i);
    RawPeer peer = answer(wrongs[i]);
    EXPECT_TRUE(peer.HearAll().empty());
    EXPECT_EQ(outcome.times(), 0);
  }
  answer({});         // hangs up
  answer({welcome});  // hangs up later
  RawPeer peer = answer({welcome, joined});
  EXPECT_TRUE(outcome.Wait().ok()) << outcome.Wait();
  EXPECT_EQ(outcome.times(), 1);
  const std::vector<std::byte> confirmed = peer.Hear(kNodeGreetingBytes);
  ASSERT_EQ(confirmed.size(), kNodeGreetingBytes);
  EXPECT_TRUE(
      CheckNodeGreeting(
          confirmed,
          {.stage = NodeGreeting::Stage::kConfirmed, .from = 1, .to = 0, .cookie = address.cookie})
          .ok());
  links_.push_back(std::move(outcome.link()));
}

TEST_F(TcpTransportTest, CandidatesAreTriedInOrder) {
  const Node a = Open(0), b = Open(1);
  auto gone = ListenOn(*SocketAddress::Parse("127.0.0.1:0"));
  auto silent = ListenOn(*SocketAddress::Parse("127.0.0.1:0"));
  ASSERT_TRUE(gone.ok() && silent.ok());
  NodeAddress address = a.parsed;
  address.candidates.insert(address.candidates.begin(), *silent->LocalAddress());
  address.candidates.insert(address.candidates.begin(), *gone->LocalAddress());
  gone->Close();
  ExpectToJoin(a, address.ToString(), b, b.address);
  EXPECT_TRUE(AcceptFrom(*silent).ok()) << "the second was tried, too";
}

TEST_F(TcpTransportTest, ARefusedConnectionIsTriedAgain) {
  const Node b = Open(1);
  auto reserved = ListenOn(*SocketAddress::Parse("127.0.0.1:0"));
  ASSERT_TRUE(reserved.ok());
  NodeAddress address;
  address.candidates = {*reserved->LocalAddress()};
  reserved->Close();
  LinkOutcome& outcome = Connect(b, 0, address.ToString());
  RunOn(*environment_, *reactor_, [] {});
  auto listener = ListenOn(address.candidates[0]);
  ASSERT_TRUE(listener.ok()) << listener.status();
  RawPeer peer = RawPeer::Accept(*listener);
  EXPECT_EQ(peer.Hear(kNodeGreetingBytes).size(), kNodeGreetingBytes);
  peer.Say({.stage = NodeGreeting::Stage::kWelcome, .from = 0, .to = 1});
  peer.Say({.stage = NodeGreeting::Stage::kJoined, .from = 0, .to = 1, .cookie = b.parsed.cookie});
  EXPECT_TRUE(outcome.Wait().ok()) << outcome.Wait();
  links_.push_back(std::move(outcome.link()));
}

TEST_F(TcpTransportTest, ErrorsNameNodesAddressesAndTheCause) {
  const Node node = Open(1, {.interface = "lo"});
  auto refusing = ListenOn(*SocketAddress::Parse("127.0.0.1:0"));
  ASSERT_TRUE(refusing.ok());
  NodeAddress address;
  address.candidates = {*refusing->LocalAddress()};
  refusing->Close();
  LinkOutcome& refused = Connect(node, 0, address.ToString(), 200 * kMillisecond);
  EXPECT_EQ(refused.Wait(),
            absl::DeadlineExceededError("node 0 did not connect to node 1 within 0.2 s: node 1 -> "
                                        "node 0: " +
                                        address.candidates[0].ToString() +
                                        " from 127.0.0.1 (lo): Connection refused"));
  const Node peer = Open(0);
  LinkOutcome& unwanted = Connect(node, 0, peer.address, 200 * kMillisecond);
  EXPECT_EQ(unwanted.Wait(),
            absl::DeadlineExceededError("node 0 did not connect to node 1 within 0.2 s: node 1 -> "
                                        "node 0: " +
                                        peer.parsed.candidates[0].ToString() +
                                        " answers, but has not asked for the link"));
  LinkOutcome& waiting = Connect(peer, 1, node.address, 200 * kMillisecond);
  EXPECT_EQ(waiting.Wait(), absl::DeadlineExceededError(
                                "node 1 did not connect to node 0 within 0.2 s at 127.0.0.1"));
  LinkOutcome& nowhere = Connect(peer, 2, "loopback:1:2");
  EXPECT_EQ(nowhere.Wait().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(peer.transport->Reaches("loopback:1:2").ok());
  EXPECT_TRUE(peer.transport->Reaches(node.address).ok());
}

TEST_F(TcpTransportTest, ASecondCallForOnePeerIsAnError) {
  const Node a = Open(0), b = Open(1);
  LinkOutcome& first = Connect(a, 1, b.address);
  LinkOutcome& second = Connect(a, 1, b.address);
  EXPECT_EQ(second.Wait().code(), absl::StatusCode::kAlreadyExists);
  LinkOutcome& other = Connect(b, 0, a.address);
  EXPECT_TRUE(first.Wait().ok());
  EXPECT_TRUE(other.Wait().ok());
  for (LinkOutcome* end : {&first, &other}) links_.push_back(std::move(end->link()));
}

TEST_F(TcpTransportTest, ADestroyedTransportAnswersItsCalls) {
  const Node a = Open(0), b = Open(1);
  LinkOutcome& accepts = Connect(a, 1, b.address);
  LinkOutcome& dials = Connect(b, 0, "00000000000000000000000000000000@127.0.0.1:1");
  transports_.clear();
  for (LinkOutcome* end : {&accepts, &dials}) {
    EXPECT_EQ(end->Wait().code(), absl::StatusCode::kCancelled) << end->Wait();
    EXPECT_EQ(end->times(), 1);
  }
  // And its port is closed.
  auto listener = ListenOn(a.parsed.candidates[0]);
  EXPECT_TRUE(listener.ok()) << listener.status();
}

TEST_F(TcpTransportTest, TheChosenInterfaceIsUsed) {
  const Node a = Open(0, {.interface = "lo"}), b = Open(1, {.interface = "lo"});
  EXPECT_TRUE(std::all_of(a.parsed.candidates.begin(), a.parsed.candidates.end(),
                          [](const SocketAddress& address) { return address.is_loopback(); }));
  ExpectToJoin(a, b);
  EXPECT_EQ(descriptions_[0], "node 0 <-> node 1: tcp lo");
  auto unknown = MakeTcpTransport({.reactor = reactor_.get(), .interface = "eth77"});
  const absl::Status status = unknown->Open().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("'eth77'"));
}

TEST_F(TcpTransportTest, WithoutAChoiceEveryInterfaceIsUsed) {
  const Node a = Open(0, {}), b = Open(1, {});
  for (const SocketAddress& candidate : a.parsed.candidates) {
    SCOPED_TRACE(candidate.ToString());
    EXPECT_NE(InterfaceOf(candidate), "");
    NodeAddress only = a.parsed;
    only.candidates = {candidate};
    ExpectToJoin(a, only.ToString(), b, b.address);
  }
  EXPECT_NE(a.parsed.cookie, b.parsed.cookie);
}

TEST_F(TcpTransportTest, AHostThatIsNotThisOneIsNamed) {
  auto transport = MakeTcpTransport({.reactor = reactor_.get(), .host = "192.0.2.99"});
  EXPECT_THAT(std::string(transport->Open().status().message()), HasSubstr("192.0.2.99"));
}

TEST_F(TcpTransportTest, TheListOfTransportsCanBeNarrowed) {
  const auto names = [&](const TransportOptions& options) {
    std::string names;
    for (const auto& transport : MakeTransports(options)) {
      names += std::string(transport->name()) + " ";
    }
    return names;
  };
  EXPECT_EQ(names({.reactor = reactor_.get(), .only = "tcp"}), "tcp ");
  EXPECT_EQ(names({.reactor = reactor_.get(), .only = "pigeon"}), "");
  EXPECT_EQ(names({.reactor = reactor_.get()}), "shm tcp ");
  EXPECT_EQ(MakeTcpTransport({})->Open().status().code(), absl::StatusCode::kFailedPrecondition)
      << "without a reactor it does not work";
}

TEST(NodeAddressTest, KeepsItsValueAsText) {
  NodeAddress address;
  for (size_t i = 0; i < address.cookie.size(); ++i) {
    address.cookie[i] = static_cast<std::byte>(17 * i);
  }
  address.candidates = {*SocketAddress::Parse("10.0.0.1:4711"),
                        *SocketAddress::Parse("[fd00::2]:4712")};
  EXPECT_EQ(address.ToString(), "00112233445566778899aabbccddeeff@10.0.0.1:4711,[fd00::2]:4712");
  const auto parsed = NodeAddress::Parse(address.ToString());
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->cookie, address.cookie);
  EXPECT_EQ(parsed->candidates, address.candidates);
  const std::string cookie = address.ToString().substr(0, 32);
  for (const std::string& wrong :
       {std::string(), cookie, cookie + "@", cookie + "@10.0.0.1", cookie + "@10.0.0.1:1,",
        cookie + ",10.0.0.1:1", cookie.substr(1) + "@10.0.0.1:1",
        "g" + cookie.substr(1) + "@10.0.0.1:1", cookie + "@host:1"}) {
    const absl::Status status = NodeAddress::Parse(wrong).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << wrong;
    EXPECT_EQ(std::string(status.message()).find("2233445566"), std::string::npos)
        << "the cookie is a secret";
  }
}

}  // namespace
}  // namespace braid
