// Ranks that move objects and do not make the same calls.
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "api/dist_objects.h"
#include "tests/dist/mismatches.h"

namespace braid {
namespace {

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

}  // namespace

std::vector<Mismatch> ObjectMismatches() {
  const std::string line = " (object_mismatches.cc:";
  const std::string of_string = "broadcast of 1 i64, root 0, 'broadcast_object of string'" + line;
  const std::string of_i64 = "broadcast of 1 i64, root 0, 'broadcast_object of i64'" + line;
  return {
      {"Type",
       Apart(Broadcasts(std::string("a"), 0), Broadcasts(int64_t{1}, 0)),
       {"is not the same on all ranks",
        "rank 0 (127.0.0.1) is in " + of_string + "|rank 2 in " + of_string,
        "rank 1 in " + of_i64 + "|rank 1 is in " + of_i64}},
      // Types of the same size, inside of containers.
      {"InnerType",
       Apart(
           [](dist::World& world) {
             return dist::AllGatherObject(world, std::vector<std::map<int, float>>(2)).status();
           },
           [](dist::World& world) {
             return dist::AllGatherObject(world, std::vector<std::map<int, int>>(2)).status();
           }),
       {"'all_gather_object of vector of map of i32 to f32'",
        "'all_gather_object of vector of map of i32 to i32'"}},
      {"Root",
       Apart(Broadcasts(1, 0), Broadcasts(1, 2)),
       {"root 0, 'broadcast_object of i32'", "root 2, 'broadcast_object of i32'"}},
      {"GatherRoot", Apart(Gathers(1, 0), Gathers(1, 2)), {"of i32, root 0'", "of i32, root 2'"}},
      {"Kind",
       Apart(Broadcasts(1, 0), Gathers(1, 0)),
       {"'broadcast_object of i32'", "'gather_object of i32, root 0'"}},
      {"Name",
       Apart(Broadcasts(1, 0, {.name = "words"}), Broadcasts(1, 0, {.name = "counts"})),
       {"'broadcast_object of i32, words'", "'broadcast_object of i32, counts'"}},
      {"Limit",
       Apart(Broadcasts(1, 0), Broadcasts(1, 0, {.max_bytes = 20})),
       {"'broadcast_object of i32'", "'broadcast_object of i32, at most 20 bytes'"}},
      {"PlainCall",
       Apart(Broadcasts(int64_t{1}, 0),
             [](dist::World& world) {
               std::vector<int64_t> one = {1};
               return world.Broadcast(one, 0);
             }),
       {"'broadcast_object of i64'", "in broadcast of 1 i64, root 0" + line}},
  };
}

}  // namespace braid
