// Calls that are made together: the results of each are those of the call by itself, bit for bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <complex>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "api/dist.h"
#include "api/dist_batch.h"
#include "runtime/base/half.h"
#include "runtime/base/status.h"
#include "tests/dist/dist_case.h"

namespace braid {
namespace {

using dist::Batch;
using dist::ReduceOp;
using ::testing::AllOf;
using ::testing::HasSubstr;

// A call in the batch, the same one by itself on a copy of its data, and whether both gave the
// same.
struct Twin {
  std::function<void(Batch&)> add;
  std::function<absl::Status(dist::Group&)> call;
  std::function<bool()> is_same;
};

template <typename T>
struct TwinData {
  std::vector<T> input, output;
  bool operator==(const TwinData& other) const {
    const auto same = [](const std::vector<T>& a, const std::vector<T>& b) {
      return a.size() == b.size() &&
             (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
    };
    return same(input, other.input) && same(output, other.output);
  }
};

// Numbers whose sums hang on the order of adding, where T rounds.
template <typename T>
T NumberOf(int rank, int64_t i) {
  const auto value = static_cast<float>((rank * 1013 + i * 37) % 251) * 1.37F + 0.1F;
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<int>(value) % 101);
  } else {
    return T(value);
  }
}

template <typename T>
Twin MakeTwin(int rank, int64_t inputs, int64_t outputs,
              const std::function<void(Batch&, TwinData<T>&)>& add,
              const std::function<absl::Status(dist::Group&, TwinData<T>&)>& call) {
  const auto data = std::make_shared<TwinData<T>>();
  for (int64_t i = 0; i < inputs; ++i) data->input.push_back(NumberOf<T>(rank, i));
  data->output.assign(outputs, T(7.0F));
  const auto other = std::make_shared<TwinData<T>>(*data);
  return {[=](Batch& batch) { add(batch, *data); },
          [=](dist::Group& group) { return call(group, *other); }, [=] { return *data == *other; }};
}

// One of each kind, of about n elements a rank.
template <typename T>
void AddTwins(const dist::Group& group, int64_t n, ReduceOp op, std::vector<Twin>& twins) {
  using Data = TwinData<T>;
  const int rank = group.rank(), p = group.size();
  const int root = static_cast<int>(n % p);
  std::vector<int64_t> counts(p);
  for (int r = 0; r < p; ++r) counts[r] = r == 1 ? 0 : n + r;
  const int64_t own = counts[rank];
  const int64_t whole = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  const auto add = [&](int64_t inputs, int64_t outputs,
                       const std::function<void(Batch&, Data&)>& in_batch,
                       const std::function<absl::Status(dist::Group&, Data&)>& alone) {
    twins.push_back(MakeTwin<T>(rank, inputs, outputs, in_batch, alone));
  };
  add(
      n, 0, [=](Batch& b, Data& d) { b.AllReduce(d.input, op); },
      [=](dist::Group& g, Data& d) { return g.AllReduce(d.input, op); });
  add(
      n, 0, [=](Batch& b, Data& d) { b.Reduce(d.input, root, op); },
      [=](dist::Group& g, Data& d) { return g.Reduce(d.input, root, op); });
  add(
      n, 0, [=](Batch& b, Data& d) { b.Broadcast(d.input, root); },
      [=](dist::Group& g, Data& d) { return g.Broadcast(d.input, root); });
  add(
      own, whole, [=](Batch& b, Data& d) { b.AllGather(d.input, d.output, counts); },
      [=](dist::Group& g, Data& d) { return g.AllGather(d.input, d.output, counts); });
  add(
      whole, own, [=](Batch& b, Data& d) { b.ReduceScatter(d.input, d.output, op, counts); },
      [=](dist::Group& g, Data& d) { return g.ReduceScatter(d.input, d.output, op, counts); });
  add(
      own, rank == root ? whole : 0,
      [=](Batch& b, Data& d) { b.Gather(d.input, d.output, root, counts); },
      [=](dist::Group& g, Data& d) { return g.Gather(d.input, d.output, root, counts); });
  add(
      rank == root ? whole : 0, own,
      [=](Batch& b, Data& d) { b.Scatter(d.input, d.output, root, counts); },
      [=](dist::Group& g, Data& d) { return g.Scatter(d.input, d.output, root, counts); });
  add(
      n * p, n * p, [=](Batch& b, Data& d) { b.AllToAll(d.input, d.output); },
      [=](dist::Group& g, Data& d) { return g.AllToAll(d.input, d.output); });
}

absl::Status CheckTwins(dist::Group& group, const std::vector<Twin>& twins) {
  Batch batch;
  for (const Twin& twin : twins) twin.add(batch);
  BRAID_RETURN_IF_ERROR(group.Run(batch));
  for (size_t i = 0; i < twins.size(); ++i) {
    BRAID_RETURN_IF_ERROR(twins[i].call(group));
    if (!twins[i].is_same()) {
      return absl::DataLossError(absl::StrFormat("part %d of the batch", i + 1));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckBatches(dist::Group& group) {
  std::vector<Twin> twins;
  for (const int64_t n : {0, 1, 2, 777, 20'000}) {
    AddTwins<float>(group, n, ReduceOp::kSum, twins);
    AddTwins<double>(group, n, ReduceOp::kAverage, twins);
    AddTwins<BFloat16>(group, n, ReduceOp::kSum, twins);
    AddTwins<int64_t>(group, n, ReduceOp::kMin, twins);
    AddTwins<uint8_t>(group, n, ReduceOp::kXor, twins);
    AddTwins<std::complex<float>>(group, n, ReduceOp::kProduct, twins);
    AddTwins<float>(group, n + 1, ReduceOp::kSum, twins);
    AddTwins<float>(group, n + 1, ReduceOp::kAverage, twins);
  }
  BRAID_RETURN_IF_ERROR(CheckTwins(group, twins));
  // More than is joined into one call.
  twins.clear();
  for (int i = 0; i < 60; ++i) AddTwins<float>(group, 5000 + i, ReduceOp::kSum, twins);
  return CheckTwins(group, twins);
}

class BatchTest : public RanksAndTransportTest {};

TEST_P(BatchTest, GivesWhatTheCallsByThemselvesGive) { ExpectAllWell(RunWorld(CheckBatches)); }

INSTANTIATE_TEST_SUITE_P(Ranks, BatchTest,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4),
                                            ::testing::ValuesIn(kTransports)));

class BatchRunTest : public TransportTest {};
INSTANTIATE_TEST_SUITE_P(Transports, BatchRunTest, ::testing::ValuesIn(kTransports));

TEST_P(BatchRunTest, RunsAgainAndBesideOthers) {
  ExpectAllWell(RunWorld(3, [](dist::World& world) -> absl::Status {
    constexpr int kBatches = 20, kTurns = 5;
    std::vector<std::vector<int>> data(kBatches * 10, std::vector<int>(10, 1));
    std::vector<Batch> batches(kBatches);
    for (size_t i = 0; i < data.size(); ++i) batches[i / 10].AllReduce(data[i]);
    for (int turn = 0; turn < kTurns; ++turn) {
      std::vector<dist::Work> works;
      for (const Batch& batch : batches) works.push_back(world.StartRun(batch));
      for (dist::Work& work : works) BRAID_RETURN_IF_ERROR(work.Wait());
    }
    for (const std::vector<int>& sums : data) {
      if (sums != std::vector<int>(10, 243)) return absl::DataLossError("a wrong sum");
    }
    return world.Run(Batch());
  }));
}

TEST_P(BatchRunTest, SendsAndReceivesGoBesideTheCallsOfAll) {
  ExpectAllWell(RunWorld(3, [](dist::World& world) -> absl::Status {
    const int next = (world.rank() + 1) % 3, last = (world.rank() + 2) % 3;
    std::vector<int> own(1000, world.rank()), got(1000), sum = {1}, product = {2};
    Batch batch;
    batch.AllReduce(sum);
    batch.Send(own, next, 4);
    batch.Receive(got, last, 4);
    batch.AllReduce(product, ReduceOp::kProduct);
    BRAID_RETURN_IF_ERROR(world.Run(batch));
    // Ranks of which only two do.
    Batch of_two;
    of_two.AllReduce(sum);
    if (world.rank() == 0) of_two.Send(own, 2);
    if (world.rank() == 2) of_two.Receive(got, 0);
    BRAID_RETURN_IF_ERROR(world.Run(of_two));
    const int from = world.rank() == 2 ? 0 : last;
    return got == std::vector<int>(1000, from) && sum[0] == 9 && product[0] == 8
               ? absl::OkStatus()
               : absl::DataLossError("wrong numbers");
  }));
}

TEST_P(BatchRunTest, FunctionsOfTheProgramsReduceInIt) {
  ExpectAllWell(RunWorld(4, [](dist::World& world) -> absl::Status {
    const auto furthest = dist::Reduction::By<int>(
        "furthest", [](const int& a, const int& b) { return std::abs(a) < std::abs(b) ? b : a; });
    std::vector<int> a = {-world.rank(), 1}, b = {2 * world.rank()}, c = {1};
    Batch batch;
    batch.AllReduce(a, furthest);
    batch.AllReduce(c);
    batch.Reduce(b, 3, furthest);
    BRAID_RETURN_IF_ERROR(world.Run(batch));
    return a[0] == -3 && a[1] == 1 && c[0] == 4 && (world.rank() != 3 || b[0] == 6)
               ? absl::OkStatus()
               : absl::DataLossError("wrong numbers");
  }));
}

TEST_P(BatchRunTest, AnExceptionNamesThePart) {
  const WorldEnd end = RunWorld(3, [](dist::World& world) -> absl::Status {
    std::vector<int> a = {1}, b = {1};
    Batch batch;
    batch.AllReduce(a);
    batch.AllReduce(b, dist::Reduction::By<int>("throwing", [](const int&, const int&) -> int {
                      throw std::out_of_range("7 of 3");
                    }));
    return world.Run(batch);
  });
  for (const absl::Status& status : end.programs) {
    EXPECT_EQ(status, end.programs[0]);
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("all_reduce of 1 i32, by 'throwing' (batch_test.cc:"),
                      HasSubstr(", part 2 of a batch of 2 (batch_test.cc:"),
                      HasSubstr("threw std::out_of_range: 7 of 3")));
  }
}

// Mistakes of one rank's are its own: nothing of the batch is made, and the next call works.
TEST_P(BatchRunTest, MistakesAreSaidAndForgotten) {
  ExpectAllWell(RunWorld(2, [](dist::World& world) -> absl::Status {
    std::vector<float> data(10, 1), output(20);
    const std::span<float> all(data);
    const std::vector<std::pair<std::function<void(Batch&)>, std::string>> mistakes = {
        {[&](Batch& batch) { batch.Broadcast(data, 2); }, "part 2 of a batch (batch_test.cc:"},
        {[&](Batch& batch) { batch.Broadcast(data, 2); },
         "root is 2, and the group has ranks 0 to 1"},
        {[&](Batch& batch) {
           batch.AllReduce(all.first(6));
           batch.Broadcast(all.last(5), 0);
         },
         "a batch: part 2, all_reduce of 6 f32, sum (batch_test.cc:"},
        {[&](Batch& batch) {
           batch.AllGather(all, output);
           batch.AllReduce(all.last(1));
         },
         "overlap; give it memory of its own"},
        {[&](Batch& batch) {
           batch.AllReduce(all.last(1));
           batch.Send(all, 1 - world.rank());
         },
         "and part 3, send of 10 f32 to rank"},
    };
    std::vector<float> other = {1};
    for (const auto& [add, words] : mistakes) {
      Batch batch;
      batch.AllReduce(other);
      add(batch);
      const absl::Status status = world.Run(batch);
      if (!absl::IsInvalidArgument(status) || status.message().find(words) == std::string::npos) {
        return absl::InternalError(absl::StrFormat("%s; not '%s'", status.ToString(), words));
      }
    }
    // Who only reads may share.
    Batch batch;
    batch.AllGather(all, output);
    batch.Send(all, 1 - world.rank());
    std::vector<float> got(10);
    batch.Receive(got, 1 - world.rank());
    batch.AllReduce(other);
    BRAID_RETURN_IF_ERROR(world.Run(batch));
    return other[0] == 2 && got[9] == 1 ? absl::OkStatus() : absl::DataLossError("wrong numbers");
  }));
}

}  // namespace
}  // namespace braid
