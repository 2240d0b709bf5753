// Sends and receives between ranks: what is sent is what arrives, in whatever order the ranks come.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "api/dist.h"
#include "runtime/base/status.h"
#include "runtime/group/group_frame.h"
#include "tests/dist/dist_case.h"

namespace braid {
namespace {

using dist::Transfer;

std::vector<int64_t> Counting(int64_t count, int64_t from) {
  std::vector<int64_t> values(count);
  std::iota(values.begin(), values.end(), from);
  return values;
}

absl::Status ExpectCounting(const std::vector<int64_t>& values, int64_t from) {
  if (values == Counting(static_cast<int64_t>(values.size()), from)) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrFormat("%d values are not those from %d", values.size(), from));
}

class TransferTest : public TransportTest {};
INSTANTIATE_TEST_SUITE_P(Transports, TransferTest, ::testing::ValuesIn(kTransports));

TEST_P(TransferTest, WhateverTheSizeAndWhoeverComesFirst) {
  for (const bool is_sender_late : {false, true}) {
    ExpectAllWell(RunWorld(2, [=](dist::World& world) -> absl::Status {
      // Nothing, one, one part but one element, and many parts, of which the last one is short.
      for (const int64_t count : {int64_t{0}, int64_t{1}, int64_t{131'071}, int64_t{3'000'001}}) {
        if (is_sender_late == (world.rank() == 0)) absl::SleepFor(absl::Milliseconds(20));
        std::vector<int64_t> values(count);
        if (world.rank() == 0) {
          BRAID_RETURN_IF_ERROR(world.Send(Counting(count, count), 1));
        } else {
          BRAID_RETURN_IF_ERROR(world.Receive(values, 0));
          BRAID_RETURN_IF_ERROR(ExpectCounting(values, count));
        }
      }
      return absl::OkStatus();
    }));
  }
}

TEST_P(TransferTest, CallsWithOneTagAreMatchedInOrderAndTagsAreApart) {
  ExpectAllWell(RunWorld(2, [](dist::World& world) -> absl::Status {
    constexpr int kTags = 3, kCalls = 40;
    std::vector<std::vector<int64_t>> values;
    for (int i = 0; i < kTags * kCalls; ++i) values.push_back(Counting(50, i));
    std::vector<dist::Work> works;
    for (int i = 0; i < kTags * kCalls; ++i) {
      if (world.rank() == 0) {
        works.push_back(world.StartSend(values[i], 1, i % kTags));
        continue;
      }
      // By tags, from the last to the first.
      const int tag = kTags - 1 - i / kCalls, number = i % kCalls;
      std::vector<int64_t>& into = values[number * kTags + tag];
      into.assign(50, -1);
      works.push_back(world.StartReceive(into, 0, tag));
    }
    for (dist::Work& work : works) BRAID_RETURN_IF_ERROR(work.Wait());
    for (int i = 0; i < kTags * kCalls; ++i) BRAID_RETURN_IF_ERROR(ExpectCounting(values[i], i));
    return absl::OkStatus();
  }));
}

TEST_P(TransferTest, AnExchangeGoesRoundARing) {
  for (const int ranks : {1, 2, 5}) {
    ExpectAllWell(RunWorld(ranks, [](dist::World& world) -> absl::Status {
      const int next = (world.rank() + 1) % world.size();
      const int last = (world.rank() + world.size() - 1) % world.size();
      for (int64_t turn = 0; turn < 20; ++turn) {
        const std::vector<int64_t> own = Counting(1000 * turn, world.rank() + turn);
        std::vector<int64_t> got(1000 * turn);
        BRAID_RETURN_IF_ERROR(
            world.Exchange({Transfer::SendTo(next, own), Transfer::ReceiveFrom(last, got)}));
        BRAID_RETURN_IF_ERROR(ExpectCounting(got, last + turn));
      }
      return world.Exchange({});
    }));
  }
}

TEST_P(TransferTest, GoesOnBesideCollectivesAndInSmallerGroups) {
  ExpectAllWell(RunWorld(3, [](dist::World& world) -> absl::Status {
    std::vector<float> sum(1 << 20, 1);
    std::vector<int64_t> data = Counting(1 << 20, 3);
    dist::Work reducing = world.StartAllReduce(sum);
    if (world.rank() == 2) {
      BRAID_RETURN_IF_ERROR(world.Send(data, 0, 5));
    } else if (world.rank() == 0) {
      std::ranges::fill(data, 0);
      BRAID_RETURN_IF_ERROR(world.Receive(data, 2, 5));
      BRAID_RETURN_IF_ERROR(ExpectCounting(data, 3));
    }
    BRAID_RETURN_IF_ERROR(reducing.Wait());
    if (!std::ranges::all_of(sum, [](float value) { return value == 3; })) {
      return absl::DataLossError("a wrong sum");
    }
    if (world.rank() == 1) return absl::OkStatus();
    // Ranks are the group's: 0 is the world's 2.
    BRAID_ASSIGN_OR_RETURN(const auto pair, world.NewGroup({2, 0}));
    std::array<int64_t, 1> value = {world.rank()};
    if (pair->rank() == 0) return pair->Send(value, 1);
    BRAID_RETURN_IF_ERROR(pair->Receive(value, 0));
    return value[0] == 2 ? absl::OkStatus() : absl::DataLossError("not from rank 2");
  }));
}

// A rank that ended its part long ago has sent what another one receives only now.
TEST_P(TransferTest, WhatWasSentArrivesAfterTheSendersEnd) {
  ExpectAllWell(RunWorld(2, [](dist::World& world) -> absl::Status {
    std::vector<int64_t> data(300'000);
    if (world.rank() == 0) return world.Send(Counting(300'000, 9), 1);
    dist::Work receive = world.StartReceive(data, 0);
    absl::SleepFor(absl::Milliseconds(700));
    BRAID_RETURN_IF_ERROR(receive.Wait());
    return ExpectCounting(data, 9);
  }));
}

TEST_P(TransferTest, ALateRankIsWaitedFor) {
  ExpectAllWell(RunWorld(2, [](dist::World& world) -> absl::Status {
    std::vector<int64_t> data = Counting(10, 1);
    if (world.rank() == 0) return world.Send(data, 1);
    absl::SleepFor(absl::Seconds(1.2));
    return world.Receive(data, 0);
  }));
}

TEST_P(TransferTest, WrongArgumentsAreSaidAndForgotten) {
  ExpectAllWell(RunWorld(2, [](dist::World& world) -> absl::Status {
    std::vector<float> data(3);
    const std::vector<std::pair<absl::Status, std::string>> mistakes = {
        {world.Send(data, 2), "send (transfer_test.cc:"},
        {world.Receive(data, -1), "the other rank is -1, and the group has ranks 0 to 1"},
        {world.Send(data, 1, -3), "the tag is -3; must be 0 or more"},
        {world.Exchange({Transfer::SendTo(1, data), Transfer::ReceiveFrom(7, data)}),
         "the other rank is 7"},
    };
    for (const auto& [status, words] : mistakes) {
      if (!absl::IsInvalidArgument(status) || status.message().find(words) == std::string::npos) {
        return absl::InternalError(absl::StrFormat("%s; not '%s'", status.ToString(), words));
      }
    }
    return world.Barrier();
  }));
}

// A world that ends while data of every kind are on their way: nobody hangs, all hear the cause.
TEST_P(TransferTest, TheWorldsEndEndsTransfers) {
  const WorldEnd end = RunWorld(3, [](dist::World& world) -> absl::Status {
    if (world.rank() == 2) {
      absl::SleepFor(absl::Milliseconds(50));
      return world.Close(absl::NotFoundError("no bread"));
    }
    std::vector<int64_t> out(8 << 20), in(8 << 20), never(10);
    const dist::Work waiting = world.StartReceive(never, 2);
    const int other = 1 - world.rank();
    while (true) {
      BRAID_RETURN_IF_ERROR(
          world.Exchange({Transfer::SendTo(other, out), Transfer::ReceiveFrom(other, in)}));
    }
  });
  for (const absl::Status& status : end.programs) {
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << status;
  }
}

TEST(TransferFrameTest, GoesOverTheWireAndWrongOnesAreErrors) {
  using dist::TransferFrame;
  const TransferFrame offer{.type = TransferFrame::Type::kOffer,
                            .group = 77,
                            .from = 1,
                            .to = 2,
                            .number = 3,
                            .tag = 4,
                            .key = {5, 6, 7},
                            .signature = 8};
  const TransferFrame part{.group = 77, .from = 1, .to = 2, .number = 3, .offset = 9, .bytes = 10};
  for (const TransferFrame& frame : {offer, part}) {
    const dist::EncodedTransferFrame encoded(frame);
    const auto decoded = dist::DecodeGroupFrame(encoded.bytes());
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    EXPECT_EQ(std::get<TransferFrame>(*decoded), frame);
    EXPECT_EQ(dist::GroupOf(*decoded), 77u);
    EXPECT_EQ(dist::MayBeEarly(*decoded), frame.type == TransferFrame::Type::kOffer);
    for (size_t bytes = 0; bytes < encoded.bytes().size(); ++bytes) {
      EXPECT_FALSE(dist::DecodeGroupFrame(encoded.bytes().first(bytes)).ok()) << bytes;
    }
  }
}

}  // namespace
}  // namespace braid
