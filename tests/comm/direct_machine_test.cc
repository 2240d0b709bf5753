// Members that read each other's memory: calls give what a ring gives, bit for bit, over every
// transport that lends; and what a wrong member says fails the call with its words.
#include "comm/collective/direct_machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "tests/comm/comm_cluster.h"

namespace braid {
namespace {

using ::testing::HasSubstr;

void AddFloats(void* dst, const void* a, const void* b, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    static_cast<float*>(dst)[i] = static_cast<const float*>(a)[i] + static_cast<const float*>(b)[i];
  }
}

// Machines on the nodes of a cluster, whose links carry nothing but frames of stands.
class Members {
 public:
  Members(Environment& environment, const TransportCase& transport, int p)
      : environment_(environment), nodes_(environment, transport, p) {
    for (int rank = 0; rank < p; ++rank) {
      machines_.push_back(std::make_unique<DirectMachine>(DirectMachine::Options{
          .member = {.reactor = &nodes_.reactor(rank),
                     .my_rank = rank,
                     .members = p,
                     .id = 7,
                     .allocate = nodes_.allocate(rank),
                     .link_to = [this, rank](int other) { return &nodes_.link(rank, other); }},
          .name = "the group",
          .on_unexpected =
              [this, rank](int from, int64_t piece, const std::string& what) {
                MutexLock lock(mutex_);
                wrong_[rank] = absl::StrFormat("%d, %d: %s", from, piece, what);
              },
          .fail =
              [this, rank](const absl::Status& status) {
                MutexLock lock(mutex_);
                wrong_[rank] = std::string(status.message());
              }}));
    }
    wrong_.resize(p);
    for (int rank = 0; rank < p; ++rank) {
      for (int from = 0; from < p; ++from) {
        if (from == rank) continue;
        nodes_.link(rank, from).SetHandler([this, rank](std::span<const std::byte> frame) {
          const auto decoded = DecodeCollectiveFrame(frame);
          ASSERT_TRUE(decoded.ok()) << decoded.status();
          EXPECT_EQ(machine(rank).stands().HandleFrame(*decoded), absl::OkStatus());
        });
      }
    }
    std::vector<std::unique_ptr<Outcome>> opened;
    for (int rank = 0; rank < p; ++rank) {
      opened.push_back(std::make_unique<Outcome>(environment_));
      On(rank, [&] { machine(rank).stands().Open(opened[rank]->callback()); });
    }
    for (const auto& outcome : opened) EXPECT_EQ(outcome->Wait(), absl::OkStatus());
  }

  ~Members() {
    for (int rank = 0; rank < p(); ++rank) {
      On(rank, [&] {
        machine(rank).Abort(absl::CancelledError("the test ends"));
        machine(rank).stands().Close();
      });
    }
  }

  int p() const { return static_cast<int>(machines_.size()); }
  DirectMachine& machine(int rank) { return *machines_[rank]; }
  LinkedNodes& nodes() { return nodes_; }
  void On(int rank, const std::function<void()>& fn) {
    RunOn(environment_, nodes_.reactor(rank), fn);
  }
  // What it heard is wrong; waits for it.
  std::string Wrong(int rank) {
    for (int i = 0; i < 1000; ++i) {
      {
        MutexLock lock(mutex_);
        if (!wrong_[rank].empty()) return wrong_[rank];
      }
      const std::unique_ptr<Event> later = environment_.MakeEvent();
      On(rank,
         [&] { nodes_.reactor(rank).RunAfter(10 * kMillisecond, [&later] { later->Set(); }); });
      EXPECT_EQ(environment_.Await(*later, kTestTimeout), absl::OkStatus());
    }
    return "";
  }

 private:
  Environment& environment_;
  Mutex mutex_;
  std::vector<std::string> wrong_;
  LinkedNodes nodes_;
  std::vector<std::unique_ptr<DirectMachine>> machines_;
};

CollectiveSpec SpecFor(CollectiveKind kind, int p, int rank, int64_t count) {
  CollectiveSpec spec{.id = 7, .kind = kind, .my_rank = rank, .element_size = sizeof(float)};
  for (int r = 0; r < p; ++r) spec.members.push_back({.node = static_cast<uint16_t>(r)});
  const bool is_one = kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kBroadcast;
  if (is_one) {
    spec.counts = {count};
  } else {
    // Uneven ones, and one that is empty.
    for (int r = 0; r < p; ++r) spec.counts.push_back(r == 1 && p > 2 ? 0 : count + 3 * r);
  }
  if (kind == CollectiveKind::kAllToAll) spec.receives.assign(p, spec.counts[rank]);
  spec.reduce = AddFloats;
  spec.root = p - 1;
  return spec;
}

int64_t Sum(const std::vector<int64_t>& counts, int n) {
  return std::accumulate(counts.begin(), counts.begin() + n, int64_t{0});
}

// What a member gives and gets.
struct Data {
  CollectiveSpec spec;
  std::vector<float> input, expected;
};

std::vector<Data> MakeData(CollectiveKind kind, int p, int64_t count, uint64_t seed) {
  std::mt19937 random(seed);
  std::vector<Data> data(p);
  for (int rank = 0; rank < p; ++rank) {
    Data& mine = data[rank];
    mine.spec = SpecFor(kind, p, rank, count);
    mine.input.resize(kind == CollectiveKind::kAllGather
                          ? mine.spec.counts[rank]
                          : Sum(mine.spec.counts, mine.spec.counts.size()));
    for (float& value : mine.input) value = static_cast<float>(random()) * 1e-6F;
  }
  const auto sum_of = [&](int block, int64_t at) {
    float sum = data[(block + 1) % p].input[at];
    for (int k = 2; k <= p; ++k) sum += data[(block + k) % p].input[at];
    return sum;
  };
  for (int rank = 0; rank < p; ++rank) {
    Data& mine = data[rank];
    const std::vector<int64_t>& counts = mine.spec.counts;
    switch (kind) {
      case CollectiveKind::kAllReduce:
        for (int block = 0; block < p; ++block) {
          for (int64_t i = 0; i < EvenBlock(count, p, block); ++i) {
            mine.expected.push_back(sum_of(block, static_cast<int64_t>(mine.expected.size())));
          }
        }
        break;
      case CollectiveKind::kReduceScatter:
        for (int64_t i = 0; i < counts[rank]; ++i) {
          mine.expected.push_back(sum_of(rank, Sum(counts, rank) + i));
        }
        break;
      case CollectiveKind::kBroadcast:
        mine.expected = data[mine.spec.root].input;
        break;
      case CollectiveKind::kAllGather:
        for (const Data& from : data)
          std::ranges::copy(from.input, std::back_inserter(mine.expected));
        break;
      case CollectiveKind::kAllToAll:
        for (const Data& from : data) {
          const auto begin = from.input.begin() + Sum(from.spec.counts, rank);
          mine.expected.insert(mine.expected.end(), begin, begin + from.spec.counts[rank]);
        }
        break;
    }
  }
  return data;
}

struct CaseName {
  template <typename T>
  std::string operator()(const T& info) const {
    return info.param.name;
  }
};

std::vector<TransportCase> CasesThatLend() {
  std::vector<TransportCase> cases = TransportCases();
  std::erase_if(cases, [](const TransportCase& transport) { return !transport.lends; });
  return cases;
}

class DirectMachineTest : public ::testing::TestWithParam<TransportCase> {
 protected:
  // One call of all members, in memory that is lent: of each, what it got.
  static std::vector<std::vector<float>> Call(Members& members, const std::vector<Data>& data,
                                              int64_t piece, bool in_place) {
    const int p = members.p();
    std::vector<Memory> inputs, outputs;
    std::vector<std::unique_ptr<Outcome>> done;
    for (int rank = 0; rank < p; ++rank) {
      inputs.push_back(members.nodes().Landing(rank, std::as_bytes(std::span(data[rank].input))));
      outputs.push_back(members.nodes().Landing(
          rank, std::vector<std::byte>(data[rank].expected.size() * sizeof(float))));
      done.push_back(std::make_unique<Outcome>(*environment_));
    }
    const std::vector<int64_t> even = {};
    for (int rank = 0; rank < p; ++rank) {
      members.On(rank, [&] {
        members.machine(rank).Start(
            {.spec = &data[rank].spec,
             .blocks = &even,
             .piece = piece,
             .signature = 5,
             .input = inputs[rank].data(),
             .output = in_place ? inputs[rank].data() : outputs[rank].data()},
            done[rank]->callback(), [] { FAIL() << "all of it can be lent"; });
      });
    }
    std::vector<std::vector<float>> got(p);
    for (int rank = 0; rank < p; ++rank) {
      EXPECT_EQ(done[rank]->Wait(), absl::OkStatus());
      got[rank].resize(data[rank].expected.size());
      const Memory& result = in_place ? inputs[rank] : outputs[rank];
      if (!got[rank].empty()) {
        std::memcpy(got[rank].data(), result.data(), got[rank].size() * sizeof(float));
      }
    }
    return got;
  }

  static inline const std::unique_ptr<Environment> environment_ = MakeRealEnvironment();
};

TEST_P(DirectMachineTest, GivesTheBitsOfARing) {
  for (const int p : {2, 3}) {
    Members members(*environment_, GetParam(), p);
    ASSERT_TRUE(members.machine(0).stands().is_open());
    int64_t piece = 0;
    for (const int64_t count : {1, 700, 5000, 300'000, 2'500'000}) {
      for (const CollectiveKind kind :
           {CollectiveKind::kAllReduce, CollectiveKind::kReduceScatter, CollectiveKind::kAllGather,
            CollectiveKind::kBroadcast, CollectiveKind::kAllToAll}) {
        const std::vector<Data> data = MakeData(kind, p, count, piece);
        for (const bool in_place : {false, true}) {
          if (in_place && kind != CollectiveKind::kAllReduce) continue;
          const auto got = Call(members, data, piece++, in_place);
          for (int rank = 0; rank < p; ++rank) {
            ASSERT_TRUE(got[rank] == data[rank].expected)
                << CollectiveKindName(kind) << " of " << count << ", rank " << rank << " of " << p;
          }
        }
      }
    }
  }
}

TEST_P(DirectMachineTest, WhatCannotBeLentIsLeftToOthersOnAllMembers) {
  // Of a process all memory can be lent.
  const bool is_able = GetParam().name == "loopback";
  Members members(*environment_, GetParam(), 2);
  const std::vector<Data> data = MakeData(CollectiveKind::kAllReduce, 2, 100'000, 1);
  const std::vector<int64_t> even = {};
  std::vector<float> elsewhere = data[0].input;
  const Memory lendable = members.nodes().Landing(1, std::as_bytes(std::span(data[1].input)));
  std::vector<std::unique_ptr<Outcome>> ends;
  for (int rank = 0; rank < 2; ++rank) {
    ends.push_back(std::make_unique<Outcome>(*environment_));
    auto* const memory =
        rank == 0 ? reinterpret_cast<std::byte*>(elsewhere.data()) : lendable.data();
    members.On(rank, [&] {
      members.machine(rank).Start(
          {.spec = &data[rank].spec, .blocks = &even, .input = memory, .output = memory},
          ends[rank]->callback(),
          [&ends, rank] { ends[rank]->Take(absl::FailedPreconditionError("it is unable")); });
    });
  }
  for (const auto& end : ends) EXPECT_EQ(end->Wait().ok(), is_able);
  EXPECT_EQ(elsewhere, is_able ? data[0].expected : data[0].input);
  const auto got = Call(members, data, 1, /*in_place=*/true);
  EXPECT_TRUE(got[0] == data[0].expected && got[1] == data[1].expected);
}

TEST_P(DirectMachineTest, WhatItSaidIsTakenOnceTheOthersHaveEnded) {
  Members members(*environment_, GetParam(), 2);
  const std::vector<Data> data = MakeData(CollectiveKind::kBroadcast, 2, 100, 1);
  EXPECT_EQ(members.machine(0).FirstNotTaken(), -1);
  Call(members, data, 0, /*in_place=*/false);
  Outcome taken(*environment_);
  members.On(0, [&] { members.machine(0).WhenTaken([&taken] { taken.Take(absl::OkStatus()); }); });
  EXPECT_EQ(taken.Wait(), absl::OkStatus());
  members.On(0, [&] { EXPECT_EQ(members.machine(0).FirstNotTaken(), -1); });
}

INSTANTIATE_TEST_SUITE_P(Transports, DirectMachineTest, ::testing::ValuesIn(CasesThatLend()),
                         CaseName());

// Member 0 is right, and member 1 is what the test says; in simulated time.
class WrongMemberTest : public ::testing::Test {
 protected:
  Stands& theirs() { return members_->machine(1).stands(); }

  // Member 1 says this of the all_reduce in which member 0 is.
  std::string WhatMember0Hears(const std::function<void()>& say) {
    members_->On(1, say);
    members_->On(0, [&] {
      members_->machine(0).Start(
          {.spec = &data_[0].spec,
           .blocks = &even_,
           .piece = 0,
           .signature = 5,
           .input = reinterpret_cast<std::byte*>(data_[0].input.data()),
           .output = reinterpret_cast<std::byte*>(data_[0].input.data())},
          [](const absl::Status& status) {
            EXPECT_THAT(std::string(status.message()), HasSubstr("the test ends"));
          },
          [] { FAIL() << "all of it can be lent"; });
    });
    return members_->Wrong(0);
  }

  static TransportCase Loopback() {
    for (const TransportCase& transport : TransportCases()) {
      if (transport.name == "loopback") return transport;
    }
    return {};
  }

  const std::unique_ptr<Environment> environment_ = MakeSimulatedMachine(1);
  const std::vector<int64_t> even_ = {};
  std::vector<Data> data_ = MakeData(CollectiveKind::kAllReduce, 2, 100'000, 1);
  std::unique_ptr<Members> members_ = std::make_unique<Members>(*environment_, Loopback(), /*p=*/2);
};

TEST_F(WrongMemberTest, AnotherCallIsNamed) {
  EXPECT_EQ(WhatMember0Hears([&] {
              theirs().board() = {.piece = 0, .signature = 6, .is_able = 1};
              theirs().Arrive();
            }),
            "1, 0: piece 0, of signature 6; expected was piece 0, of 5");
}

TEST_F(WrongMemberTest, OtherBytesAreNamed) {
  EXPECT_EQ(
      WhatMember0Hears([&] {
        theirs().board() = {.piece = 0, .signature = 5, .is_able = 1};
        theirs().offer(0) = {.bytes = 8, .token = 3, .target = 4};
        theirs().Arrive();
      }),
      "1, 0: 8 bytes of piece 0, at 0 or by key 3, and a place by key 4; expected were 200000 "
      "bytes of elements of 4, and keys");
}

TEST_F(WrongMemberTest, WhoArrivesTooOftenIsNamed) {
  EXPECT_EQ(WhatMember0Hears([&] {
              for (int i = 0; i < 3; ++i) theirs().Arrive();
            }),
            "rank 1 arrived 3 times, before 0; expected were up to 2");
}

// As who leaves before the others have come.
TEST_F(WrongMemberTest, WhoShowsItsStandNoMoreFailsTheCall) {
  EXPECT_EQ(WhatMember0Hears([&] { theirs().Close(); }),
            "the group: rank 1 took back what it had lent for call 0 before the call ended");
}

// Not at once: who takes back what it lent has failed, and says why.
TEST_F(WrongMemberTest, WhatIsTakenBackFailsTheCall) {
  const Nanoseconds began = environment_->Now();
  EXPECT_EQ(WhatMember0Hears([&] {
              theirs().board() = {.piece = 0, .signature = 5, .is_able = 1, .is_lending = 1};
              theirs().offer(0) = {.bytes = 200'000, .token = 77, .target = 78};
              theirs().Arrive();
            }),
            "the group: rank 1 took back what it had lent for call 0 before the call ended");
  EXPECT_GE(environment_->Now() - began, 5 * kSecond);
}

TEST_F(WrongMemberTest, FramesThatCannotBeAreErrors) {
  members_->On(1, [&] {
    using Type = CollectiveFrame::Type;
    EXPECT_THAT(std::string(theirs().HandleFrame({.type = Type::kStand, .from = 0}).message()),
                HasSubstr("rank 0 shows its stand twice"));
    EXPECT_THAT(std::string(theirs().HandleFrame({.type = Type::kSeen, .slot = 1}).message()),
                HasSubstr("rank 0 says 1 of the stands"));
    EXPECT_THAT(std::string(theirs().HandleFrame({.type = Type::kAck}).message()),
                HasSubstr("a frame of type 3, which is none of stands"));
    EXPECT_EQ(theirs().HandleFrame({.type = Type::kRing}), absl::OkStatus());
  });
}

}  // namespace
}  // namespace braid
