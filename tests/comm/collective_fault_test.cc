// What peers and users can do wrong to collectives: lost links, wrong frames, specs that do not
// fit.
#include <functional>

#include "comm/collective/collective_frame.h"
#include "comm/little_endian.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/device/host_memory.h"
#include "tests/comm/collective_case.h"
#include "tests/comm/comm_cluster.h"

namespace braid {
namespace {

using ::testing::HasSubstr;

CollectiveCase RingCase(std::vector<uint16_t> layout,
                        CollectiveKind kind = CollectiveKind::kAllReduce) {
  CollectiveCase c;
  c.kind = kind;
  c.layout = std::move(layout);
  c.counts = MakeCounts(kind, c.layout.size(), 200, false);
  return c;
}

class CollectiveFaultTest : public ::testing::TestWithParam<uint64_t> {
 protected:
  CollectiveFaultTest()
      : environment_(GetParam() == 0 ? MakeRealEnvironment() : MakeSimulatedMachine(GetParam())) {
    for (int i = 0; i < 3; ++i) {
      owned_.push_back(environment_->StartReactor("member" + std::to_string(i)));
      reactors_.push_back(owned_.back().get());
    }
  }

  const std::unique_ptr<Environment> environment_;
  std::vector<std::unique_ptr<Reactor>> owned_;
  std::vector<Reactor*> reactors_;
};

// The nodes at the two ends fail by themselves; the third learns it from the control plane.
TEST_P(CollectiveFaultTest, ALostLinkAnswersEveryStartOnce) {
  for (const TransportCase& transport : TransportCases()) {
    if (GetParam() > 0 && !transport.simulate) continue;
    CommCluster cluster(*environment_, transport, 3);
    std::vector<std::unique_ptr<CollectiveRun>> runs;
    for (const CollectiveKind kind :
         {CollectiveKind::kAllReduce, CollectiveKind::kReduceScatter, CollectiveKind::kAllToAll}) {
      CollectiveCase c = RingCase({0, 1, 2}, kind);
      c.is_endless = true;
      if (GetParam() % 2 == 1) c.lend_from = 0;
      if (GetParam() % 3 == 1) c.place_from = 0;
      runs.push_back(std::make_unique<CollectiveRun>(cluster, c, runs.size() + 1, reactors_));
    }
    // Both ends on one node: not concerned until the abort.
    CollectiveCase other = RingCase({2, 2});
    other.is_endless = true;
    runs.push_back(std::make_unique<CollectiveRun>(cluster, other, runs.size() + 1, reactors_));
    for (const absl::Status& status : cluster.Connect()) ASSERT_TRUE(status.ok()) << status;
    for (auto& run : runs) run->Start();
    RunOn(*environment_, *reactors_[0], [&] {
      reactors_[0]->RunAfter(GetParam() * 3 * kMicrosecond, [&] {
        cluster.nodes().link(0, 1).Close(absl::UnavailableError("the cable was cut"));
      });
      // Later than nodes 0 and 1 notice by themselves, on a loaded machine too.
      reactors_[0]->RunAfter((GetParam() > 0 ? 30 : 300) * kMillisecond, [&] {
        cluster.hub(2).Abort(absl::AbortedError("node 0 lost the link to node 1"));
      });
    });
    for (size_t i = 0; i < runs.size(); ++i) {
      const absl::Status status = runs[i]->Wait();
      EXPECT_TRUE(runs[i]->AllAnswered());
      EXPECT_THAT(std::string(status.message()),
                  HasSubstr(i + 1 < runs.size() ? "the cable was cut" : "lost the link"));
    }
    CollectiveSpec spec = MakeSpec(RingCase({0, 1}), 77, 0);
    EXPECT_THAT(
        std::string(
            cluster.hub(0).Create(spec, *reactors_[0], AllocateHostMemory).status().message()),
        HasSubstr("the cable was cut"));
  }
}

TEST_P(CollectiveFaultTest, ALinkLostWhileConnectingIsReported) {
  const TransportCase transport = TransportCases()[0];
  CommCluster cluster(*environment_, transport, 2);
  auto end =
      cluster.hub(0).Create(MakeSpec(RingCase({0, 1}), 1, 0), *reactors_[0], AllocateHostMemory);
  ASSERT_TRUE(end.ok()) << end.status();
  Outcome connected(*environment_);
  cluster.hub(0).Connect(connected.callback());
  cluster.nodes().link(0, 1).Close(absl::UnavailableError("gone"));
  EXPECT_EQ(connected.Wait(), absl::UnavailableError("gone"));
  EXPECT_EQ(connected.times(), 1);
  RunOn(*environment_, *reactors_[0], [&] { end->reset(); });
}

TEST_P(CollectiveFaultTest, SpecsThatDifferBetweenNodesAreReportedOnBoth) {
  const CollectiveCase here = RingCase({0, 1});
  CollectiveSpec counts = MakeSpec(here, 1, 1), name = counts;
  counts.counts[0] += 2;
  name.name = "fc1.grad";
  for (const CollectiveSpec& there : {counts, name}) {
    CommCluster cluster(*environment_, TransportCases()[0], 2);
    auto a = cluster.hub(0).Create(MakeSpec(here, 1, 0), *reactors_[0], AllocateHostMemory);
    auto b = cluster.hub(1).Create(there, *reactors_[1], AllocateHostMemory);
    ASSERT_TRUE(a.ok() && b.ok());
    const std::vector<absl::Status> statuses = cluster.Connect();
    for (const absl::Status& status : statuses) {
      EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr("differs"));
    }
    EXPECT_THAT(std::string(statuses[0].message()), HasSubstr("collective 1 (all_reduce)"));
    EXPECT_THAT(std::string(statuses[1].message()),
                HasSubstr(there.name.empty() ? "collective 1 (all_reduce)"
                                             : "collective 1 'fc1.grad' (all_reduce)"));
    EXPECT_TRUE(cluster.frame_error().ok()) << cluster.frame_error();
    RunOn(*environment_, *reactors_[0], [&] { a->reset(); });
    RunOn(*environment_, *reactors_[1], [&] { b->reset(); });
  }
}

// What one member sends another must be what that one receives, also where one of them says
// nothing.
TEST_P(CollectiveFaultTest, AnAllToAllWhosePairsDisagreeIsReported) {
  for (const int64_t sent : {0, 5}) {
    for (const bool connects_first : {false, true}) {
      Outcome first(*environment_), second(*environment_);  // of Connect; one may come at the end
      CommCluster cluster(*environment_, TransportCases()[0], 2);
      const CollectiveCase c = RingCase({0, 1}, CollectiveKind::kAllToAll);
      CollectiveSpec here = MakeSpec(c, 1, 0);
      here.counts[1] = sent;  // member 1 expects 200
      auto a = cluster.hub(0).Create(here, *reactors_[0], AllocateHostMemory);
      auto b = cluster.hub(1).Create(MakeSpec(c, 1, 1), *reactors_[1], AllocateHostMemory);
      ASSERT_TRUE(a.ok() && b.ok());
      // The key of member 1 comes before or after member 0 knows what it sends.
      cluster.hub(connects_first ? 0 : 1).Connect(first.callback());
      cluster.hub(connects_first ? 1 : 0).Connect(second.callback());
      Outcome& of_sender = connects_first ? first : second;
      std::string said(of_sender.Wait().message());
      if (said.empty()) {
        std::vector<float> input(400), output(400);
        Outcome done(*environment_);
        RunOn(*environment_, *reactors_[0],
              [&] { (*a)->Start(0, input.data(), output.data(), done.callback()); });
        said = std::string(done.Wait().message());
      }
      EXPECT_THAT(said, HasSubstr("collective 1 (all_to_all)"));
      EXPECT_THAT(said, HasSubstr(sent == 0 ? "member 1 on node 1 expects something from member 0"
                                            : "differs"));
      EXPECT_TRUE(cluster.frame_error().ok()) << cluster.frame_error();
      RunOn(*environment_, *reactors_[0], [&] { a->reset(); });
      RunOn(*environment_, *reactors_[1], [&] { b->reset(); });
    }
  }
}

// Members that start different pieces get an error that names both, on the nodes that see it.
TEST_P(CollectiveFaultTest, DifferentPiecesAreReported) {
  for (const auto algorithm : {CollectiveAlgorithm::kDirect, CollectiveAlgorithm::kDirectByOne,
                               CollectiveAlgorithm::kDevice, CollectiveAlgorithm::kRing}) {
    CommCluster cluster(*environment_, TransportCases()[0], 1);
    CollectiveCase c = RingCase({0, 0});
    c.algorithm = algorithm;
    std::unique_ptr<Collective> ends[2];
    std::vector<std::byte> data[2];
    std::unique_ptr<Outcome> done[2];
    for (int rank : {0, 1}) {
      auto end = cluster.hub(0).Create(MakeSpec(c, 1, rank), *reactors_[rank], AllocateHostMemory);
      ASSERT_TRUE(end.ok()) << end.status();
      ends[rank] = *std::move(end);
      data[rank].resize(400 * 4);
      done[rank] = std::make_unique<Outcome>(*environment_);
    }
    ASSERT_TRUE(cluster.Connect()[0].ok());
    for (int rank : {0, 1}) {
      reactors_[rank]->Post([&, rank] {
        ends[rank]->Start(5 + rank, data[rank].data(), data[rank].data(), done[rank]->callback());
      });
    }
    for (int rank : {0, 1}) {
      const std::string message(done[rank]->Wait().message());
      EXPECT_THAT(message, HasSubstr("piece 5"));
      EXPECT_THAT(message, HasSubstr("piece 6"));
      EXPECT_EQ(done[rank]->times(), 1);
    }
    for (int rank : {0, 1}) {
      RunOn(*environment_, *reactors_[rank], [&] { ends[rank].reset(); });
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, CollectiveFaultTest, ::testing::Range(uint64_t{0}, uint64_t{30}),
                         [](const auto& info) {
                           return info.param == 0 ? std::string("Real")
                                                  : "Seed" + std::to_string(info.param);
                         });

class WrongFrameTest : public ::testing::Test {
 protected:
  // all_gather over nodes 0, 1, 2; member 0 lives here: it receives from 2 and sends to 1.
  WrongFrameTest() : environment_(MakeSimulatedEnvironment(1)) {
    reactor_ = environment_->StartReactor("member");
    cluster_ = std::make_unique<CommCluster>(*environment_, TransportCases()[0], 3);
    CollectiveCase c = RingCase({0, 1, 2}, CollectiveKind::kAllGather);
    for (int rank = 0; rank < 3; ++rank) {
      auto end = cluster_->hub(rank).Create(MakeSpec(c, 7, rank), *reactor_, AllocateHostMemory);
      EXPECT_TRUE(end.ok()) << end.status();
      ends_.push_back(*std::move(end));
    }
    for (const absl::Status& status : cluster_->Connect()) EXPECT_TRUE(status.ok()) << status;
  }
  ~WrongFrameTest() override {
    RunOn(*environment_, *reactor_, [&] { ends_.clear(); });
  }

  std::string Handle(uint16_t peer, const CollectiveFrame& frame) {
    return HandleBytes(peer, EncodedCollectiveFrame(frame).bytes());
  }
  std::string HandleBytes(uint16_t peer, std::span<const std::byte> bytes) {
    const absl::Status status = cluster_->hub(0).HandleFrame(peer, bytes);
    EXPECT_FALSE(status.ok());
    return std::string(status.message());
  }

  // Why member 0's first piece fails.
  std::string FailureOfAPiece() {
    std::vector<std::byte> output(3 * 800);
    Outcome outcome(*environment_);
    reactor_->Post([&] { ends_[0]->Start(0, output.data(), output.data(), outcome.callback()); });
    return std::string(outcome.Wait().message());
  }

  // One that is right but for what a test changes.
  static CollectiveFrame Chunk() {
    return {.type = CollectiveFrame::Type::kChunk,
            .collective = 7,
            .from = 2,
            .to = 0,
            .slot = 0,
            .piece = 0,
            .index = 0,
            .bytes = 64};
  }

  std::unique_ptr<Environment> environment_;
  std::unique_ptr<Reactor> reactor_;
  std::unique_ptr<CommCluster> cluster_;
  std::vector<std::unique_ptr<Collective>> ends_;
};

TEST_F(WrongFrameTest, TheRightOneIsTaken) {
  EXPECT_TRUE(cluster_->hub(0).HandleFrame(2, EncodedCollectiveFrame(Chunk()).bytes()).ok());
}

TEST_F(WrongFrameTest, IsRejectedWithBothValues) {
  const auto changed = [](const std::function<void(CollectiveFrame&)>& change) {
    CollectiveFrame frame = Chunk();
    change(frame);
    return frame;
  };
  using Frame = CollectiveFrame;
  EXPECT_THAT(Handle(2, changed([](Frame& f) { f.collective = 8; })),
              HasSubstr("from node 2: there is no collective 8 on node 0"));
  EXPECT_THAT(Handle(2, changed([](Frame& f) { f.from = 3; })),
              HasSubstr("from member 3 to member 0, of 3"));
  EXPECT_THAT(Handle(1, Chunk()), HasSubstr("which live on nodes 2 and 0"));
  EXPECT_THAT(Handle(2, changed([](Frame& f) { f.to = 1; })),
              HasSubstr("which live on nodes 2 and 1, arrived on node 0"));
  EXPECT_THAT(Handle(1, changed([](Frame& f) { f.from = 1; })),
              HasSubstr("member 0 receives nothing from member 1"));
  EXPECT_THAT(Handle(2, changed([](Frame& f) { f.slot = 4; })), HasSubstr("slot 4 of 4"));
  EXPECT_THAT(Handle(2, changed([](Frame& f) { f.bytes = 65; })),
              HasSubstr("sent 65 bytes, a slot has 64"));
  EXPECT_THAT(Handle(2, changed([](Frame& f) { f.bytes = 0; })), HasSubstr("sent 0 bytes"));
  EXPECT_THAT(Handle(2, changed([](Frame& f) { f.type = Frame::Type::kAck; })),
              HasSubstr("member 0 sends nothing to it"));
  EXPECT_THAT(Handle(1, changed([](Frame& f) {
                       f.type = Frame::Type::kAck;
                       f.from = 1;
                       f.slot = 9;
                     })),
              HasSubstr("acknowledges slot 9 of 4"));
  EXPECT_THAT(Handle(2, changed([](Frame& f) { f.type = Frame::Type::kOffer; })),
              HasSubstr("member 2 offers a place, but member 0 sends nothing to it"));
  EXPECT_THAT(Handle(2, changed([](Frame& f) {
                       f.type = Frame::Type::kLent;
                       f.bytes = 65;
                     })),
              HasSubstr("sent 65 bytes, a slot has 64"));
}

TEST_F(WrongFrameTest, BadBytesAreRejected) {
  const EncodedCollectiveFrame encoded(Chunk());
  const std::vector<std::byte> good(encoded.bytes().begin(), encoded.bytes().end());
  const auto with = [&](size_t at, int value) {
    std::vector<std::byte> bytes = good;
    bytes[at] = static_cast<std::byte>(value);
    return bytes;
  };
  EXPECT_THAT(HandleBytes(2, {}), HasSubstr("0 bytes"));
  EXPECT_THAT(HandleBytes(2, with(0, 1)), HasSubstr("channel 1, must be 2"));
  EXPECT_THAT(HandleBytes(2, with(1, 0)), HasSubstr("type 0"));
  EXPECT_THAT(HandleBytes(2, with(1, 4)), HasSubstr("type 4"));
  EXPECT_THAT(HandleBytes(2, with(1, 1)), HasSubstr("52 bytes, must be 61"));
  EXPECT_THAT(HandleBytes(2, with(1, 14)), HasSubstr("52 bytes, must be 60"));
  EXPECT_THAT(HandleBytes(2, with(1, 15)), HasSubstr("52 bytes, must be 60"));
  EXPECT_THAT(HandleBytes(2, with(3, 1)), HasSubstr("must be 0"));
  EXPECT_THAT(HandleBytes(2, std::span(good).first(43)), HasSubstr("43 bytes, must be 52"));
}

// A frame that looks right, but out of turn: the members of this node fail, with both values.
TEST_F(WrongFrameTest, OutOfTurnFailsTheCollective) {
  CollectiveFrame frame = Chunk();
  frame.index = 3;
  ASSERT_TRUE(cluster_->hub(0).HandleFrame(2, EncodedCollectiveFrame(frame).bytes()).ok());
  const std::string message = FailureOfAPiece();
  EXPECT_THAT(message, HasSubstr("member 2 sent piece 0, item 3"));
  EXPECT_THAT(message, HasSubstr("expected was piece 0, item 0"));
}

TEST_F(WrongFrameTest, AnUnexpectedAcknowledgementFailsTheCollective) {
  CollectiveFrame frame = Chunk();
  frame.type = CollectiveFrame::Type::kAck;
  frame.from = 1;
  frame.index = 2;
  ASSERT_TRUE(cluster_->hub(0).HandleFrame(1, EncodedCollectiveFrame(frame).bytes()).ok());
  RunOn(*environment_, *reactor_, [] {});
  EXPECT_THAT(FailureOfAPiece(),
              HasSubstr("member 1 acknowledged piece 0, item 2 in slot 0; expected was"));
}

TEST_F(WrongFrameTest, APlaceForAnotherCallFailsTheCollective) {
  CollectiveFrame frame = Chunk();
  frame.type = CollectiveFrame::Type::kOffer;
  frame.from = 1;
  frame.key = {.token = 1, .base = 0, .bytes = 77};
  ASSERT_TRUE(cluster_->hub(0).HandleFrame(1, EncodedCollectiveFrame(frame).bytes()).ok());
  EXPECT_THAT(FailureOfAPiece(), HasSubstr("member 1 sent a place for 77 bytes of piece 0"));
}

// Not at once: who takes back what it lent has failed, and says why.
TEST_F(WrongFrameTest, WhatWasNeverLentFailsTheCollective) {
  CollectiveFrame frame = Chunk();
  frame.type = CollectiveFrame::Type::kLent;
  frame.token = 9;
  frame.fingerprint =
      CollectiveFingerprint(MakeSpec(RingCase({0, 1, 2}, CollectiveKind::kAllGather), 7, 0));
  ASSERT_TRUE(cluster_->hub(0).HandleFrame(2, EncodedCollectiveFrame(frame).bytes()).ok());
  const Nanoseconds began = environment_->Now();
  EXPECT_THAT(FailureOfAPiece(), HasSubstr("member 2 lent piece 0, item 0, and took it back"));
  EXPECT_GE(environment_->Now() - began, 5 * kSecond);
}

TEST_F(WrongFrameTest, AWrongFrameClosesTheLink) {
  CollectiveFrame frame = Chunk();
  frame.slot = 100;
  cluster_->nodes().link(2, 0).Send(EncodedCollectiveFrame(frame).bytes());
  EXPECT_THAT(FailureOfAPiece(), HasSubstr("slot 100 of 4"));
  EXPECT_FALSE(cluster_->frame_error().ok());
}

TEST(CollectiveFrameTest, KeepsItsValueOnTheWire) {
  CollectiveFrame key{.type = CollectiveFrame::Type::kKey,
                      .collective = 0xfedcba98,
                      .from = 0x1234,
                      .to = 0xffff,
                      .slot = 4,
                      .bytes = 1 << 20,
                      .key = {.token = 1, .base = 2, .bytes = 3},
                      .fingerprint = 0x1122334455667788,
                      .reads_lent = true};
  EXPECT_EQ(*DecodeCollectiveFrame(EncodedCollectiveFrame(key).bytes()), key);
  CollectiveFrame offer = key;
  offer.type = CollectiveFrame::Type::kOffer;
  offer.slot = 0;
  offer.bytes = 0;
  offer.piece = 1LL << 40;
  offer.reads_lent = false;
  EXPECT_EQ(*DecodeCollectiveFrame(EncodedCollectiveFrame(offer).bytes()), offer);
  CollectiveFrame stand = offer;
  stand.type = CollectiveFrame::Type::kStand;
  stand.piece = 0;
  EXPECT_EQ(*DecodeCollectiveFrame(EncodedCollectiveFrame(stand).bytes()), stand);
  for (const auto type : {CollectiveFrame::Type::kSeen, CollectiveFrame::Type::kRing}) {
    const CollectiveFrame said{.type = type, .collective = 9, .from = 1, .to = 2, .slot = 1};
    EXPECT_EQ(*DecodeCollectiveFrame(EncodedCollectiveFrame(said).bytes()), said);
  }
  const CollectiveFrame lent{.type = CollectiveFrame::Type::kLent,
                             .piece = 5,
                             .index = 6,
                             .bytes = 7,
                             .fingerprint = 8,
                             .token = 1ULL << 63};
  EXPECT_EQ(*DecodeCollectiveFrame(EncodedCollectiveFrame(lent).bytes()), lent);
  CollectiveFrame ack{.type = CollectiveFrame::Type::kAck, .piece = -1, .index = 1LL << 40};
  EXPECT_EQ(*DecodeCollectiveFrame(EncodedCollectiveFrame(ack).bytes()), ack);
  EXPECT_LE(EncodedCollectiveFrame(key).bytes().size(), kMaxFrameBytes);
}

TEST(CollectiveSpecTest, ErrorsSayWhatIsWrong) {
  const CollectiveSpec good = MakeSpec(RingCase({0, 1}), 3, 0);
  EXPECT_TRUE(CheckCollective(good).ok());
  const auto error = [&](const std::function<void(CollectiveSpec&)>& change) {
    CollectiveSpec spec = good;
    change(spec);
    return std::string(CheckCollective(spec).message());
  };
  using Spec = CollectiveSpec;
  EXPECT_THAT(error([](Spec& s) { s.my_rank = 2; }), HasSubstr("rank 2 of 2 members"));
  EXPECT_THAT(error([](Spec& s) { s.members.clear(); }), HasSubstr("0 members"));
  EXPECT_THAT(error([](Spec& s) { s.element_size = 0; }), HasSubstr("element_size is 0"));
  EXPECT_THAT(error([](Spec& s) { s.chunk_bytes = 0; }), HasSubstr("chunk_bytes is 0"));
  EXPECT_THAT(error([](Spec& s) {
                s.counts = {1, 1};
              }),
              HasSubstr("2 counts for 2 members, must be 1"));
  EXPECT_THAT(error([](Spec& s) { s.counts[0] = -4; }), HasSubstr("count -4"));
  EXPECT_THAT(error([](Spec& s) { s.counts[0] = INT64_MAX; }), HasSubstr("too large"));
  EXPECT_THAT(error([](Spec& s) {
                s.kind = CollectiveKind::kAllToAll;
                s.counts = {1, 1};
              }),
              HasSubstr("0 counts of what it receives, must be 2"));
  EXPECT_THAT(error([](Spec& s) {
                s.kind = CollectiveKind::kAllToAll;
                s.counts = {1, 1};
                s.receives = {2, 1};
              }),
              HasSubstr("member 0 sends itself 1 elements and receives 2"));
  EXPECT_THAT(error([](Spec& s) { s.reduce = nullptr; }), HasSubstr("no reduce function"));
  EXPECT_THAT(error([](Spec& s) {
                s.kind = CollectiveKind::kBroadcast;
                s.root = -1;
              }),
              HasSubstr("root -1 of 2"));
  EXPECT_THAT(error([](Spec& s) { s.algorithm = CollectiveAlgorithm::kDirect; }),
              HasSubstr("some on node 0 and some on node 1"));
  EXPECT_THAT(error([](Spec& s) {
                s.algorithm = CollectiveAlgorithm::kExchange;
                s.members[1].node = s.members[0].node;
              }),
              HasSubstr("2 members, the first on node 0 and the last on node 0"));
  EXPECT_THAT(error([](Spec& s) {
                s.algorithm = CollectiveAlgorithm::kHierarchical;
                s.members = {{.node = 0, .host = 1}, {.node = 1}, {.node = 2}};
              }),
              HasSubstr("of 3 members there are 1, 2 on the 2 hosts"));
  EXPECT_THAT(error([](Spec& s) { s.algorithm = static_cast<CollectiveAlgorithm>(9); }),
              HasSubstr("algorithm 9"));
  EXPECT_THAT(error([](Spec& s) { s.kind = static_cast<CollectiveKind>(9); }), HasSubstr("kind 9"));
}

// Landing slots only for what comes from other nodes, staging only where partial sums pass through.
TEST(CollectiveSpecTest, TellsItsMemory) {
  CollectiveCase c = RingCase({0, 1, 2});
  EXPECT_EQ(CollectiveMemoryBytes(MakeSpec(c, 1, 0)), 4 * 64);
  c = RingCase({0, 1, 2}, CollectiveKind::kReduceScatter);
  EXPECT_EQ(CollectiveMemoryBytes(MakeSpec(c, 1, 0)), 4 * 64 + 8 * 64);
  c = RingCase({0, 0, 1});
  EXPECT_EQ(CollectiveMemoryBytes(MakeSpec(c, 1, 0)), 4 * 64);
  EXPECT_EQ(CollectiveMemoryBytes(MakeSpec(c, 1, 1)), 0);
  c.counts = {0};
  EXPECT_EQ(CollectiveMemoryBytes(MakeSpec(c, 1, 0)), 0);
}

TEST(CollectiveHubTest, MembersOfOneNodeMustFitTogether) {
  const auto environment = MakeSimulatedEnvironment(1);
  const auto reactor = environment->StartReactor("member");
  CommCluster cluster(*environment, TransportCases()[0], 1);
  CollectiveHub& hub = cluster.hub(0);
  const CollectiveCase c = RingCase({0, 0});
  const auto error = [&](const CollectiveSpec& spec) {
    return std::string(hub.Create(spec, *reactor, AllocateHostMemory).status().message());
  };
  auto end = hub.Create(MakeSpec(c, 1, 0), *reactor, AllocateHostMemory);
  ASSERT_TRUE(end.ok());
  EXPECT_THAT(error(MakeSpec(c, 1, 0)), HasSubstr("member 0 was created twice"));
  CollectiveCase other = c;
  other.chunk_bytes *= 2;
  EXPECT_THAT(error(MakeSpec(other, 1, 1)), HasSubstr("differs from that of member 0"));
  EXPECT_THAT(error(MakeSpec(RingCase({1, 0}), 2, 0)), HasSubstr("lives on node 1"));
  const CollectiveCase pairs = RingCase({0, 0}, CollectiveKind::kAllToAll);
  auto all_to_all = hub.Create(MakeSpec(pairs, 4, 0), *reactor, AllocateHostMemory);
  ASSERT_TRUE(all_to_all.ok());
  CollectiveSpec less = MakeSpec(pairs, 4, 1);
  less.receives[0] = 199;
  EXPECT_THAT(error(less), HasSubstr("member 0 sends 200 elements to member 1, which expects 199"));
  EXPECT_THAT(error(MakeSpec(RingCase({0, 5}), 3, 0)), HasSubstr("to node 5, and there is none"));
  EXPECT_THAT(std::string(cluster.Connect()[0].message()), HasSubstr("member 1"));
  RunOn(*environment, *reactor, [&] {
    end->reset();
    all_to_all->reset();
  });
}

// As when a job cannot be loaded: what is connected next has nothing to do with it.
TEST(CollectiveHubTest, WhatWasLeftBeforeItWasWholeIsForgotten) {
  const auto environment = MakeSimulatedEnvironment(1);
  const auto reactor = environment->StartReactor("member");
  CommCluster cluster(*environment, TransportCases()[0], 1);
  const CollectiveCase c = RingCase({0, 0});
  auto half = cluster.hub(0).Create(MakeSpec(c, 1, 0), *reactor, AllocateHostMemory);
  ASSERT_TRUE(half.ok());
  RunOn(*environment, *reactor, [&] { half->reset(); });
  auto first = cluster.hub(0).Create(MakeSpec(c, 2, 0), *reactor, AllocateHostMemory);
  auto second = cluster.hub(0).Create(MakeSpec(c, 2, 1), *reactor, AllocateHostMemory);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(cluster.Connect()[0], absl::OkStatus());
  RunOn(*environment, *reactor, [&] {
    first->reset();
    second->reset();
  });
}

// An id is used up once its members have left.
TEST(CollectiveHubTest, IdsAreNotUsedTwice) {
  const auto environment = MakeSimulatedEnvironment(1);
  const auto reactor = environment->StartReactor("member");
  CommCluster cluster(*environment, TransportCases()[0], 1);
  const CollectiveSpec spec = MakeSpec(RingCase({0}), 1, 0);
  auto end = cluster.hub(0).Create(spec, *reactor, AllocateHostMemory);
  ASSERT_TRUE(end.ok());
  RunOn(*environment, *reactor, [&] { end->reset(); });
  EXPECT_THAT(
      std::string(cluster.hub(0).Create(spec, *reactor, AllocateHostMemory).status().message()),
      HasSubstr("used before"));
  ASSERT_TRUE(cluster.Connect()[0].ok());
  EXPECT_THAT(
      std::string(cluster.hub(0).Create(spec, *reactor, AllocateHostMemory).status().message()),
      HasSubstr("used before"));
}

}  // namespace
}  // namespace braid
