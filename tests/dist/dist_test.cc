// Every kind of call on every type, operation and several numbers of ranks, beside what a plain
// loop over the ranks' inputs gives.
#include "api/dist.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "runtime/array.h"
#include "runtime/base/status.h"
#include "tests/dist/call_checks.h"
#include "tests/dist/dist_case.h"

namespace braid {
namespace {

using dist::ReduceOp;
using ::testing::HasSubstr;

class DistTest : public RanksAndTransportTest {};

TEST_P(DistTest, EveryCallIsWhatALoopOverTheRanksGives) { ExpectAllWell(RunWorld(CheckTypes)); }

INSTANTIATE_TEST_SUITE_P(Ranks, DistTest,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4, 8),
                                            ::testing::ValuesIn(kTransports)));

class HostsTest : public TransportTest {};
INSTANTIATE_TEST_SUITE_P(Transports, HostsTest, ::testing::ValuesIn(kTransports));

TEST_P(HostsTest, EveryCallIsTheSameFromHostToHost) {
  for (const auto& [ranks, hosts] : std::vector<std::pair<int, int>>{{4, 2}, {6, 3}, {3, 2}}) {
    ExpectAllWell(braid::RunWorld(ranks, CheckTypes, GetParam(), hosts));
  }
}

TEST_P(HostsTest, WhereRanksAreSaysByWhichAlgorithm) {
  for (const auto& [hosts, expected] : std::vector<std::pair<int, std::string>>{
           {2, "hierarchical"},
           {4, "pairwise"},
           {1, std::string(GetParam()) == "tcp" ? "pairwise" : "direct"}}) {
    const std::string& algorithm = expected;  // clang 14 cannot capture the other name
    const auto program = [&algorithm](dist::World& world) -> absl::Status {
      // Much of what is in memory of a rank's own goes from pair to pair over shm, too; little,
      // elsewhere, in doubling steps.
      std::vector<float> data(algorithm == "direct" ? 1000 : 100'000, 1);
      BRAID_RETURN_IF_ERROR(world.AllReduce(data));
      EXPECT_EQ(world.LastAlgorithm(), algorithm);
      return absl::OkStatus();
    };
    ExpectAllWell(braid::RunWorld(4, program, GetParam(), hosts));
  }
}

TEST_P(HostsTest, AGroupMayHaveOneAlgorithmOnly) {
  const bool is_near = std::string(GetParam()) != "tcp";
  const auto program = [is_near](dist::World& world) -> absl::Status {
    for (const std::string algorithm : {"ring", "direct"}) {
      BRAID_ASSIGN_OR_RETURN(const auto group, world.NewGroup({0, 1, 2}, {.algorithm = algorithm}));
      std::vector<float> data(1000, 1);
      const absl::Status sum = group->AllReduce(data);
      if (algorithm == "ring" || is_near) {
        EXPECT_EQ(sum, absl::OkStatus());
        EXPECT_EQ(group->LastAlgorithm(), algorithm);
        EXPECT_EQ(data[999], 3);
      } else {
        EXPECT_THAT(std::string(sum.message()),
                    HasSubstr("between which links are of the transport shm"));
      }
      EXPECT_EQ(group->Barrier().ok(), sum.ok());
    }
    BRAID_ASSIGN_OR_RETURN(const auto by_host,
                           world.NewGroup({2, 1, 0}, {.algorithm = "hierarchical"}));
    std::vector<float> data(1000, 1);
    EXPECT_THAT(std::string(by_host->AllReduce(data).message()),
                HasSubstr("of 3 members there are 3 on the 1 hosts"));
    EXPECT_THAT(std::string(world.NewGroup({0, 1, 2}, {.algorithm = "star"}).status().message()),
                HasSubstr("'star' is no algorithm of process groups"));
    return absl::OkStatus();
  };
  ExpectAllWell(RunWorld(3, program));
}

class WorldTest : public TransportTest {};
INSTANTIATE_TEST_SUITE_P(Transports, WorldTest, ::testing::ValuesIn(kTransports));

struct Particle {
  double position[3];
  char name[5];
};

TEST_P(WorldTest, ElementsThatAreNotComputedOnMayBeAnything) {
  ExpectAllWell(RunWorld(3, [](dist::World& world) -> absl::Status {
    std::vector<Particle> particles(2, Particle{{1.5, 0, static_cast<double>(world.rank())}, "a"});
    BRAID_RETURN_IF_ERROR(world.Broadcast(particles, 2));
    if (particles[1].position[2] != 2 || particles[0].name[0] != 'a') {
      return absl::DataLossError("not the root's");
    }
    const absl::Status sum = world.AllReduce(particles);
    if (absl::IsInvalidArgument(sum) && sum.message().find("sum of bytes") != std::string::npos) {
      return absl::OkStatus();
    }
    return absl::InternalError(absl::StrFormat("a sum of particles: %s", sum.ToString()));
  }));
}

TEST_P(WorldTest, ArraysAreGivenAsTheyAre) {
  ExpectAllWell(RunWorld(2, [](dist::World& world) -> absl::Status {
    for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kF16, DType::kI32,
                              DType::kI64, DType::kU8, DType::kBool}) {
      Array own = Array::FromVector<float>({2, 3}, {0, 1, 0, 1, 1, 0}).As(dtype);
      Array all(dtype, Shape({4, 3}));
      BRAID_RETURN_IF_ERROR(world.AllGather(own, all));
      BRAID_RETURN_IF_ERROR(world.AllReduce(own, ReduceOp::kMax));
      const std::vector<float> one = {0, 1, 0, 1, 1, 0};
      const Array numbers = own.As(DType::kF32), gathered = all.As(DType::kF32);
      if (!std::ranges::equal(numbers.data<float>(), one) ||
          !std::ranges::equal(gathered.data<float>().first(6), one) ||
          !std::ranges::equal(gathered.data<float>().last(6), one)) {
        return absl::DataLossError(std::string(ToString(dtype)));
      }
    }
    return absl::OkStatus();
  }));
}

// Larger than what travels at a time.
struct Frame {
  char pixels[300'000];
};

TEST_P(WorldTest, OneElementMayTakeManyChunks) {
  ExpectAllWell(RunWorld(2, [](dist::World& world) -> absl::Status {
    std::vector<Frame> own(1), all(2);
    std::ranges::fill(own[0].pixels, static_cast<char>('a' + world.rank()));
    BRAID_RETURN_IF_ERROR(world.AllGather(own, all));
    for (int rank = 0; rank < 2; ++rank) {
      for (const char pixel : all[rank].pixels) {
        if (pixel != 'a' + rank) return absl::DataLossError("a wrong pixel");
      }
    }
    return absl::OkStatus();
  }));
}

TEST_P(WorldTest, MuchDataTakesManyChunks) {
  ExpectAllWell(RunWorld(3, [](dist::World& world) -> absl::Status {
    std::vector<float> data(16 << 20, static_cast<float>(1 + world.rank()));
    BRAID_RETURN_IF_ERROR(world.AllReduce(data));
    if (std::ranges::all_of(data, [](float value) { return value == 6; })) return absl::OkStatus();
    return absl::DataLossError("64 MiB are not summed");
  }));
}

TEST_P(WorldTest, AHundredCallsAreUnderWayAtATime) {
  ExpectAllWell(RunWorld(3, CheckAHundredCalls));
}

// Without a call that waits.
bool ComesToItsEnd(const dist::Work& work) {
  const absl::Time last = absl::Now() + absl::Seconds(60);
  while (!work.Test() && absl::Now() < last) absl::SleepFor(absl::Milliseconds(1));
  return work.Test();
}

TEST_P(WorldTest, AWorkHasTheStatusOfItsEnd) {
  EXPECT_EQ(dist::Work().status(), absl::OkStatus());
  ExpectAllWell(RunWorld(2, [](dist::World& world) -> absl::Status {
    std::vector<float> data(3), word(1);
    if (world.rank() == 1) {
      BRAID_RETURN_IF_ERROR(world.Receive(word, 0, 1));
      return world.Send(data, 0);
    }
    const dist::Work receive = world.StartReceive(data, 1);
    EXPECT_FALSE(receive.Test()) << "the other rank waits for a word";
    EXPECT_EQ(receive.status(), absl::OkStatus());
    BRAID_RETURN_IF_ERROR(world.Send(word, 1, 1));
    EXPECT_TRUE(ComesToItsEnd(receive));
    EXPECT_EQ(receive.status(), absl::OkStatus());
    const dist::Work wrong = world.StartSend(data, 7);
    EXPECT_TRUE(wrong.Test());
    EXPECT_TRUE(absl::IsInvalidArgument(wrong.status())) << wrong.status();
    return absl::OkStatus();
  }));
}

TEST_P(WorldTest, AWorkThatFailedSaysWhy) {
  const WorldEnd end = RunWorld(2, [](dist::World& world) -> absl::Status {
    std::vector<float> data(3 + world.rank());
    dist::Work sum = world.StartAllReduce(data);
    EXPECT_TRUE(ComesToItsEnd(sum));
    const absl::Status status = sum.status();
    EXPECT_EQ(sum.Wait(), status);
    return status;
  });
  for (const absl::Status& status : end.programs) {
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(status.message()),
                ::testing::HasSubstr("call 0 is not the same on all ranks"));
  }
}

TEST_P(WorldTest, GroupsWorkBesideEachOther) { ExpectAllWell(RunWorld(4, CheckGroupsOfFour)); }

TEST_P(WorldTest, ARankMayComeLate) {
  ExpectAllWell(RunWorld(2, [](dist::World& world) -> absl::Status {
    if (world.rank() == 1) absl::SleepFor(absl::Seconds(1.2));
    std::vector<float> data = {1};
    BRAID_RETURN_IF_ERROR(world.AllReduce(data));
    // One rank has ended its part long before the other does.
    if (world.rank() == 0) absl::SleepFor(absl::Seconds(0.5));
    return data[0] == 2 ? absl::OkStatus() : absl::DataLossError("no sum");
  }));
}

// Errors of one rank's arguments are its own: the call is not made, and the next one works.
TEST_P(WorldTest, WrongArgumentsAreSaidAndForgotten) {
  ExpectAllWell(RunWorld(2, [](dist::World& world) -> absl::Status {
    std::vector<float> three(3), four(4), other(3);
    const std::vector<int64_t> receives =
        world.rank() == 0 ? std::vector<int64_t>{1, 2} : std::vector<int64_t>{2, 1};
    std::vector<double> doubles(2);
    const std::vector<std::pair<absl::Status, std::string>> mistakes = {
        {world.AllGather(three, four), "the input has 3 elements; the counts say 2"},
        {world.AllGather(three, other), "3 elements, which are no equal blocks for 2 ranks"},
        {world.AllGather(three, four, {3}),
         "the counts are {3}; one from 0 on for each of 2 ranks"},
        {world.AllGather(three, four, {3, -1}), "the counts are {3, -1}"},
        {world.ReduceScatter(four, doubles), "the input is of f32 (4 bytes each) and the output"},
        {world.AllGather(std::span(four).first(2), std::span(four)), "input and output overlap"},
        {world.Broadcast(three, 2), "root is 2, and the group has ranks 0 to 1"},
        {world.Reduce(three, -1), "root is -1"},
        {world.AllReduce(three, ReduceOp::kXor), "xor of f32 is not defined"},
        {world.AllToAll(four, three, {2, 2}, receives), "sends itself"},
        {world.NewGroup({0, 2}).status(), "2 is no rank of the world, which has 0 to 1"},
        {world.NewGroup({0, 0}).status(), "rank 0 is in it twice"},
        {world.NewGroup({1 - world.rank()}).status(), "which is not in it"},
    };
    for (const auto& [status, words] : mistakes) {
      if (!absl::IsInvalidArgument(status) || status.message().find(words) == std::string::npos) {
        return absl::InternalError(absl::StrFormat("%s; not '%s'", status.ToString(), words));
      }
    }
    return world.AllReduce(four);
  }));
}

TEST(WorldOfOneTest, NeedsNoNetwork) {
  auto world = dist::World::Init(
      {.environment = [](const std::string&) { return std::optional<std::string>(); }});
  ASSERT_TRUE(world.ok()) << world.status();
  EXPECT_EQ((*world)->size(), 1);
  EXPECT_EQ(CheckTypes(**world), absl::OkStatus());
  EXPECT_EQ((*world)->Close(), absl::OkStatus());
  std::vector<float> data = {1};
  EXPECT_FALSE((*world)->AllReduce(data).ok()) << "after its end";
}

}  // namespace
}  // namespace braid
