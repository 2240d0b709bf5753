// Windows: what ranks put into each other's memory and get from there, without the other's program.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <iterator>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "api/dist.h"
#include "api/dist_window.h"
#include "runtime/base/status.h"
#include "tests/dist/dist_case.h"

namespace braid {
namespace {

std::vector<int64_t> Numbers(int64_t count, int64_t first) {
  std::vector<int64_t> values(count);
  std::iota(values.begin(), values.end(), first);
  return values;
}

absl::Status ExpectThat(bool is_so, const std::string& what) {
  return is_so ? absl::OkStatus() : absl::DataLossError(what);
}

// That a call of this rank alone fails, and with these words.
absl::Status ExpectError(const absl::Status& status, absl::StatusCode code,
                         const std::string& words) {
  return ExpectThat(status.code() == code && absl::StrContains(status.message(), words),
                    absl::StrFormat("'%s' is not: %s", status.ToString(), words));
}

class WindowTest : public TransportTest {};
INSTANTIATE_TEST_SUITE_P(Transports, WindowTest, ::testing::ValuesIn(kTransports));

TEST_P(WindowTest, WhatIsPutIsThereWithItsSignalWhateverTheSize) {
  for (const int ranks : {1, 2, 3, 4}) {
    ExpectAllWell(RunWorld(ranks, [](dist::World& world) -> absl::Status {
      const int next = (world.rank() + 1) % world.size();
      const int last = (world.rank() + world.size() - 1) % world.size();
      // Nothing, one, a part of a link's writing but one element, and several, of which the last is
      // short.
      const std::vector<int64_t> counts = {0, 1, 131'071, 1'000'003};
      const int64_t all = std::accumulate(counts.begin(), counts.end(), int64_t{0});
      std::vector<int64_t> inbox(all, -1);
      BRAID_ASSIGN_OR_RETURN(const auto window, world.MakeWindow(inbox, {.name = "inbox"}));
      int64_t offset = 0;
      for (size_t i = 0; i < counts.size(); ++i) {
        const auto signal = static_cast<int>(i);
        const int64_t count = counts[i];
        BRAID_RETURN_IF_ERROR(
            window->PutSignal(Numbers(count, world.rank() + offset), next, offset, signal));
        BRAID_ASSIGN_OR_RETURN(const int64_t raised, window->WaitSignal(signal, 1));
        BRAID_RETURN_IF_ERROR(ExpectThat(raised == 1, "raised more than once"));
        const auto place = inbox.begin() + offset;
        BRAID_RETURN_IF_ERROR(
            ExpectThat(std::equal(place, place + count, Numbers(count, last + offset).begin()),
                       "a wrong put"));
        offset += count;
      }
      std::vector<int64_t> got(all);
      BRAID_RETURN_IF_ERROR(window->Get(got, next, 0));
      offset = 0;
      for (const int64_t count : counts) {
        BRAID_RETURN_IF_ERROR(
            ExpectThat(std::equal(got.begin() + offset, got.begin() + offset + count,
                                  Numbers(count, world.rank() + offset).begin()),
                       "a wrong get"));
        offset += count;
      }
      return window->Close();
    }));
  }
}

// 16 MB without a signal, and then a signal without data.
TEST_P(WindowTest, ASignalComesAfterAllThatWasPutBefore) {
  ExpectAllWell(RunWorld(2, [](dist::World& world) -> absl::Status {
    constexpr int64_t kCount = 2 << 20;
    for (int64_t turn = 1; turn <= 3; ++turn) {
      std::vector<int64_t> inbox(world.rank() == 1 ? kCount : 0);
      BRAID_ASSIGN_OR_RETURN(const auto window, world.MakeWindow(inbox));
      BRAID_RETURN_IF_ERROR(ExpectThat(window->size(0) == 0 && window->size(1) == kCount, "sizes"));
      if (world.rank() == 0) {
        const std::vector<int64_t> data = Numbers(kCount, turn);
        dist::Work put = window->StartPut(data, 1, 0);
        dist::Work signal = window->StartPutSignal(std::vector<int64_t>(), 1, 0, 1023);
        BRAID_RETURN_IF_ERROR(signal.Wait());
        // Puts are done in their order.
        BRAID_RETURN_IF_ERROR(ExpectThat(put.Test(), "the first put is not done"));
      } else {
        BRAID_RETURN_IF_ERROR(window->WaitSignal(1023, 1).status());
        BRAID_RETURN_IF_ERROR(ExpectThat(inbox == Numbers(kCount, turn), "the bytes come later"));
      }
      BRAID_RETURN_IF_ERROR(window->Close());
    }
    return absl::OkStatus();
  }));
}

TEST_P(WindowTest, ManyPutsAreInFlightAndArriveInOrder) {
  ExpectAllWell(RunWorld(3, [](dist::World& world) -> absl::Status {
    constexpr int kPuts = 2000, kWide = 7;
    // A part for each sender.
    std::vector<int64_t> inbox(3 * kPuts * kWide, -1);
    BRAID_ASSIGN_OR_RETURN(const auto window, world.MakeWindow(inbox));
    const std::vector<int64_t> data = Numbers(kPuts * kWide, 5);
    std::vector<dist::Work> works;
    for (int i = 0; i < kPuts; ++i) {
      for (const int to : {(world.rank() + 1) % 3, (world.rank() + 2) % 3}) {
        works.push_back(window->StartPutSignal(std::span(data).subspan(i * kWide, kWide), to,
                                               (world.rank() * kPuts + i) * kWide, world.rank()));
      }
    }
    for (const int from : {(world.rank() + 1) % 3, (world.rank() + 2) % 3}) {
      for (int64_t seen = 0; seen < kPuts;) {
        BRAID_ASSIGN_OR_RETURN(seen, window->WaitSignal(from, seen + 1));
        const auto part = inbox.begin() + from * kPuts * kWide;
        BRAID_RETURN_IF_ERROR(
            ExpectThat(std::equal(part, part + seen * kWide, data.begin()), "a signal too early"));
      }
    }
    for (dist::Work& work : works) BRAID_RETURN_IF_ERROR(work.Wait());
    return window->Close();
  }));
}

// Rank 0 does nothing: its node takes what rank 1 puts and gives rank 2 what it gets, meanwhile.
TEST_P(WindowTest, GetsGoOnDuringPutsOfOthersAndWithoutTheOwner) {
  if (BRAID_FINDS_RACES && std::string(GetParam()) == "loopback") {
    GTEST_SKIP() << "one thread copies what another stores there: this test is of such a race";
  }
  ExpectAllWell(RunWorld(3, [](dist::World& world) -> absl::Status {
    constexpr int64_t kCount = 600'000;
    std::vector<int64_t> memory(world.rank() == 0 ? kCount : 0, 0);
    BRAID_ASSIGN_OR_RETURN(const auto window, world.MakeWindow(memory));
    if (world.rank() == 1) {
      for (int64_t turn = 1; turn <= 20; ++turn) {
        BRAID_RETURN_IF_ERROR(window->Put(std::vector<int64_t>(kCount, turn), 0, 0));
      }
      BRAID_RETURN_IF_ERROR(window->PutSignal(std::vector<int64_t>(), 2, 0, 0));
    } else if (world.rank() == 2) {
      std::vector<int64_t> got(kCount);
      for (int64_t raised = 0; raised == 0;) {
        BRAID_ASSIGN_OR_RETURN(raised, window->WaitSignal(0, 0));
        // What was there before a get began is the least that it finds.
        const int64_t least = *std::ranges::max_element(got);
        BRAID_RETURN_IF_ERROR(window->Get(got, 0, 0));
        const auto [low, high] = std::ranges::minmax(got);
        BRAID_RETURN_IF_ERROR(ExpectThat(low >= least - 1 && high <= 20, "a wrong get"));
        if (raised > 0) BRAID_RETURN_IF_ERROR(ExpectThat(low == 20, "an old value"));
      }
    } else {
      absl::SleepFor(absl::Milliseconds(100));
    }
    return window->Close();
  }));
}

TEST_P(WindowTest, TheOwnersProgramTakesNoPart) {
  std::atomic<bool> is_through = false;
  ExpectAllWell(RunWorld(2, [&](dist::World& world) -> absl::Status {
    std::vector<float> memory(1000, 3);
    BRAID_ASSIGN_OR_RETURN(const auto window, world.MakeWindow(memory));
    if (world.rank() == 0) {
      // In no call, until the other one is through.
      while (!is_through) absl::SleepFor(absl::Milliseconds(1));
    } else {
      std::vector<float> data(1000);
      BRAID_RETURN_IF_ERROR(window->Get(data, 0, 0));
      BRAID_RETURN_IF_ERROR(ExpectThat(data[999] == 3, "a wrong get"));
      // A get finds what earlier puts of its rank have left.
      std::ranges::fill(data, 4.0F);
      dist::Work put = window->StartPut(std::span(data).first(999), 0, 1);
      std::vector<float> got(1000);
      BRAID_RETURN_IF_ERROR(window->Get(got, 0, 0));
      BRAID_RETURN_IF_ERROR(
          ExpectThat(got[0] == 3 && got[1] == 4 && got[999] == 4, "an earlier put is not there"));
      BRAID_RETURN_IF_ERROR(put.Wait());
      is_through = true;
    }
    return window->Close();
  }));
}

TEST_P(WindowTest, AFenceKeepsTurnsApart) {
  ExpectAllWell(RunWorld(4, [](dist::World& world) -> absl::Status {
    std::vector<int64_t> memory(4);
    BRAID_ASSIGN_OR_RETURN(const auto window, world.MakeWindow(memory));
    for (int64_t turn = 0; turn < 50; ++turn) {
      std::vector<dist::Work> puts;
      const std::array<int64_t, 1> value = {turn * 10 + world.rank()};
      for (int rank = 0; rank < 4; ++rank) {
        puts.push_back(window->StartPut(value, rank, world.rank()));
      }
      BRAID_RETURN_IF_ERROR(window->Fence());
      BRAID_RETURN_IF_ERROR(ExpectThat(memory == Numbers(4, turn * 10), "a put comes later"));
      BRAID_RETURN_IF_ERROR(window->Fence());
    }
    return window->Close();
  }));
}

// Windows of several groups and several of one, beside collectives, and structs.
TEST_P(WindowTest, SeveralAtATime) {
  struct Sample {
    int32_t label;
    float pixels[3];
  };
  ExpectAllWell(RunWorld(3, [](dist::World& world) -> absl::Status {
    std::vector<Sample> samples(5, {world.rank(), {}});
    std::vector<Float16> halves(9, Float16(0.5F));
    BRAID_ASSIGN_OR_RETURN(const auto first, world.MakeWindow(samples, {.name = "samples"}));
    BRAID_ASSIGN_OR_RETURN(const auto second, world.MakeWindow(halves));
    std::vector<float> sum(1 << 18, 1);
    dist::Work reducing = world.StartAllReduce(sum);
    std::vector<Sample> got(2);
    BRAID_RETURN_IF_ERROR(first->Get(got, (world.rank() + 1) % 3, 3));
    BRAID_RETURN_IF_ERROR(ExpectThat(got[1].label == (world.rank() + 1) % 3, "not the next one's"));
    BRAID_RETURN_IF_ERROR(second->Put(std::vector<Float16>(3, Float16(2.0F)), 2, 3 * world.rank()));
    BRAID_RETURN_IF_ERROR(second->Close());
    BRAID_RETURN_IF_ERROR(ExpectThat(
        world.rank() != 2 || std::ranges::count(halves, Float16(2.0F).bits, &Float16::bits) == 9,
        "halves"));
    BRAID_RETURN_IF_ERROR(reducing.Wait());
    if (world.rank() != 1) {
      // Ranks are the group's: 0 is the world's 2.
      BRAID_ASSIGN_OR_RETURN(const auto pair, world.NewGroup({2, 0}));
      std::vector<uint8_t> bytes(3);
      BRAID_ASSIGN_OR_RETURN(const auto third, pair->MakeWindow(bytes));
      if (world.rank() == 2) BRAID_RETURN_IF_ERROR(third->Put(std::vector<uint8_t>{7, 8}, 1, 1));
      BRAID_RETURN_IF_ERROR(third->Close());
      BRAID_RETURN_IF_ERROR(ExpectThat(bytes[2] == (world.rank() == 0 ? 8 : 0), "bytes"));
    }
    return first->Close();
  }));
}

TEST_P(WindowTest, WrongArgumentsAreSaidAndForgotten) {
  ExpectAllWell(RunWorld(2, [](dist::World& world) -> absl::Status {
    using Code = absl::StatusCode;
    std::vector<float> memory(world.rank() == 0 ? 10 : 0);  // nothing on rank 1
    BRAID_ASSIGN_OR_RETURN(const auto window, world.MakeWindow(memory, {.name = "w"}));
    std::vector<float> data(4);
    std::vector<int32_t> integers(4);
    const std::vector<std::pair<absl::Status, std::pair<Code, std::string>>> mistakes = {
        {window->Put(data, 0, 7),
         {Code::kOutOfRange,
          "4 elements at 7 are not all in the memory of rank 0 in the window "
          "'w', which has 10 elements"}},
        {window->Put(data, 0, -1), {Code::kOutOfRange, "put (window_test.cc:"}},
        {window->Put(data, 0, INT64_MAX), {Code::kOutOfRange, "4 elements at 9223372036854775807"}},
        {window->StartPut(data, 1, 0).Wait(), {Code::kOutOfRange, "which has 0 elements"}},
        {window->Get(data, 1, 0), {Code::kOutOfRange, "get (window_test.cc:"}},
        {window->Put(integers, 0, 0),
         {Code::kInvalidArgument, "the data are of i32 (4 bytes each) and the window 'w' of f32"}},
        {window->Get(integers, 0, 0), {Code::kInvalidArgument, "both must be the same"}},
        {window->Put(data, 2, 0), {Code::kInvalidArgument, "the other rank is 2"}},
        {window->Get(data, -1, 0), {Code::kInvalidArgument, "the other rank is -1"}},
        {window->PutSignal(data, 0, 0, 1024), {Code::kInvalidArgument, "the signal is 1024"}},
        {window->PutSignal(data, 0, 0, -1), {Code::kInvalidArgument, "there are 0 to 1023"}},
        {window->WaitSignal(-1, 1).status(), {Code::kInvalidArgument, "wait_signal ("}},
    };
    for (const auto& [status, expected] : mistakes) {
      BRAID_RETURN_IF_ERROR(ExpectError(status, expected.first, expected.second));
    }
    // All of it, and nothing at its end.
    BRAID_RETURN_IF_ERROR(window->Put(std::vector<float>(10, 1), 0, 0));
    BRAID_RETURN_IF_ERROR(window->Put(std::vector<float>(), 0, 10));
    BRAID_RETURN_IF_ERROR(window->Get(std::span(data).first(0), 1, 0));
    BRAID_RETURN_IF_ERROR(window->Close());
    BRAID_RETURN_IF_ERROR(window->Close());
    BRAID_RETURN_IF_ERROR(ExpectError(window->Put(data, 0, 0), Code::kFailedPrecondition,
                                      "the window 'w' is closed"));
    BRAID_RETURN_IF_ERROR(ExpectError(window->Fence(), Code::kFailedPrecondition, "is closed"));
    return world.Barrier();
  }));
}

// The world ends with the same words on all ranks, in time.
void ExpectEnd(int ranks, const RankProgram& program, const std::vector<std::string>& words,
               absl::Duration limit = absl::Seconds(1)) {
  std::vector<absl::Duration> took(ranks);
  const WorldEnd end = RunWorld(ranks, [&](dist::World& world) -> absl::Status {
    BRAID_RETURN_IF_ERROR(world.Barrier());
    const absl::Time began = absl::Now();
    absl::Status status = program(world);
    if (status.ok()) status = world.Barrier();
    took[world.rank()] = absl::Now() - began;
    return status;
  });
  for (int rank = 0; rank < ranks; ++rank) {
    for (const std::string& word : words) {
      EXPECT_THAT(std::string(end.programs[rank].message()), ::testing::HasSubstr(word));
    }
    EXPECT_EQ(end.programs[rank], end.programs[0]);
    EXPECT_EQ(end.worlds[rank], end.programs[0]);
    EXPECT_LE(took[rank], limit) << "rank " << rank;
  }
}

TEST(WindowEndsTest, AnotherTypeOnOneRank) {
  ExpectEnd(2,
            [](dist::World& world) -> absl::Status {
              std::vector<float> floats(4);
              std::vector<int32_t> integers(5);
              if (world.rank() == 0) return world.MakeWindow(floats).status();
              return world.MakeWindow(integers).status();
            },
            {"call 1 is not the same on all ranks", "is in make_window of 4 f32 (window_test.cc:",
             "rank 1 in make_window of 5 i32 (window_test.cc:"});
}

TEST(WindowEndsTest, FencesOfTwoWindows) {
  ExpectEnd(2,
            [](dist::World& world) -> absl::Status {
              std::vector<float> memory(4);
              BRAID_ASSIGN_OR_RETURN(const auto a, world.MakeWindow(memory, {.name = "a"}));
              BRAID_ASSIGN_OR_RETURN(const auto b, world.MakeWindow(memory, {.name = "b"}));
              return world.rank() == 0 ? a->Fence() : b->Close();
            },
            {"is in fence of window 1, 'a'", "rank 1 in close of window 2, 'b'"});
}

TEST(WindowEndsTest, ARankClosesWhileAnotherWaitsForItsSignal) {
  ExpectEnd(3,
            [](dist::World& world) -> absl::Status {
              std::vector<float> memory(4);
              BRAID_ASSIGN_OR_RETURN(const auto window, world.MakeWindow(memory));
              if (world.rank() != 0) return window->Close();
              return window->WaitSignal(3, 2).status();
            },
            {"nobody is left who could raise a signal that is waited for",
             "is in wait_signal for 2 of signal 3 of window 1 (window_test.cc:",
             "rank 1 is in close of window 1 (window_test.cc:", "no call of these is ever done"});
}

TEST(WindowEndsTest, ARankThatWaitsForRanksThatHaveEnded) {
  ExpectEnd(3,
            [](dist::World& world) -> absl::Status {
              std::vector<float> memory(4);
              BRAID_ASSIGN_OR_RETURN(const auto window, world.MakeWindow(memory));
              if (world.rank() != 2) return world.Close();
              return window->WaitSignal(0, 1).status();
            },
            {"nobody is left", "rank 1 has ended its part", "rank 2 is in wait_signal for 1"});
}

TEST(WindowEndsTest, ARankThatIsAloneWaitsForItself) {
  ExpectEnd(1,
            [](dist::World& world) -> absl::Status {
              std::vector<float> memory(4);
              BRAID_ASSIGN_OR_RETURN(const auto window, world.MakeWindow(memory));
              BRAID_RETURN_IF_ERROR(window->PutSignal(std::vector<float>{1}, 0, 0, 5));
              BRAID_RETURN_IF_ERROR(window->WaitSignal(5, 1).status());
              return window->WaitSignal(5, 2).status();
            },
            {"nobody is left", "wait_signal for 2 of signal 5"});
}

// A signal that is late, from a rank that has ended its part meanwhile or waits itself, is waited
// for, however long its bytes take.
TEST_P(WindowTest, ALateSignalIsWaitedFor) {
  ExpectAllWell(RunWorld(2, [](dist::World& world) -> absl::Status {
    std::vector<int64_t> memory(12 << 20);
    BRAID_ASSIGN_OR_RETURN(const auto window, world.MakeWindow(memory));
    if (world.rank() == 0) {
      BRAID_RETURN_IF_ERROR(window->WaitSignal(0, 1).status());
      BRAID_RETURN_IF_ERROR(ExpectThat(memory.back() == 3, "the bytes come later"));
      return window->PutSignal(std::vector<int64_t>(), 1, 0, 0);
    }
    absl::SleepFor(absl::Seconds(0.8));
    const std::vector<int64_t> data(12 << 20, 3);
    dist::Work put = window->StartPutSignal(data, 0, 0, 0);
    BRAID_RETURN_IF_ERROR(window->WaitSignal(0, 1).status());
    return put.Wait();
  }));
}

TEST(WindowEndsTest, ATimeoutNamesWhoHasNotSignalled) {
  ExpectEnd(
      3,
      [](dist::World& world) -> absl::Status {
        std::vector<float> memory(4);
        BRAID_ASSIGN_OR_RETURN(const auto window, world.MakeWindow(memory));
        if (world.rank() == 1) {
          BRAID_RETURN_IF_ERROR(window->PutSignal(std::vector<float>(), 0, 0, 7));
        }
        if (world.rank() == 0) {
          return window->WaitSignal(7, 2, absl::Milliseconds(500)).status();
        }
        absl::SleepFor(absl::Seconds(1));
        return absl::OkStatus();
      },
      {"wait_signal for 2 of signal 7 of window 1",
       "of rank 0 (127.0.0.1) was not done "
       "within 0.5 s: waited for rank 2 (its last call here was call 1, "
       "make_window of 4 f32"},
      absl::Seconds(2));
}

TEST(WindowEndsTest, APutIntoAWindowThatARankHasDestroyed) {
  ExpectEnd(2,
            [](dist::World& world) -> absl::Status {
              // The memory outlives the window, so that a late byte would show.
              std::vector<float> memory(1 << 20);
              {
                BRAID_ASSIGN_OR_RETURN(const auto window, world.MakeWindow(memory));
                std::vector<float> data(1 << 20, 1);
                if (world.rank() == 0) {
                  BRAID_RETURN_IF_ERROR(window->Put(data, 1, 0));
                  while (true) BRAID_RETURN_IF_ERROR(window->Put(data, 1, 0));
                }
                absl::SleepFor(absl::Milliseconds(20));
              }
              std::ranges::fill(memory, 2.0F);
              const absl::Status ended = world.Barrier();
              if (std::ranges::count(memory, 2.0F) != 1 << 20)
                return absl::DataLossError("written");
              return ended;
            },
            {"the world: rank 1 has dropped its window without a close of all ranks, and rank 0 is "
             "in put of 1048576 f32 to rank 1, at 0 of window 1 (window_test.cc:"});
}

// A rank that returns with an error of its own destroys its window first: its error is the cause.
TEST(WindowEndsTest, ARanksOwnErrorIsTheCause) {
  const WorldEnd end = RunWorld(3, [](dist::World& world) -> absl::Status {
    std::vector<float> memory(1 << 20), data(1 << 20);
    const auto program = [&]() -> absl::Status {
      BRAID_ASSIGN_OR_RETURN(const auto window, world.MakeWindow(memory));
      if (world.rank() == 2) return absl::NotFoundError("no bread");
      if (world.rank() == 1) return window->WaitSignal(0, 1).status();
      while (true) {
        BRAID_RETURN_IF_ERROR(window->Put(data, 2, 0));
        BRAID_RETURN_IF_ERROR(window->Get(data, 2, 0));
      }
    };
    const absl::Status status = program();
    return world.Close(status);
  });
  for (const absl::Status& status : end.programs) {
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << status;
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("no bread"));
  }
}

// Everything that can wait, and bytes on the way: nobody hangs, all hear the cause.
TEST(WindowEndsTest, TheWorldsEndEndsAllWaits) {
  const WorldEnd end = RunWorld(3, [](dist::World& world) -> absl::Status {
    std::vector<float> memory(8 << 20), data(8 << 20), got(8 << 20);
    BRAID_ASSIGN_OR_RETURN(const auto window, world.MakeWindow(memory));
    if (world.rank() == 2) {
      absl::SleepFor(absl::Milliseconds(100));
      return world.Close(absl::NotFoundError("no bread"));
    }
    if (world.rank() == 1) return window->WaitSignal(0, 1).status();
    while (true) {
      dist::Work getting = window->StartGet(got, 1, 0);
      dist::Work putting = window->StartPut(data, 1, 0);
      BRAID_RETURN_IF_ERROR(getting.Wait());
      BRAID_RETURN_IF_ERROR(putting.Wait());
    }
  });
  for (const absl::Status& status : end.programs) {
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << status;
  }
}

TEST(WindowAloneTest, MayOutliveItsWorld) {
  std::vector<float> memory(4);
  auto world = dist::World::Init({.environment = [](const std::string&) { return std::nullopt; }});
  ASSERT_TRUE(world.ok()) << world.status();
  auto window = (*world)->MakeWindow(memory);
  ASSERT_TRUE(window.ok()) << window.status();
  EXPECT_TRUE((*window)->Put(std::vector<float>{1}, 0, 3).ok());
  EXPECT_EQ(memory[3], 1);
  EXPECT_TRUE((*world)->Close().ok());
  EXPECT_FALSE((*window)->Put(std::vector<float>{2}, 0, 3).ok());
  world->reset();
  EXPECT_FALSE((*window)->Get(memory, 0, 0).ok());
  EXPECT_FALSE((*window)->Close().ok());
  EXPECT_EQ(memory[3], 1);
}

// A rank that ends its part with its window open: others reach its memory until all have ended.
TEST_P(WindowTest, IsOpenUntilAllRanksEnd) {
  ExpectAllWell(RunWorld(2, [](dist::World& world) -> absl::Status {
    std::vector<float> memory(4);
    BRAID_ASSIGN_OR_RETURN(const auto window, world.MakeWindow(memory));
    if (world.rank() == 1) absl::SleepFor(absl::Milliseconds(50));
    BRAID_RETURN_IF_ERROR(window->Put(std::vector<float>{1}, 1 - world.rank(), 2));
    BRAID_RETURN_IF_ERROR(world.Close());
    BRAID_RETURN_IF_ERROR(ExpectThat(memory[2] == 1, "the put is not there"));
    return ExpectThat(!window->Put(std::vector<float>{1}, 1 - world.rank(), 2).ok(), "no error");
  }));
}

int64_t OpenFiles() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return std::distance(begin(all), end(all));
}

TEST_P(WindowTest, NothingStaysOfClosedWindows) {
  ExpectAllWell(RunWorld(2, [](dist::World& world) -> absl::Status {
    const auto make = [&](int times) -> absl::Status {
      for (int i = 0; i < times; ++i) {
        std::vector<int64_t> memory(100);
        BRAID_ASSIGN_OR_RETURN(const auto window, world.MakeWindow(memory));
        const std::vector<int64_t> data(100, i);
        BRAID_RETURN_IF_ERROR(window->PutSignal(data, 1 - world.rank(), 0, i % 1024));
        BRAID_RETURN_IF_ERROR(window->WaitSignal(i % 1024, 1).status());
        std::vector<int64_t> got(100);  // not into memory that the other rank gets meanwhile
        BRAID_RETURN_IF_ERROR(window->Get(got, 1 - world.rank(), 0));
        BRAID_RETURN_IF_ERROR(window->Close());
      }
      return world.Barrier();
    };
    BRAID_RETURN_IF_ERROR(make(100));
    if (world.rank() == 1) {
      BRAID_RETURN_IF_ERROR(make(2000));
      return world.Barrier();
    }
    // Of both ranks, while the other one waits.
    const size_t before = mallinfo2().uordblks;
    const int64_t open = OpenFiles();
    BRAID_RETURN_IF_ERROR(make(2000));
    const size_t after = mallinfo2().uordblks;
    BRAID_RETURN_IF_ERROR(ExpectThat(OpenFiles() == open, "descriptors stay"));
    // At most 100 bytes of each window.
    BRAID_RETURN_IF_ERROR(ExpectThat(after < before + 2 * 2000 * 100,
                                     absl::StrFormat("%d bytes before, %d after", before, after)));
    return world.Barrier();
  }));
}

}  // namespace
}  // namespace braid
