// Joining over a simulated network, for many seeds: whatever the order, the delays and the splits
// of reads and writes, everybody gets the same answer; and the start ends when a link or a node
// breaks.
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/control/rendezvous.h"
#include "comm/network/sim_network.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/simulation.h"

namespace braid {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr int kNodes = 3;
constexpr uint64_t kSeeds = 100;

std::string SimMessageOf(const absl::Status& status) { return std::string(status.message()); }

// A master, node 0, and two others, each a process with a machine of its own.
class World {
 public:
  explicit World(uint64_t seed) : world_(MakeSimulation(seed)), network_(world_.get()) {
    for (int node = 0; node < kNodes; ++node) {
      environments_.push_back(&world_->AddProcess("node " + std::to_string(node)));
      machines_.push_back(network_.AddMachine(node, {Address(node)}));
    }
    observer_ = &world_->AddProcess("observer");
    for (int node = 0; node < kNodes; ++node) {
      RendezvousOptions& options = options_.emplace_back();
      options.environment = environments_[node];
      options.network = machines_[node];
      options.self = {.node = static_cast<uint16_t>(node),
                      .num_nodes = kNodes,
                      .build = "100-cafe",
                      .host = "host" + std::to_string(node),
                      .pid = 100u + static_cast<uint32_t>(node)};
      options.secret = "secret";
      options.join_timeout = 10 * kSecond;
      options.name_of = [](int n) { return "node " + std::to_string(n); };
    }
  }

  RendezvousOptions& options(int node) { return options_[node]; }
  Simulation& world() { return *world_; }
  SimNetwork& network() { return network_; }

  void StartClient(int node) {
    auto client = std::make_unique<RendezvousClient>(
        options_[node], std::vector{Address(0).WithPort(9988)}, Address(node));
    client->StartJoin([this, node](auto connection) {
      EXPECT_FALSE(answers_[node].has_value()) << "called twice";
      answers_[node] = connection.status();
      if (connection.ok()) connections_.push_back(*std::move(connection));
    });
    clients_.push_back(std::move(client));
  }

  // Until the master has an answer, and then the others.
  void Run() {
    std::vector<Socket> listeners;
    listeners.push_back(*machines_[0]->ListenOn(Address(0).WithPort(9988)));
    server_ = std::make_unique<RendezvousServer>(options_[0], std::move(listeners));
    auto joined = server_->Join();
    answers_[0] = joined.status();
    if (joined.ok()) {
      for (JoinedNode& node : *joined) connections_.push_back(std::move(node.connection));
    }
    const std::unique_ptr<Event> never = observer_->MakeEvent();
    for (int i = 0; i < 200 && !HasAll(); ++i) {
      observer_->Await(*never, 100 * kMillisecond).IgnoreError();
    }
  }

  const absl::Status& answer(int node) {
    EXPECT_TRUE(answers_[node].has_value()) << "node " << node << " waits for ever";
    if (!answers_[node].has_value()) answers_[node] = absl::UnknownError("no answer");
    return *answers_[node];
  }

  // All has ended, and nothing is left.
  void End() {
    for (const auto& connection : connections_) connection->Close(absl::CancelledError("over"));
    connections_.clear();
    clients_.clear();
    server_.reset();
    for (int node = 0; node < kNodes; ++node) {
      const Simulation::Use use = world_->UseOf(node);
      EXPECT_EQ(use.descriptors, 0) << "node " << node;
      EXPECT_EQ(use.reactors, 0) << "node " << node;
      EXPECT_EQ(use.timers, 0) << "node " << node;
    }
  }

 private:
  static SocketAddress Address(int node) {
    return *SocketAddress::Parse("10.0.0." + std::to_string(node + 1) + ":0");
  }
  bool HasAll() const {
    for (size_t i = 0; i <= clients_.size(); ++i) {
      if (!answers_[i].has_value()) return false;
    }
    return true;
  }

  const std::unique_ptr<Simulation> world_;
  SimNetwork network_;
  std::vector<Environment*> environments_;
  Environment* observer_ = nullptr;
  std::vector<Network*> machines_;
  std::vector<RendezvousOptions> options_;
  std::unique_ptr<RendezvousServer> server_;
  std::vector<std::unique_ptr<RendezvousClient>> clients_;
  std::vector<std::shared_ptr<ControlConnection>> connections_;
  std::optional<absl::Status> answers_[kNodes];
};

TEST(RendezvousSimTest, EverybodyJoins) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    World world(seed);
    world.StartClient(1);
    world.StartClient(2);
    world.Run();
    for (int node = 0; node < kNodes; ++node) EXPECT_EQ(world.answer(node), absl::OkStatus());
    EXPECT_LT(world.world().Now(), kSecond);
    world.End();
  }
}

// It was told of them again and again, each time with a line in its log.
TEST(RendezvousSimTest, AMasterWithoutDescriptorsLetsThemWait) {
  for (uint64_t seed = 1; seed <= kSeeds / 10; ++seed) {
    SCOPED_TRACE(seed);
    World world(seed);
    world.StartClient(1);
    world.StartClient(2);
    world.world().RunAfter(1, [&] { world.network().ExhaustDescriptors(0); });
    world.world().RunAfter(kSecond, [&] { world.network().FreeDescriptors(0); });
    world.Run();
    for (int node = 0; node < kNodes; ++node) EXPECT_EQ(world.answer(node), absl::OkStatus());
    EXPECT_GT(world.world().Now(), kSecond);
    EXPECT_LT(world.world().Now(), 2 * kSecond);
    EXPECT_LT(world.world().num_events(), 1000);
    world.End();
  }
}

TEST(RendezvousSimTest, ARefusalIsReadByWhomItIsFor) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    World world(seed);
    world.options(2).self.build = "101-beef";
    world.StartClient(1);
    world.StartClient(2);
    world.Run();
    EXPECT_THAT(SimMessageOf(world.answer(0)),
                AllOf(HasSubstr("another binary"), HasSubstr("101-beef"), HasSubstr("node 2")));
    EXPECT_EQ(world.answer(2), world.answer(0));
    // The other may be told before it was let in, and tries again at a master that has gone.
    EXPECT_FALSE(world.answer(1).ok());
    world.End();
  }
}

TEST(RendezvousSimTest, AWrongSecretIsToldToItsOwner) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    World world(seed);
    world.options(2).secret = "another";
    world.StartClient(1);
    world.StartClient(2);
    world.Run();
    EXPECT_EQ(world.answer(2).code(), absl::StatusCode::kUnauthenticated) << world.answer(2);
    EXPECT_EQ(world.answer(0).code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_THAT(SimMessageOf(world.answer(0)), HasSubstr("node 2"));
    EXPECT_EQ(world.answer(1), world.answer(0));
    world.End();
  }
}

TEST(RendezvousSimTest, ABrokenLinkEndsTheStartOrIsDialedAgain) {
  int joined = 0, ended = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    World world(seed);
    world.StartClient(1);
    world.StartClient(2);
    world.world().RunAfter(static_cast<Nanoseconds>(seed) * 20 * kMicrosecond,
                           [&] { world.network().Cut(0, 1); });
    world.Run();
    if (world.answer(0).ok()) {
      ++joined;
      EXPECT_TRUE(world.answer(2).ok()) << world.answer(2);
    } else {
      ++ended;
      // Lost after it had joined, or while the master did not know it yet.
      EXPECT_THAT(SimMessageOf(world.answer(0)), AnyOf(HasSubstr("joining: node 1 lost"),
                                                       HasSubstr("joining: node 1 did not join")));
      EXPECT_FALSE(world.answer(1).ok());
      EXPECT_FALSE(world.answer(2).ok());
    }
    world.End();
  }
  EXPECT_GT(joined, 0);
  EXPECT_GT(ended, 0);
}

TEST(RendezvousSimTest, ACrashEndsTheStart) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    World world(seed);
    const int crashed = static_cast<int>(seed % 3);
    world.StartClient(1);
    world.StartClient(2);
    world.world().RunAfter(static_cast<Nanoseconds>(seed) * 10 * kMicrosecond,
                           [&] { world.world().Kill(crashed); });
    world.Run();
    for (int node = 0; node < kNodes; ++node) {
      if (node == crashed || world.answer(node).ok()) continue;
      EXPECT_THAT(SimMessageOf(world.answer(node)),
                  AnyOf(HasSubstr("node " + std::to_string(crashed)), HasSubstr("master")));
    }
    world.End();
  }
}

}  // namespace
}  // namespace braid
