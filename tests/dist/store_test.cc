// The store of a world: what each call returns on several ranks, waiting across ranks, and how it
// ends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "api/dist.h"
#include "api/dist_store.h"
#include "api/world_error.h"
#include "runtime/base/status.h"
#include "tests/dist/dist_case.h"

namespace braid {
namespace {

using ::testing::HasSubstr;

constexpr int kStoreRanks = 3;

template <typename T>
T Taken(const absl::StatusOr<T>& result) {
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? *result : T();
}

void ExpectError(const absl::Status& status, absl::StatusCode code, const std::string& words) {
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(words));
}

TEST(StoreTest, EveryCallDoesWhatItSaysOnEveryRank) {
  ExpectAllWell(RunWorld(kStoreRanks, [](dist::World& world) -> absl::Status {
    dist::Store& store = world.store();
    const int rank = world.rank(), next = (rank + 1) % kStoreRanks;
    const auto mine = [&](const char* what) { return absl::StrFormat("%s %d", what, rank); };
    const auto theirs = [&](const char* what) { return absl::StrFormat("%s %d", what, next); };
    // Bytes of any kind, and none.
    const std::string bytes("\0\xff\n'", 4);
    BRAID_RETURN_IF_ERROR(store.Set(mine("key") + bytes, mine("value") + bytes));
    BRAID_RETURN_IF_ERROR(store.Set(mine("empty"), ""));
    EXPECT_EQ(Taken(store.Get(theirs("key") + bytes)), theirs("value") + bytes);
    EXPECT_EQ(Taken(store.Get(theirs("empty"))), "");
    BRAID_RETURN_IF_ERROR(store.Wait({theirs("key") + bytes, theirs("empty"), mine("empty")}));
    BRAID_RETURN_IF_ERROR(store.Wait({}));
    BRAID_RETURN_IF_ERROR(world.Barrier());

    EXPECT_EQ(Taken(store.NumKeys()), 2 * kStoreRanks);
    BRAID_RETURN_IF_ERROR(world.Barrier());
    EXPECT_TRUE(Taken(store.Delete(mine("empty"))));
    EXPECT_FALSE(Taken(store.Delete(mine("empty"))));
    BRAID_RETURN_IF_ERROR(store.Set(mine("key") + bytes, "another"));
    BRAID_RETURN_IF_ERROR(world.Barrier());
    EXPECT_EQ(Taken(store.NumKeys()), kStoreRanks);
    EXPECT_EQ(Taken(store.Get(theirs("key") + bytes)), "another");
    BRAID_RETURN_IF_ERROR(world.Barrier());

    EXPECT_EQ(Taken(store.Add(mine("count"), 5)), 5);
    EXPECT_EQ(Taken(store.Add(mine("count"), -7)), -2);
    EXPECT_EQ(Taken(store.Get(mine("count"))), "-2");
    BRAID_RETURN_IF_ERROR(store.Set(mine("count"), "40"));
    EXPECT_EQ(Taken(store.Add(mine("count"), 2)), 42);
    return world.Barrier();
  }));
}

TEST(StoreTest, CompareSetSetsOnlyWhatIsExpected) {
  ExpectAllWell(RunWorld(kStoreRanks, [](dist::World& world) -> absl::Status {
    dist::Store& store = world.store();
    const std::string key = absl::StrFormat("state %d", world.rank());
    ExpectError(store.CompareSet(key, "ready", "done").status(), absl::StatusCode::kNotFound,
                absl::StrFormat("the key '%s' is not there and holds no 'ready'", key));
    EXPECT_EQ(Taken(store.CompareSet(key, "", "ready")), "ready");
    EXPECT_EQ(Taken(store.CompareSet(key, "", "other")), "ready") << "it is there";
    EXPECT_EQ(Taken(store.CompareSet(key, "other", "done")), "ready");
    EXPECT_EQ(Taken(store.CompareSet(key, "ready", "done")), "done");
    EXPECT_EQ(Taken(store.Get(key)), "done");
    // One of all is the first, and all know which.
    const std::string me = absl::StrFormat("%d", world.rank());
    const std::string first = Taken(store.CompareSet("first", "", me));
    EXPECT_EQ(Taken(store.Get("first")), first);
    if (first == me) {
      EXPECT_EQ(Taken(store.Add("first ones", 1)), 1);
    }
    return world.Barrier();
  }));
}

// In a circle, in which each sets only what the one before waits for.
TEST(StoreTest, RanksWaitForEachOther) {
  ExpectAllWell(RunWorld(kStoreRanks, [](dist::World& world) -> absl::Status {
    dist::Store& store = world.store();
    for (int round = 0; round < 50; ++round) {
      const auto key = [round](int rank) { return absl::StrFormat("%d of %d", rank, round); };
      if (world.rank() > 0) {
        EXPECT_EQ(Taken(store.Get(key(world.rank() - 1))), key(world.rank()));
      }
      BRAID_RETURN_IF_ERROR(store.Set(key(world.rank()), key(world.rank() + 1)));
      BRAID_RETURN_IF_ERROR(store.Wait({key(2), key(0), key(1)}));
    }
    return absl::OkStatus();
  }));
}

TEST(StoreTest, WhatDoesNotComeInTimeIsNamedOnThisRankAlone) {
  ExpectAllWell(RunWorld(kStoreRanks, [](dist::World& world) -> absl::Status {
    dist::Store& store = world.store();
    if (world.rank() == 1) {
      BRAID_RETURN_IF_ERROR(store.Set("here", "yes"));
      const absl::Time began = absl::Now();
      const absl::Status get = store.Get("not\nhere", absl::Milliseconds(200)).status();
      EXPECT_GE(absl::Now() - began, absl::Milliseconds(200));
      ExpectError(get, absl::StatusCode::kDeadlineExceeded,
                  "): no rank has set the key 'not\\nhere' within 200ms");
      EXPECT_THAT(std::string(get.message()), HasSubstr("Store::Get (store_test.cc:"));
      const absl::Status wait = store.Wait({"here", "b", "a"}, absl::Milliseconds(10));
      ExpectError(wait, absl::StatusCode::kDeadlineExceeded,
                  "of 3 keys, no rank has set 'a', 'b' within 10ms");
      EXPECT_THAT(std::string(wait.message()), HasSubstr("Store::Wait (store_test.cc:"));
      // What comes too late answers nothing.
      BRAID_RETURN_IF_ERROR(store.Set("not\nhere", "late"));
      EXPECT_EQ(Taken(store.Get("here")), "yes");
    }
    // Ranks that wait meanwhile go on.
    EXPECT_EQ(Taken(store.Get("not\nhere")), "late");
    std::vector<float> data = {1};
    return world.AllReduce(data);
  }));
}

TEST(StoreTest, CountersOfAllThreadsOfAllRanksAddUp) {
  constexpr int kThreads = 4, kTimes = 100;
  std::vector<std::vector<int64_t>> sums(kStoreRanks * kThreads);
  ExpectAllWell(RunWorld(kStoreRanks, [&](dist::World& world) -> absl::Status {
    dist::Store& store = world.store();
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, i] {
        for (int time = 0; time < kTimes; ++time) {
          sums[world.rank() * kThreads + i].push_back(Taken(store.Add("count", 1)));
        }
        // Each of them also waits, beside the others.
        const std::string key = absl::StrFormat("%d of %d", i, world.rank());
        EXPECT_EQ(store.Set(key, key), absl::OkStatus());
        EXPECT_EQ(Taken(store.Get(absl::StrFormat("%d of 0", kThreads - 1 - i))),
                  absl::StrFormat("%d of 0", kThreads - 1 - i));
      });
    }
    for (std::thread& thread : threads) thread.join();
    BRAID_RETURN_IF_ERROR(world.Barrier());
    EXPECT_EQ(Taken(store.Get("count")), absl::StrFormat("%d", kStoreRanks * kThreads * kTimes));
    return absl::OkStatus();
  }));
  std::set<int64_t> all;
  for (const std::vector<int64_t>& some : sums) all.insert(some.begin(), some.end());
  EXPECT_EQ(all.size(), size_t{kStoreRanks * kThreads * kTimes}) << "no sum comes twice";
  EXPECT_EQ(*all.rbegin(), kStoreRanks * kThreads * kTimes);
}

TEST(StoreTest, KeysAndValuesHaveBounds) {
  ExpectAllWell(RunWorld(2, [](dist::World& world) -> absl::Status {
    dist::Store& store = world.store();
    const std::string longest(65536, 'k'), largest(size_t{16} << 20, 'v');
    if (world.rank() == 1) {
      BRAID_RETURN_IF_ERROR(store.Set(longest, largest));
    }
    EXPECT_TRUE(Taken(store.Get(longest)) == largest);
    constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
    ExpectError(store.Set(longest + "k", ""), kInvalid, "has 65537 bytes; at most 65536 are taken");
    ExpectError(store.Set("v", largest + "v"), kInvalid,
                "the value has 16777217 bytes; at most 16777216 are taken");
    ExpectError(store.CompareSet("v", largest + "v", "").status(), kInvalid,
                "the expected value has 16777217 bytes");
    ExpectError(store.Wait(std::vector<std::string>(257, longest)), kInvalid,
                "the 257 keys have 16842752 bytes together; at most 16777216");
    ExpectError(store.Set("", "v"), kInvalid, "Store::Set (store_test.cc:");
    ExpectError(store.Get("").status(), kInvalid, "the key is empty");
    ExpectError(store.Wait({"a", ""}), kInvalid, "the key is empty");
    ExpectError(store.Get("v", -absl::Seconds(2)).status(), kInvalid,
                "the timeout is -2s; more than zero was expected");
    EXPECT_EQ(Taken(store.Get(longest, absl::InfiniteDuration())).size(), largest.size());
    return world.Barrier();
  }));
}

TEST(StoreTest, OnlyNumbersCount) {
  ExpectAllWell(RunWorld(2, [](dist::World& world) -> absl::Status {
    dist::Store& store = world.store();
    const std::string key = absl::StrFormat("n%d", world.rank());
    for (const char* value : {"", " 1", "1 ", "+1", "0x1", "1.5", "9223372036854775808"}) {
      BRAID_RETURN_IF_ERROR(store.Set(key, value));
      ExpectError(
          store.Add(key, 1).status(), absl::StatusCode::kFailedPrecondition,
          absl::StrFormat("the key '%s' holds '%s', which is no decimal number", key, value));
      EXPECT_EQ(Taken(store.Get(key)), value);
    }
    const int64_t most = std::numeric_limits<int64_t>::max();
    BRAID_RETURN_IF_ERROR(store.Set(key, absl::StrFormat("%d", most - 1)));
    EXPECT_EQ(Taken(store.Add(key, 1)), most);
    ExpectError(store.Add(key, 1).status(), absl::StatusCode::kOutOfRange,
                "holds 9223372036854775807; with 1 more it does not fit");
    EXPECT_EQ(Taken(store.Get(key)), absl::StrFormat("%d", most));
    return absl::OkStatus();
  }));
}

TEST(StoreTest, AFailureOfTheWorldEndsWaiting) {
  const WorldEnd end = RunWorld(kStoreRanks, [](dist::World& world) -> absl::Status {
    dist::Store& store = world.store();
    if (world.rank() == 2) {
      BRAID_RETURN_IF_ERROR(store.Wait({"waits 0", "waits 1"}));
      absl::SleepFor(absl::Milliseconds(100));  // so that both are in the calls after
      return world.Close(absl::NotFoundError("no bread"));
    }
    BRAID_RETURN_IF_ERROR(store.Set(absl::StrFormat("waits %d", world.rank()), ""));
    const absl::Status cause =
        world.rank() == 0 ? store.Get("bread").status() : store.Wait({"bread", "butter"});
    for (const absl::Status& later : {store.Set("a", "b"), store.Get("a").status()}) {
      EXPECT_EQ(later, cause) << "of a later call";
    }
    return cause;
  });
  for (const int rank : {0, 1, 2}) {
    const absl::Status& status = end.programs[rank];
    ExpectError(status, absl::StatusCode::kNotFound, "no bread");
    EXPECT_EQ(status.message(), end.programs[0].message());
    EXPECT_EQ(dist::IsWorldError(status), rank != 2) << "it is rank 2's own error";
  }
  EXPECT_LT(end.wall, BRAID_SLACK * absl::Seconds(5));
}

TEST(StoreTest, TheEndOfTheWorldEndsWaiting) {
  ExpectAllWell(RunWorld(kStoreRanks, [](dist::World& world) -> absl::Status {
    dist::Store& store = world.store();
    absl::Status waited;
    std::thread thread([&] { waited = store.Get("never").status(); });
    absl::SleepFor(absl::Milliseconds(100));  // so that it waits, most times
    const absl::Status closed = world.Close();
    thread.join();
    EXPECT_TRUE(absl::IsCancelled(waited)) << waited;
    EXPECT_TRUE(absl::IsCancelled(store.Set("key", "value"))) << "after its end";
    EXPECT_TRUE(absl::IsCancelled(store.NumKeys().status()));
    return closed;
  }));
}

// The others ask for roll calls meanwhile.
TEST(StoreTest, ARankThatWaitsInTheStoreHasNotLeft) {
  ExpectAllWell(RunWorld(kStoreRanks, [](dist::World& world) -> absl::Status {
    std::vector<float> data = {1};
    std::thread late;
    if (world.rank() == 1) {
      EXPECT_EQ(Taken(world.store().Get("go")), "on");
    } else if (world.rank() == 2) {
      late = std::thread([&world] {
        absl::SleepFor(absl::Seconds(1));
        EXPECT_EQ(world.store().Set("go", "on"), absl::OkStatus());
      });
    }
    const absl::Status reduced = world.AllReduce(data);
    if (late.joinable()) late.join();
    EXPECT_EQ(data[0], kStoreRanks);
    return reduced;
  }));
}

TEST(StoreTest, WorldsAndTheirStoresDoNotKnowOfEachOther) {
  const auto make = [] {
    return dist::World::Init(
        {.timeout = absl::Milliseconds(150),
         .environment = [](const std::string&) { return std::optional<std::string>(); }});
  };
  const auto one = make(), other = make();
  ASSERT_TRUE(one.ok() && other.ok());
  dist::Store& store = (*one)->store();
  EXPECT_EQ(store.Set("key", "value"), absl::OkStatus());
  EXPECT_EQ(Taken(store.Add("n", 3)), 3);
  EXPECT_EQ(Taken(store.Get("key")), "value");
  EXPECT_EQ(Taken((*other)->store().NumKeys()), 0);
  ExpectError((*other)->store().Get("key").status(), absl::StatusCode::kDeadlineExceeded,
              "no rank has set the key 'key' within 150ms");
  EXPECT_EQ((*one)->Close(), absl::OkStatus());
  EXPECT_TRUE(absl::IsCancelled(store.Get("key").status()));
}

}  // namespace
}  // namespace braid
