// Ranks that move objects and do not make the same calls.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "api/dist_objects.h"
#include "runtime/base/status.h"
#include "tests/dist/dist_case.h"

namespace braid {
namespace {

using ::testing::HasSubstr;

struct ObjectMismatch {
  const char* name;
  RankProgram even, odd;           // odd: of rank 1
  std::vector<std::string> words;  // of the error
};

class ObjectMismatchTest : public ::testing::TestWithParam<ObjectMismatch> {};

TEST_P(ObjectMismatchTest, IsTheSameErrorOnAllRanksAtOnce) {
  const ObjectMismatch& mismatch = GetParam();
  const WorldEnd end = RunWorld(3, [&](dist::World& world) -> absl::Status {
    BRAID_RETURN_IF_ERROR(world.Barrier());
    const absl::Time began = absl::Now();
    absl::Status status = (world.rank() == 1 ? mismatch.odd : mismatch.even)(world);
    // A rank whose own call is done finds out at its next one.
    if (status.ok()) status = world.Barrier();
    return absl::Now() - began < absl::Seconds(1) ? status : absl::InternalError("late");
  });
  for (const absl::Status& status : end.programs) {
    EXPECT_EQ(status, end.programs[0]);
    for (const std::string& words : mismatch.words) {
      EXPECT_THAT(std::string(status.message()), HasSubstr(words));
    }
  }
}

template <typename T>
RankProgram Broadcasts(const T& object, int root, const dist::ObjectOptions& options = {}) {
  return [=](dist::World& world) {
    T own = object;
    return dist::BroadcastObject(world, own, root, options);
  };
}

template <typename T>
RankProgram Gathers(const T& object, int root) {
  return [=](dist::World& world) { return dist::GatherObject(world, object, root).status(); };
}

INSTANTIATE_TEST_SUITE_P(
    Calls, ObjectMismatchTest,
    ::testing::Values(
        ObjectMismatch{"Type",
                       Broadcasts(std::string("a"), 0),
                       Broadcasts(int64_t{1}, 0),
                       {"is not the same on all ranks",
                        "rank 0 (127.0.0.1) is in broadcast of 1 i64, root 0, 'broadcast_object of "
                        "string' (object_mismatch_test.cc:",
                        "rank 1 in broadcast of 1 i64, root 0, 'broadcast_object of i64' "
                        "(object_mismatch_test.cc:"}},
        // Types of the same size, inside of containers.
        ObjectMismatch{
            "InnerType",
            [](dist::World& world) {
              return dist::AllGatherObject(world, std::vector<std::map<int, float>>(2)).status();
            },
            [](dist::World& world) {
              return dist::AllGatherObject(world, std::vector<std::map<int, int>>(2)).status();
            },
            {"'all_gather_object of vector of map of i32 to f32'",
             "'all_gather_object of vector of map of i32 to i32'"}},
        ObjectMismatch{"Root",
                       Broadcasts(1, 0),
                       Broadcasts(1, 2),
                       {"root 0, 'broadcast_object of i32'", "root 2, 'broadcast_object of i32'"}},
        ObjectMismatch{
            "GatherRoot", Gathers(1, 0), Gathers(1, 2), {"of i32, root 0'", "of i32, root 2'"}},
        ObjectMismatch{"Kind",
                       Broadcasts(1, 0),
                       Gathers(1, 0),
                       {"'broadcast_object of i32'", "'gather_object of i32, root 0'"}},
        ObjectMismatch{"Name",
                       Broadcasts(1, 0, {.name = "words"}),
                       Broadcasts(1, 0, {.name = "counts"}),
                       {"'broadcast_object of i32, words'", "'broadcast_object of i32, counts'"}},
        ObjectMismatch{
            "Limit",
            Broadcasts(1, 0),
            Broadcasts(1, 0, {.max_bytes = 20}),
            {"'broadcast_object of i32'", "'broadcast_object of i32, at most 20 bytes'"}},
        ObjectMismatch{"PlainCall",
                       Broadcasts(int64_t{1}, 0),
                       [](dist::World& world) {
                         std::vector<int64_t> one = {1};
                         return world.Broadcast(one, 0);
                       },
                       {"'broadcast_object of i64'", "rank 1 in broadcast of 1 i64, root 0 (obj"}}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace braid
