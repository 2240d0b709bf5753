// Worlds in one thread, in orders that seeds draw, over simulated TCP that splits and delays, or
// over the loopback: every call gives what it gives elsewhere, ranks that do not make the same
// calls are told so, and a fault ends all ranks with one cause; nobody ever gets a wrong number.
//
// BRAID_SIM_SEEDS=100 runs fewer seeds, BRAID_SIM_FIRST=n starts at seed n (to replay one).
#include "tests/simulation/sim_world.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "api/dist_store.h"
#include "runtime/base/seeded_choice.h"
#include "runtime/base/status.h"
#include "tests/dist/call_checks.h"
#include "tests/support/from_environment.h"

namespace braid {
namespace {

// Sends round a ring, which all begin at once, and what the store counts.
absl::Status CheckRingAndStore(dist::World& world) {
  const int ranks = world.size(), rank = world.rank();
  std::vector<int64_t> mine(3000, rank), theirs(3000);
  dist::Work sent = world.StartSend(mine, (rank + 1) % ranks, /*tag=*/7);
  BRAID_RETURN_IF_ERROR(world.Receive(theirs, (rank + ranks - 1) % ranks, /*tag=*/7));
  BRAID_RETURN_IF_ERROR(sent.Wait());
  if (theirs[2999] != (rank + ranks - 1) % ranks) return absl::DataLossError("the ring");
  BRAID_RETURN_IF_ERROR(world.store().Add("ranks", 1).status());
  BRAID_RETURN_IF_ERROR(world.Barrier());
  BRAID_ASSIGN_OR_RETURN(const int64_t count, world.store().Add("ranks", 0));
  return count == ranks ? absl::OkStatus() : absl::DataLossError("the store's count");
}

using Program = std::function<absl::Status(dist::World&, const Environment&)>;

// What a seed's ranks do.
Program ProgramOf(uint64_t seed) {
  return [seed](dist::World& world, const Environment&) -> absl::Status {
    if (seed % 4 == 0) return CheckAHundredCalls(world);
    if (seed % 4 > 1) return CheckDrawnCalls(world, seed, 6);
    if (world.size() == 4) BRAID_RETURN_IF_ERROR(CheckGroupsOfFour(world));
    return world.size() == 1 ? absl::OkStatus() : CheckRingAndStore(world);
  };
}

// One seed in three goes over the loopback.
std::string TransportOf(uint64_t seed) { return seed % 3 == 2 ? "loopback" : "tcp"; }

// Twenty seeds in forty put the ranks on two machines, so that worlds of four or eight use the
// hierarchical algorithm.
int HostsOf(uint64_t seed) { return seed / 20 % 2 == 0 ? 0 : 2; }

// "" or which program got a wrong number, or which one's end nobody noticed.
std::string WrongPrograms(const SimWorldOutcome& outcome) {
  const bool is_well = std::ranges::all_of(
      outcome.nodes, [](const auto& node) { return node.was_killed || node.status.ok(); });
  for (size_t rank = 0; rank < outcome.programs.size(); ++rank) {
    const absl::Status& status = outcome.programs[rank];
    if (is_well ? !status.ok() : absl::IsDataLoss(status) && !outcome.nodes[rank].was_killed) {
      return absl::StrFormat("rank %d: %s", rank, status.ToString());
    }
  }
  return "";
}

class SimWorldTest : public ::testing::Test {
 protected:
  const uint64_t first_ = FromEnvironment("BRAID_SIM_FIRST", 1);
  const uint64_t seeds_ = FromEnvironment("BRAID_SIM_SEEDS", 2000);
};

TEST_F(SimWorldTest, EveryCallIsRightUnderEverySeed) {
  constexpr int kRanks[] = {1, 2, 3, 4, 8};
  for (uint64_t seed = first_; seed < first_ + seeds_; ++seed) {
    const SimWorldOptions options{.seed = seed,
                                  .ranks = kRanks[seed / 4 % std::size(kRanks)],
                                  .hosts = HostsOf(seed),
                                  .transport = TransportOf(seed),
                                  .program = ProgramOf(seed)};
    const SimWorldOutcome outcome = RunSimWorld(options);
    ASSERT_EQ(CheckEnds({}, options.join_timeout, outcome), "") << "seed " << seed;
    for (const absl::Status& status : outcome.programs) {
      ASSERT_EQ(status, absl::OkStatus()) << "seed " << seed;
    }
  }
}

TEST_F(SimWorldTest, ASeedReplays) {
  uint64_t digests[3];
  for (int i = 0; i < 3; ++i) {
    digests[i] = RunSimWorld({.seed = first_ + (i == 2), .program = ProgramOf(3)}).digest;
  }
  EXPECT_EQ(digests[0], digests[1]);
  EXPECT_NE(digests[0], digests[2]);
}

TEST_F(SimWorldTest, AFaultEndsAllRanksWithOneCause) {
  std::map<std::string, int> counts;
  for (uint64_t seed = first_; seed < first_ + seeds_ / 4; ++seed) {
    SimWorldOptions options{.seed = seed,
                            .ranks = 2 + static_cast<int>(seed % 3),
                            .hosts = HostsOf(seed),
                            .program = ProgramOf(seed / 3)};
    const Nanoseconds horizon = RunSimWorld(options).end;
    options.faults = {DrawFault(seed, options.ranks, horizon, SimFault::Kind::kNoDescriptors)};
    const SimWorldOutcome outcome = RunSimWorld(options);
    const std::string what = absl::StrFormat("seed %d, %s", seed, options.faults[0].ToString());
    ASSERT_EQ(CheckEnds(options.faults, options.join_timeout, outcome), "") << what;
    ASSERT_EQ(WrongPrograms(outcome), "") << what;
    const bool is_ok = std::ranges::all_of(
        outcome.nodes, [](const auto& node) { return !node.was_killed && node.status.ok(); });
    ++counts[is_ok ? "finished" : "failed"];
  }
  constexpr uint64_t kEnough = 100;  // sanitizers have fewer, of which none need hit anything
  if (seeds_ >= kEnough) {
    EXPECT_GT(counts["failed"], 0) << "no fault hit anything";
  }
}

// Where the rest of a world's life is short, most faults come while its ranks meet.
TEST_F(SimWorldTest, AFaultWhileRanksJoinEndsAllWithOneCause) {
  for (uint64_t seed = first_; seed < first_ + seeds_; ++seed) {
    SimWorldOptions options{.seed = seed,
                            .ranks = 4,
                            .transport = TransportOf(seed),
                            .program = [](dist::World&, const Environment&) -> absl::Status {
                              return absl::OkStatus();
                            }};
    const Nanoseconds horizon = RunSimWorld(options).end;
    options.faults = {DrawFault(seed, options.ranks, horizon, SimFault::Kind::kCut)};
    const SimWorldOutcome outcome = RunSimWorld(options);
    ASSERT_EQ(CheckEnds(options.faults, options.join_timeout, outcome), "")
        << "seed " << seed << ", " << options.faults[0].ToString();
  }
}

// One of several calls of so many elements; no two of them fit together.
absl::Status MakeCall(dist::World& world, uint64_t which, int64_t count) {
  std::vector<float> usual(count, 1), more(count + 1, 1), all(count * world.size());
  std::vector<int32_t> integers(count, 1);
  switch (which) {
    case 0:
      return world.AllReduce(usual);
    case 1:
      return world.AllReduce(more);
    case 2:
      return world.AllReduce(integers);
    case 3:
      return world.AllReduce(usual, dist::ReduceOp::kMax);
    case 4:
      return world.Broadcast(usual, 0);
    case 5:
      return world.Broadcast(usual, 1);
    case 6:
      return world.AllGather(usual, all);
    default:
      return world.Barrier();
  }
}

TEST_F(SimWorldTest, RanksThatDoNotMakeTheSameCallAreAllToldSo) {
  constexpr Nanoseconds kBound = kSecond;
  for (uint64_t seed = first_; seed < first_ + seeds_; ++seed) {
    SeededChoice choice(seed);
    const int ranks = 2 + static_cast<int>(choice.Below(3));
    const uint64_t its = choice.Below(8), other = (its + 1 + choice.Below(7)) % 8;
    const int odd = static_cast<int>(choice.Below(ranks));
    const uint64_t before = choice.Below(3);
    const int64_t count = choice.Below(4) == 0 ? 600'000 : 4;  // many take turns of the slots
    Nanoseconds began = 0;  // when the last rank made the call that does not fit
    const Program program = [&](dist::World& world, const Environment& clock) {
      for (uint64_t call = 0; call < before; ++call) {
        if (auto status = MakeCall(world, call, count); !status.ok()) return status;
      }
      began = clock.Now();
      return MakeCall(world, world.rank() == odd ? other : its, count);
    };
    const SimWorldOutcome outcome = RunSimWorld({.seed = seed,
                                                 .ranks = ranks,
                                                 .hosts = HostsOf(seed),
                                                 .transport = TransportOf(seed),
                                                 .program = program});
    const std::string what =
        absl::StrFormat("seed %d: after %d calls, rank %d of %d makes call %d, the others %d\n%s",
                        seed, before, odd, ranks, other, its, outcome.ToString());
    ASSERT_EQ(outcome.left_over, "") << what;
    const absl::Status& cause = outcome.nodes[0].status;
    ASSERT_TRUE(absl::StrContains(
        cause.message(),
        absl::StrFormat("the world: call %d is not the same on all ranks", before)))
        << what << ": " << cause;
    for (int rank = 0; rank < ranks; ++rank) {
      ASSERT_TRUE(outcome.nodes[rank].has_ended) << what;
      ASSERT_EQ(outcome.nodes[rank].status, cause) << what;
      ASSERT_LT(outcome.nodes[rank].ended - began, kBound) << what;
      // A root may have sent all that it sends before another rank is known to want something else.
      ASSERT_TRUE(outcome.programs[rank].ok() || outcome.programs[rank] == cause)
          << what << ": " << outcome.programs[rank];
    }
  }
}

}  // namespace
}  // namespace braid
