// The simulated network by itself: bytes arrive whole and in order whatever the seed draws, and
// every way in which a connection fails shows as TCP's does.
#include "comm/network/sim_network.h"

#include <cerrno>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace braid {
namespace {

using ::testing::HasSubstr;

std::string Pattern(size_t bytes) {
  std::string text(bytes, '\0');
  for (size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>(i * 31 + i / 251);
  return text;
}

// What one end does: writes all of `to_write`, then ends; reads until the end or an error.
class Talker {
 public:
  Talker(Environment& environment, std::string to_write)
      : environment_(environment),
        to_write_(std::move(to_write)),
        finished_(environment.MakeEvent()),
        reactor_(environment.StartReactor("talker")) {}
  ~Talker() { Leave(); }

  void Talk(Socket socket) {
    auto owned = std::make_shared<Socket>(std::move(socket));
    reactor_->Post([this, owned] {
      socket_ = std::move(*owned);
      WatchSocket();
    });
  }
  void Leave() {
    const std::unique_ptr<Event> left = environment_.MakeEvent();
    reactor_->Post([&] {
      if (socket_.is_open()) reactor_->Unwatch(socket_.descriptor());
      socket_.Close();
      left->Set();
    });
    EXPECT_TRUE(environment_.Await(*left, kSecond).ok());
  }
  void StopReading() { reads_ = false; }

  Event& finished() { return *finished_; }  // heard the end, or an error
  const std::string& heard() const { return heard_; }
  size_t written() const { return written_; }
  int read_error() const { return read_error_; }
  int write_error() const { return write_error_; }
  Reactor& reactor() { return *reactor_; }

 private:
  void WatchSocket() {
    const bool writes = written_ < to_write_.size() && write_error_ == 0;
    if (is_finished_ && !writes) return reactor_->Unwatch(socket_.descriptor());
    ASSERT_TRUE(reactor_
                    ->Watch(socket_.descriptor(),
                            {.readable = reads_ && !is_finished_, .writable = writes},
                            [this](Reactor::Readiness ready) { OnReady(ready); })
                    .ok());
  }

  void OnReady(Reactor::Readiness ready) {
    if (ready.writable && written_ < to_write_.size() && write_error_ == 0) {
      const IoResult result = socket_.Write(
          std::as_bytes(std::span(to_write_.data(), to_write_.size()).subspan(written_)));
      written_ += result.bytes;
      if (result.error != 0 && !result.is_blocked()) write_error_ = result.error;
      if (written_ == to_write_.size()) socket_.ShutdownWrite();
    }
    if (ready.readable && reads_ && !is_finished_) {
      std::byte buffer[5000];
      const IoResult result = socket_.Read(buffer);
      heard_.append(reinterpret_cast<const char*>(buffer), result.bytes);
      if (result.bytes == 0 && !result.is_blocked()) {
        read_error_ = result.error;
        is_finished_ = true;
        finished_->Set();
      }
    }
    WatchSocket();
  }

  Environment& environment_;
  const std::string to_write_;
  const std::unique_ptr<Event> finished_;
  Socket socket_;
  std::string heard_;
  size_t written_ = 0;
  bool reads_ = true, is_finished_ = false;
  int read_error_ = 0, write_error_ = 0;
  std::unique_ptr<Reactor> reactor_;
};

class SimNetworkTest : public ::testing::Test {
 protected:
  void Start(uint64_t seed, size_t bytes) {
    b_.reset();
    a_.reset();
    network_.reset();
    world_ = MakeSimulation(seed);
    network_ = std::make_unique<SimNetwork>(world_.get());
    for (int i = 0; i < 2; ++i) {
      environment_[i] = &world_->AddProcess(i == 0 ? "a" : "b");
      machine_[i] = network_->AddMachine(i, {Address(i, 0)});
    }
    observer_ = &world_->AddProcess("observer");
    a_ = std::make_unique<Talker>(*environment_[0], Pattern(bytes));
    b_ = std::make_unique<Talker>(*environment_[1], Pattern(bytes));
  }
  static SocketAddress Address(int process, uint16_t port) {
    return SocketAddress::Parse("10.0.0." + std::to_string(process + 1) + ":0")->WithPort(port);
  }

  absl::Status Wait(Environment& environment, Reactor& reactor, const Socket& socket,
                    Reactor::Readiness interest, Nanoseconds timeout = kSecond) {
    const std::unique_ptr<Event> event = environment.MakeEvent();
    reactor.Post([&] {
      EXPECT_TRUE(reactor
                      .Watch(socket.descriptor(), interest,
                             [&](Reactor::Readiness) {
                               reactor.Unwatch(socket.descriptor());
                               event->Set();
                             })
                      .ok());
    });
    const absl::Status status = environment.Await(*event, timeout);
    if (!status.ok()) {
      const std::unique_ptr<Event> gone = environment.MakeEvent();
      reactor.Post([&] {
        reactor.Unwatch(socket.descriptor());
        gone->Set();
      });
      EXPECT_TRUE(environment.Await(*gone, kSecond).ok());
    }
    return status;
  }

  // a dials b; both talk.
  void Join() {
    auto listener = machine_[1]->ListenOn(Address(1, 4711));
    ASSERT_TRUE(listener.ok()) << listener.status();
    auto dialer = machine_[0]->StartConnect(Address(1, 4711), SocketAddress());
    ASSERT_TRUE(dialer.ok()) << dialer.status();
    ASSERT_TRUE(Wait(*environment_[1], b_->reactor(), *listener, {.readable = true}).ok());
    auto accepted = AcceptFrom(*listener);
    ASSERT_TRUE(accepted.ok()) << accepted.status();
    EXPECT_TRUE(absl::IsUnavailable(AcceptFrom(*listener).status()));
    ASSERT_TRUE(Wait(*environment_[0], a_->reactor(), *dialer, {.writable = true}).ok());
    EXPECT_TRUE(dialer->ConnectResult().ok());
    EXPECT_EQ(*accepted->PeerAddress(), *dialer->LocalAddress());
    EXPECT_EQ(*dialer->PeerAddress(), Address(1, 4711));
    a_->Talk(*std::move(dialer));
    b_->Talk(*std::move(accepted));
  }

  void Pass(Nanoseconds time) {
    const std::unique_ptr<Event> never = observer_->MakeEvent();
    EXPECT_FALSE(observer_->Await(*never, time).ok());
  }
  absl::Status AwaitEnd(int process, Nanoseconds timeout = 10 * kSecond) {
    return environment_[process]->Await((process == 0 ? a_ : b_)->finished(), timeout);
  }

  std::unique_ptr<Simulation> world_;
  std::unique_ptr<SimNetwork> network_;
  Environment* environment_[2] = {};
  Environment* observer_ = nullptr;
  Network* machine_[2] = {};
  std::unique_ptr<Talker> a_, b_;
};

TEST_F(SimNetworkTest, BytesArriveWholeAndInOrder) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE(seed);
    Start(seed, 100'000);
    Join();
    ASSERT_TRUE(AwaitEnd(0).ok());
    ASSERT_TRUE(AwaitEnd(1).ok());
    EXPECT_EQ(a_->heard(), Pattern(100'000));
    EXPECT_EQ(b_->heard(), Pattern(100'000));
    EXPECT_EQ(a_->read_error(), 0);
    EXPECT_EQ(network_->num_connections(0, 1), 1);
    a_->Leave();
    b_->Leave();
    EXPECT_EQ(network_->num_connections(0, 1), 0);
    EXPECT_EQ(world_->UseOf(0).descriptors + world_->UseOf(1).descriptors, 0);
  }
}

TEST_F(SimNetworkTest, EqualSeedsGiveEqualRuns) {
  uint64_t digests[3];
  for (int i = 0; i < 3; ++i) {
    Start(i < 2 ? 5 : 6, 100'000);
    Join();
    ASSERT_TRUE(AwaitEnd(0).ok());
    digests[i] = world_->digest();
  }
  EXPECT_EQ(digests[0], digests[1]);
  EXPECT_NE(digests[0], digests[2]);
}

TEST_F(SimNetworkTest, AFullBufferBlocksTheWriter) {
  Start(3, 10'000'000);
  b_->StopReading();
  Join();
  Pass(kSecond);
  EXPECT_GE(a_->written(), 1024u);
  EXPECT_LE(a_->written(), size_t{256} << 10);
  EXPECT_EQ(a_->write_error(), 0);
}

TEST_F(SimNetworkTest, PortsAreBusyOrRefuse) {
  Start(1, 0);
  auto listener = machine_[1]->ListenOn(Address(1, 80));
  ASSERT_TRUE(listener.ok());
  const absl::Status busy = machine_[1]->ListenOn(Address(1, 80)).status();
  EXPECT_EQ(busy.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(busy.message()), HasSubstr("10.0.0.2:80"));
  EXPECT_THAT(std::string(machine_[1]->ListenOn(Address(0, 80)).status().message()),
              HasSubstr("Cannot assign requested address"));
  listener->Close();
  EXPECT_TRUE(machine_[1]->ListenOn(Address(1, 80)).ok());
  auto dialer = machine_[0]->StartConnect(Address(1, 81), SocketAddress());
  ASSERT_TRUE(dialer.ok());
  ASSERT_TRUE(Wait(*environment_[0], a_->reactor(), *dialer, {.writable = true}).ok());
  EXPECT_EQ(dialer->ConnectResult().message(), "Connection refused");
  dialer = machine_[0]->StartConnect(Address(7, 81), SocketAddress());
  ASSERT_TRUE(dialer.ok());
  EXPECT_FALSE(Wait(*environment_[0], a_->reactor(), *dialer, {.writable = true}).ok())
      << "nobody has that address";
}

TEST_F(SimNetworkTest, ACutResetsBothEnds) {
  Start(4, 10'000'000);
  Join();
  world_->RunAfter(kMillisecond, [this] { network_->Cut(0, 1); });
  ASSERT_TRUE(AwaitEnd(0).ok());
  ASSERT_TRUE(AwaitEnd(1).ok());
  for (const Talker* talker : {a_.get(), b_.get()}) {
    EXPECT_TRUE(talker->read_error() == ECONNRESET || talker->write_error() == ECONNRESET);
    EXPECT_TRUE(Pattern(10'000'000).starts_with(talker->heard()));
  }
}

TEST_F(SimNetworkTest, APartitionIsSilentAndHeals) {
  Start(5, 1'000'000);
  Join();
  Pass(2 * kMillisecond);
  network_->Partition(0, 1);
  const size_t heard = a_->heard().size();
  Pass(100 * kSecond);
  EXPECT_LE(a_->heard().size(), heard + (size_t{256} << 10)) << "what had arrived";
  EXPECT_FALSE(a_->finished().is_set()) << "nobody looks for silence";
  auto dialer = machine_[0]->StartConnect(Address(1, 4711), SocketAddress());
  ASSERT_TRUE(dialer.ok());
  EXPECT_FALSE(Wait(*environment_[0], a_->reactor(), *dialer, {.writable = true}).ok());
  network_->Heal(0, 1);
  ASSERT_TRUE(AwaitEnd(0).ok());
  ASSERT_TRUE(AwaitEnd(1).ok());
  EXPECT_EQ(a_->heard(), Pattern(1'000'000));
  EXPECT_EQ(b_->heard(), Pattern(1'000'000));
}

TEST_F(SimNetworkTest, SilenceIsNoticedByWhomItConcerns) {
  Start(6, 0);
  auto listener = machine_[1]->ListenOn(Address(1, 80));
  ASSERT_TRUE(listener.ok());
  Socket dialers[2], accepted[2];
  for (int i = 0; i < 2; ++i) {
    dialers[i] = *machine_[0]->StartConnect(Address(1, 80), SocketAddress());
    ASSERT_TRUE(Wait(*environment_[0], a_->reactor(), dialers[i], {.writable = true}).ok());
    accepted[i] = *AcceptFrom(*listener);
    EXPECT_TRUE(PrepareConnection(dialers[i], 5).ok());
  }
  EXPECT_TRUE(AllowSlowReader(dialers[1]).ok());
  network_->Partition(0, 1);
  EXPECT_EQ(dialers[1].Write(std::as_bytes(std::span("hello"))).bytes, 6u);
  const Nanoseconds start = world_->Now();
  EXPECT_TRUE(
      Wait(*environment_[0], a_->reactor(), dialers[0], {.readable = true}, 6 * kSecond).ok());
  EXPECT_GE(world_->Now() - start, 4 * kSecond);
  std::byte byte;
  EXPECT_EQ(dialers[0].Read({&byte, 1}).error, ETIMEDOUT);
  Pass(kSecond);
  EXPECT_TRUE(dialers[1].Read({&byte, 1}).is_blocked()) << "its owner has to ask";
  EXPECT_TRUE(IsUnanswered(dialers[1], 5));
  network_->Heal(0, 1);
  EXPECT_TRUE(Wait(*environment_[1], b_->reactor(), accepted[1], {.readable = true}).ok());
  EXPECT_FALSE(IsUnanswered(dialers[1], 5));
}

// The peers of a crashed process read what had left it, and then an end or a reset.
TEST_F(SimNetworkTest, ACrashClosesItsConnections) {
  int ends = 0, resets = 0;
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE(seed);
    Start(seed, 1'000'000);
    Join();
    world_->RunAfter(kMillisecond, [this] { world_->Kill(0); });
    ASSERT_TRUE(AwaitEnd(1).ok());
    EXPECT_TRUE(Pattern(1'000'000).starts_with(b_->heard()));
    EXPECT_LT(b_->heard().size(), 1'000'000u);
    ++(b_->read_error() == 0 && b_->write_error() == 0 ? ends : resets);
    EXPECT_FALSE(machine_[0]->ListenOn(Address(0, 1)).ok());
    EXPECT_FALSE(machine_[0]->StartConnect(Address(1, 4711), SocketAddress()).ok());
  }
  EXPECT_GT(resets, 0);
  EXPECT_GT(ends, 0);
}

}  // namespace
}  // namespace braid
