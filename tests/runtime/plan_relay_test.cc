// Plans on their way from the master over a tree of nodes: who gets them from whom, that all get
// the same bytes, and that only a few chunks are under way to anybody.
#include "runtime/plan_relay.h"

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "comm/loopback_transport.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/control.pb.h"
#include "runtime/plan_sender.h"

namespace braid {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string Bytes(size_t n) {
  std::string bytes(n, '\0');
  for (size_t i = 0; i < n; ++i) bytes[i] = static_cast<char>(i * 31 + i / 1000);
  return bytes;
}

TEST(PlanTreeTest, EveryNodeHasOneSenderAndNobodyMoreThanTheFanOut) {
  for (const int fan_out : {1, 2, 8}) {
    for (const int nodes : {1, 2, 7, 8, 9, 64, 200}) {
      const PlanTree tree = {.num_nodes = nodes, .fan_out = fan_out};
      std::set<int> reached;
      for (int node = 0; node < nodes; ++node) {
        if (PlanParent(node, tree) == kNoNode) {
          EXPECT_LT(node, fan_out);
          reached.insert(node);
        }
        const std::vector<uint16_t> children = PlanChildren(node, tree);
        EXPECT_LE(children.size(), static_cast<size_t>(fan_out));
        for (uint16_t child : children) {
          EXPECT_GT(child, node) << "so there is no circle";
          EXPECT_EQ(PlanParent(child, tree), node);
          EXPECT_TRUE(reached.insert(child).second);
        }
      }
      EXPECT_EQ(reached.size(), static_cast<size_t>(nodes)) << fan_out;
    }
  }
}

TEST(PlanTreeTest, ALoadSaysWhereThePlanComesFromAndWhereItGoes) {
  const std::string plan = Bytes(kPlanChunkBytes + 5);
  control::Load load;
  RoutePlan(plan, 1, {.num_nodes = 7, .fan_out = 2}, load);
  EXPECT_EQ(load.plan(), plan.substr(0, kPlanChunkBytes));
  EXPECT_EQ(load.plan_bytes(), plan.size());
  EXPECT_FALSE(load.has_plan_parent());
  EXPECT_THAT(load.plan_children(), ElementsAre(4, 5));
  RoutePlan(plan, 5, {.num_nodes = 7, .fan_out = 2}, load);
  EXPECT_EQ(load.plan(), "");
  EXPECT_EQ(load.plan_bytes(), plan.size());
  EXPECT_EQ(load.plan_parent(), 1u);
  EXPECT_THAT(load.plan_children(), IsEmpty());
}

TEST(PlanSenderTest, FewChunksAreUnderWayToEachNode) {
  std::vector<std::vector<control::PlanChunk>> sent(2);
  PlanSender sender([&](uint16_t node, const control::ControlMessage& message) {
    sent[node].push_back(message.plan_chunk());
  });
  const auto plan = std::make_shared<const std::string>(Bytes(kPlanChunkBytes * 8 + 1));
  sender.Begin(3, plan, 2);
  EXPECT_EQ(sent[0].size(), static_cast<size_t>(kMostUnacknowledgedChunks));
  EXPECT_TRUE(sender.OnTaken(0, 3).ok());
  EXPECT_EQ(sent[0].size(), static_cast<size_t>(kMostUnacknowledgedChunks) + 1);
  EXPECT_EQ(sent[1].size(), static_cast<size_t>(kMostUnacknowledgedChunks));
  for (int i = 1; i < 8; ++i) EXPECT_TRUE(sender.OnTaken(0, 3).ok());
  std::string whole = plan->substr(0, kPlanChunkBytes);  // as the Load brought
  for (const control::PlanChunk& chunk : sent[0]) {
    EXPECT_EQ(chunk.offset(), whole.size());
    whole += chunk.bytes();
  }
  EXPECT_EQ(whole, *plan);
  EXPECT_THAT(std::string(sender.OnTaken(0, 3).message()), HasSubstr("it was sent none"));
  EXPECT_FALSE(sender.OnTaken(1, 4).ok());
}

TEST(PlanSenderTest, ASmallPlanIsInTheLoad) {
  PlanSender sender([](uint16_t, const control::ControlMessage&) { FAIL(); });
  sender.Begin(1, std::make_shared<const std::string>(Bytes(kPlanChunkBytes)), 3);
}

// Nodes over the loopback, in orders that seeds draw.
class PlanRelayTest : public ::testing::TestWithParam<uint64_t> {
 protected:
  struct TestNode {
    std::map<JobId, std::string> plans;
    int taken = 0;  // of the master's chunks
    std::vector<LinkLoss> losses;
    std::unique_ptr<PlanRelay> relay;
    std::unique_ptr<Peers> peers;
    std::unique_ptr<Reactor> reactor;  // dies first
  };

  ~PlanRelayTest() override {
    for (TestNode& node : nodes_) On(node, [&] { node.peers.reset(); });
  }

  void Start(int num_nodes) {
    nodes_.resize(num_nodes);
    std::vector<std::vector<TransportAddress>> addresses(num_nodes);
    for (int i = 0; i < num_nodes; ++i) {
      TestNode& node = nodes_[i];
      const auto number = static_cast<uint16_t>(i);
      node.reactor = environment_->StartReactor("node");
      On(node, [&] {
        node.peers = std::make_unique<Peers>(Peers::Options{
            .node = number,
            .reactor = node.reactor.get(),
            .on_link = {},
            .on_loss = [&node](const LinkLoss& loss) { node.losses.push_back(loss); }});
        node.relay = std::make_unique<PlanRelay>(PlanRelay::Options{
            .node = number,
            .on_taken = [&node](JobId) { ++node.taken; },
            .on_plan =
                [&node](JobId job, const std::shared_ptr<const std::string>& plan) {
                  EXPECT_TRUE(node.plans.emplace(job, *plan).second);
                }});
        node.relay->SetPeers(node.peers.get());
        std::vector<std::unique_ptr<Transport>> transports;
        transports.push_back(MakeLoopbackTransport(number, &network_));
        addresses[i] = node.peers->Open(std::move(transports));
      });
    }
    for (TestNode& node : nodes_) {
      On(node, [&] {
        for (int i = 0; i < num_nodes; ++i) {
          node.peers->SetAddresses(static_cast<uint16_t>(i), addresses[i]);
        }
      });
    }
  }

  void On(TestNode& node, const std::function<void()>& fn) {
    const std::unique_ptr<Event> done = environment_->MakeEvent();
    node.reactor->Post([&] {
      fn();
      done->Set();
    });
    EXPECT_TRUE(environment_->Await(*done, kSecond).ok());
  }
  void Pass(Nanoseconds time) {
    const std::unique_ptr<Event> never = environment_->MakeEvent();
    environment_->Await(*never, time).IgnoreError();
  }

  // As the master, to a chain of nodes: the first gets the plan from it.
  void BeginChain(JobId job, const std::string& plan) {
    const PlanTree tree = {.num_nodes = static_cast<int>(nodes_.size()), .fan_out = 1};
    for (int i = tree.num_nodes - 1; i >= 0; --i) {
      PlanRelay::Request request{.job = job,
                                 .bytes = plan.size(),
                                 .first = "",
                                 .parent = {},
                                 .children = PlanChildren(i, tree)};
      if (i == 0) request.first = plan.substr(0, kPlanChunkBytes);
      if (i > 0) request.parent = static_cast<uint16_t>(PlanParent(i, tree));
      On(nodes_[i], [&] { EXPECT_TRUE(nodes_[i].relay->Begin(std::move(request)).ok()); });
    }
  }
  absl::Status SayChunk(JobId job, const std::string& plan, uint64_t offset) {
    absl::Status status;
    On(nodes_[0], [&] {
      status = nodes_[0].relay->OnChunk(job, offset,
                                        std::string_view(plan).substr(offset, kPlanChunkBytes));
    });
    return status;
  }

  const std::unique_ptr<Environment> environment_ = MakeSimulatedEnvironment(GetParam());
  LoopbackNetwork network_;
  std::vector<TestNode> nodes_;
};

INSTANTIATE_TEST_SUITE_P(Seeds, PlanRelayTest, ::testing::Range<uint64_t>(1, 9));

TEST_P(PlanRelayTest, EveryNodeGetsTheSameBytesWhileTheyCome) {
  Start(3);
  const std::string plan = Bytes(kPlanChunkBytes * 9 + 7);
  BeginChain(1, plan);
  for (uint64_t at = kPlanChunkBytes; at < plan.size(); at += kPlanChunkBytes) {
    EXPECT_TRUE(SayChunk(1, plan, at).ok());
  }
  Pass(kSecond);
  for (TestNode& node : nodes_) {
    EXPECT_EQ(node.plans[1], plan);
    EXPECT_TRUE(node.losses.empty());
  }
  EXPECT_EQ(nodes_[0].taken, 9);
}

TEST_P(PlanRelayTest, ANodePassesOnWhatHasComeBeforeTheRestDoes) {
  Start(2);
  const std::string plan = Bytes(kPlanChunkBytes * 3);
  BeginChain(1, plan);
  Pass(kSecond);
  On(nodes_[0], [&] {
    // The link's check, and one chunk.
    EXPECT_EQ(nodes_[0].peers->counters()[1].counters.bytes_sent,
              kPlanChunkBytes + (size_t{128} << 10));
  });
  EXPECT_TRUE(nodes_[1].plans.empty());
}

TEST_P(PlanRelayTest, APlanThatIsNotWantedAnyMoreStillGoesThrough) {
  Start(3);
  const std::string plan = Bytes(kPlanChunkBytes + 1);
  BeginChain(1, plan);
  On(nodes_[1], [&] { nodes_[1].relay->Drop(1); });
  EXPECT_TRUE(SayChunk(1, plan, kPlanChunkBytes).ok());
  Pass(kSecond);
  EXPECT_TRUE(nodes_[1].plans.empty());
  EXPECT_EQ(nodes_[2].plans[1], plan);
  BeginChain(2, "small");
  Pass(kSecond);
  for (TestNode& node : nodes_) EXPECT_EQ(node.plans[2], "small");
}

TEST_P(PlanRelayTest, ChunksComeInOrderAndOnlyFromTheSender) {
  Start(2);
  const std::string plan = Bytes(kPlanChunkBytes * 3);
  BeginChain(1, plan);
  EXPECT_FALSE(SayChunk(1, plan, kPlanChunkBytes * 2).ok());
  EXPECT_FALSE(SayChunk(2, plan, kPlanChunkBytes).ok());
  On(nodes_[1], [&] {
    EXPECT_FALSE(nodes_[1].relay->OnChunk(1, 0, "x").ok()) << "node 0 sends it";
    EXPECT_FALSE(nodes_[1].relay->Begin({.job = 1, .bytes = 1, .first = "x"}).ok()) << "twice";
    EXPECT_FALSE(nodes_[1].relay->Begin({.job = 3, .bytes = 1, .first = "xy"}).ok());
    EXPECT_FALSE(nodes_[1].relay->Begin({.job = 3, .bytes = 1, .first = "", .parent = 1}).ok());
    EXPECT_FALSE(nodes_[1].relay->Begin({.job = 3, .bytes = uint64_t{1} << 40}).ok());
  });
}

TEST_P(PlanRelayTest, AFrameThatWasNotExpectedEndsTheLink) {
  Start(2);
  BeginChain(1, Bytes(kPlanChunkBytes * 3));
  Pass(kSecond);
  On(nodes_[1], [&] {
    std::vector<std::byte> frame(34);
    frame[0] = static_cast<std::byte>(Channel::kPlan);
    frame[1] = std::byte{1};  // the job
    frame[9] = std::byte{2};  // a chunk, which only node 0 sends
    nodes_[1].peers->LinkTo(0)->Send(frame);
  });
  Pass(kSecond);
  On(nodes_[0], [&] {
    ASSERT_EQ(nodes_[0].losses.size(), 1u);
    EXPECT_THAT(std::string(nodes_[0].losses[0].reason.message()),
                HasSubstr("was not expected from node 1"));
  });
}

}  // namespace
}  // namespace braid
