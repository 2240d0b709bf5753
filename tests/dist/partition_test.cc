// Who gets which samples, beside plain loops over the whole list.
#include "api/partition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <ranges>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "api/object_format.h"

namespace braid {
namespace {

using dist::DataPartitioner;
using dist::DistributedSampler;
using dist::DistributedSamplerOptions;
using dist::Remainder;
using dist::SampleRange;
using dist::SamplerState;
using ::testing::AllOf;
using ::testing::HasSubstr;

using Samples = std::vector<int64_t>;

static_assert(std::ranges::forward_range<const SampleRange>);
static_assert(std::ranges::sized_range<const SampleRange>);

Samples ListOf(const SampleRange& range) { return Samples(range.begin(), range.end()); }

DistributedSampler Made(int64_t n, int rank, int ranks,
                        const DistributedSamplerOptions& options = {}) {
  return *DistributedSampler::Make(n, rank, ranks, options);
}

// The list that ranks share: of one rank it is its part.
Samples Order(int64_t n, int64_t epoch, DistributedSamplerOptions options) {
  options.remainder = Remainder::kPad;
  DistributedSampler sampler = Made(n, 0, 1, options);
  sampler.SetEpoch(epoch);
  return ListOf(sampler.samples());
}

Samples Sorted(Samples samples) {
  std::ranges::sort(samples);
  return samples;
}

Samples Counting(int64_t n) {
  Samples samples(static_cast<size_t>(n));
  std::iota(samples.begin(), samples.end(), int64_t{0});
  return samples;
}

// As the definition says: pad or cut the list, then every `ranks`-th of it.
Samples Reference(Samples list, int rank, int ranks, Remainder remainder) {
  const Samples whole = list;
  size_t next = 0;
  while (remainder == Remainder::kPad && list.size() % static_cast<size_t>(ranks) != 0) {
    list.push_back(whole[next++ % whole.size()]);
  }
  while (remainder == Remainder::kDrop && list.size() % static_cast<size_t>(ranks) != 0) {
    list.pop_back();
  }
  Samples part;
  for (auto i = static_cast<size_t>(rank); i < list.size(); i += static_cast<size_t>(ranks)) {
    part.push_back(list[i]);
  }
  return part;
}

// All batches of an epoch, one behind the other.
Samples Rest(DistributedSampler& sampler) {
  Samples got;
  while (const auto batch = sampler.Next()) {
    got.insert(got.end(), batch->samples.begin(), batch->samples.end());
  }
  return got;
}

TEST(DistributedSampler, PartsAreEveryNthOfThePaddedList) {
  for (const auto remainder : {Remainder::kPad, Remainder::kDrop, Remainder::kUneven}) {
    for (const int64_t n : {1, 2, 7, 12, 13}) {
      for (const int ranks : {1, 2, 3, 4, 5, 30}) {
        if (remainder == Remainder::kDrop && n < ranks) continue;
        for (const bool shuffle : {false, true}) {
          const DistributedSamplerOptions options = {
              .batch_size = 2, .shuffle = shuffle, .seed = 5, .remainder = remainder};
          for (const int64_t epoch : {0, 1, 7}) {
            const Samples order = Order(n, epoch, options);
            EXPECT_EQ(Sorted(order), Counting(n));
            EXPECT_TRUE(shuffle || order == Counting(n));
            int64_t batches = 0;
            for (int rank = 0; rank < ranks; ++rank) {
              SCOPED_TRACE(absl::StrFormat("%d samples, rank %d of %d, epoch %d, remainder %d", n,
                                           rank, ranks, epoch, remainder));
              DistributedSampler sampler = Made(n, rank, ranks, options);
              const Samples expected = Reference(order, rank, ranks, remainder);
              sampler.SetEpoch(epoch);
              EXPECT_EQ(ListOf(sampler.samples()), expected);
              EXPECT_EQ(sampler.size(), static_cast<int64_t>(expected.size()));
              if (rank == 0) batches = sampler.num_batches();
              EXPECT_EQ(sampler.num_batches(), batches);
              EXPECT_EQ(Rest(sampler), expected);
              EXPECT_EQ(sampler.epoch(), epoch + 1);
            }
          }
        }
      }
    }
  }
}

TEST(DistributedSampler, EpochsAndSeedsHaveOrdersOfTheirOwn) {
  std::set<Samples> orders;
  for (const uint64_t seed : {0, 1, 2}) {
    for (const int64_t epoch : {-1, 0, 1, 2}) {
      EXPECT_TRUE(orders.insert(Order(50, epoch, {.seed = seed})).second);
    }
  }
  // Without a word about epochs each is another.
  DistributedSampler sampler = Made(50, 0, 1, {.batch_size = 8});
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    EXPECT_EQ(sampler.epoch(), epoch);
    EXPECT_EQ(Rest(sampler), Order(50, epoch, {}));
  }
}

// It is part of what a checkpoint resumes: it must not change between versions.
TEST(DistributedSampler, OrderIsFixedForever) {
  EXPECT_EQ(Order(8, 0, {.seed = 1}), (Samples{6, 5, 3, 0, 4, 7, 1, 2}));
  EXPECT_EQ(ListOf((*DataPartitioner::Make(8, {0.5}, 1)).parts()[0]), (Samples{1, 6, 7, 2}));
}

TEST(DistributedSampler, LargeDatasetsAreNotListed) {
  constexpr int64_t n = 3'000'000'000;
  DistributedSampler sampler = Made(n, 2, 4, {.batch_size = 3, .seed = 1});
  EXPECT_EQ(sampler.size(), n / 4);
  const auto batch = sampler.Next();
  ASSERT_TRUE(batch.has_value());
  const DistributedSampler whole = Made(n, 0, 1, {.seed = 1});
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(batch->samples[i], whole.samples()[static_cast<int64_t>(4 * i + 2)]);
  }
}

// The weighted mean over steps and over an epoch is the mean over the samples, each once.
TEST(DistributedSampler, WeightsMakeMeansExact) {
  constexpr int64_t n = 23;
  constexpr int kRanks = 5;
  const auto value = [](int64_t sample) { return static_cast<double>(sample * sample); };
  const auto mean = [&](const auto& samples) {
    double sum = 0;
    for (const int64_t sample : samples) sum += value(sample);
    return sum / static_cast<double>(samples.size());
  };
  for (const int64_t batch_size : {1, 2, 3, 100}) {
    std::vector<DistributedSampler> samplers;
    double of_epoch = 0;
    for (int rank = 0; rank < kRanks; ++rank) {
      samplers.push_back(
          Made(n, rank, kRanks, {.batch_size = batch_size, .remainder = Remainder::kUneven}));
      of_epoch += samplers[rank].weight() * mean(samplers[rank].samples());
    }
    EXPECT_NEAR(of_epoch, mean(Counting(n)), 1e-9);
    Samples seen;
    for (int64_t step = 0; step < samplers[0].num_batches(); ++step) {
      Samples all;
      double weighted = 0, weights = 0;
      for (DistributedSampler& sampler : samplers) {
        const auto batch = sampler.Next();
        ASSERT_TRUE(batch.has_value());  // on all ranks, or on none
        weights += batch->weight;
        if (!batch->samples.empty()) weighted += batch->weight * mean(batch->samples);
        all.insert(all.end(), batch->samples.begin(), batch->samples.end());
      }
      EXPECT_NEAR(weights, 1, 1e-12);
      EXPECT_NEAR(weighted, mean(all), 1e-9);
      seen.insert(seen.end(), all.begin(), all.end());
    }
    for (DistributedSampler& sampler : samplers) EXPECT_FALSE(sampler.Next().has_value());
    EXPECT_EQ(Sorted(seen), Counting(n));
  }
}

TEST(DistributedSampler, GoesOnWhereItsStateWasTaken) {
  for (const auto remainder : {Remainder::kPad, Remainder::kDrop, Remainder::kUneven}) {
    const DistributedSamplerOptions options = {.batch_size = 3, .seed = 9, .remainder = remainder};
    for (int64_t batches = 0; batches < 12; ++batches) {
      for (int rank = 0; rank < 4; ++rank) {
        DistributedSampler sampler = Made(22, rank, 4, options);
        // The end of an epoch counts as a call.
        for (int64_t i = 0; i < batches; ++i) sampler.Next();
        const SamplerState state = sampler.state();
        EXPECT_EQ(state, [&] {
          DistributedSampler first = Made(22, 0, 4, options);
          for (int64_t i = 0; i < batches; ++i) first.Next();
          return first.state();
        }());
        // As bytes, as a store or a file has it.
        const auto read = dist::DecodeObject<SamplerState>(*dist::EncodeObject(state));
        ASSERT_TRUE(read.ok()) << read.status();
        DistributedSampler other = Made(22, rank, 4, options);
        other.SetEpoch(77);
        ASSERT_TRUE(other.Restore(*read).ok());
        EXPECT_EQ(other.state(), state);
        for (int i = 0; i < 3; ++i) EXPECT_EQ(Rest(other), Rest(sampler)) << batches;
      }
    }
  }
}

// After a restart with more or fewer ranks every sample still comes once.
TEST(DistributedSampler, GoesOnWithOtherNumbersOfRanks) {
  constexpr int64_t n = 101;
  for (const int after : {1, 3, 4, 7, 200}) {
    for (int64_t batches = 0; batches < 9; ++batches) {
      const DistributedSamplerOptions options = {
          .batch_size = 4, .seed = 2, .remainder = Remainder::kUneven};
      Samples seen;
      SamplerState state;
      for (int rank = 0; rank < 4; ++rank) {
        DistributedSampler sampler = Made(n, rank, 4, options);
        for (int64_t i = 0; i < batches; ++i) {
          const auto batch = sampler.Next();
          if (batch.has_value())
            seen.insert(seen.end(), batch->samples.begin(), batch->samples.end());
        }
        state = sampler.state();
      }
      if (state.epoch == 1) seen.clear();
      for (int rank = 0; rank < after; ++rank) {
        DistributedSampler sampler = Made(n, rank, after, options);
        ASSERT_TRUE(sampler.Restore(state).ok());
        const Samples rest = Rest(sampler);
        seen.insert(seen.end(), rest.begin(), rest.end());
        EXPECT_EQ(sampler.epoch(), state.epoch + 1);
      }
      EXPECT_EQ(Sorted(seen), Counting(n)) << batches << " batches, then " << after << " ranks";
    }
  }
}

std::string ErrorOf(int64_t n, int rank, int ranks, const DistributedSamplerOptions& options = {}) {
  const absl::Status status = DistributedSampler::Make(n, rank, ranks, options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST(DistributedSampler, WrongArgumentsAreErrors) {
  EXPECT_THAT(ErrorOf(0, 0, 1), HasSubstr("of 0 samples; there must be from 1"));
  EXPECT_THAT(ErrorOf(-3, 0, 1), HasSubstr("of -3 samples"));
  EXPECT_THAT(ErrorOf(10, 4, 4), HasSubstr("of rank 4 of 4"));
  EXPECT_THAT(ErrorOf(10, -1, 4), HasSubstr("of rank -1 of 4"));
  EXPECT_THAT(ErrorOf(10, 0, 0), HasSubstr("of rank 0 of 0"));
  EXPECT_THAT(ErrorOf(10, 0, 1, {.batch_size = 0}), HasSubstr("batches of 0 samples"));
  EXPECT_THAT(ErrorOf(3, 0, 4, {.remainder = Remainder::kDrop}),
              AllOf(HasSubstr("of 3 samples for 4 ranks"), HasSubstr("leaves none")));
  DistributedSampler sampler = Made(10, 0, 2, {.seed = 1});
  const auto restored = [&](const SamplerState& state) {
    return std::string(sampler.Restore(state).message());
  };
  EXPECT_THAT(restored({.num_samples = 9, .seed = 1}),
              AllOf(HasSubstr("of 9 samples and seed 1"), HasSubstr("has 10 and seed 1")));
  EXPECT_THAT(restored({.num_samples = 10, .seed = 2}), HasSubstr("of 10 samples and seed 2"));
  EXPECT_THAT(restored({.consumed = -1, .num_samples = 10, .seed = 1}), HasSubstr("-1 samples"));
  EXPECT_THAT(restored({.consumed = 11, .num_samples = 10, .seed = 1}), HasSubstr("11 samples"));
}

TEST(DataPartitioner, CutsAShuffledListWhereTheSumsSay) {
  const std::vector<double> thirds(3, 1.0 / 3), tenths(10, 0.1f);
  const std::vector<std::pair<std::vector<double>, std::vector<int64_t>>> cases = {
      {{0.7, 0.2, 0.1}, {70, 20, 10}}, {{0.5, 0.25}, {50, 25}}, {{1}, {100}},
      {{0.005, 0.995}, {1, 99}},       {thirds, {33, 34, 33}},  {tenths, Samples(10, 10)}};
  for (const auto& [sizes, counts] : cases) {
    const auto partitioner = DataPartitioner::Make(100, sizes, 3);
    ASSERT_TRUE(partitioner.ok()) << partitioner.status();
    const Samples order = ListOf((*DataPartitioner::Make(100, {1}, 3)).parts()[0]);
    EXPECT_EQ(Sorted(order), Counting(100));
    EXPECT_NE(order, Counting(100));
    std::vector<int64_t> got;
    Samples all;
    for (const SampleRange& part : partitioner->parts()) {
      got.push_back(part.size());
      const Samples list = ListOf(part);
      all.insert(all.end(), list.begin(), list.end());
    }
    EXPECT_EQ(got, counts);
    EXPECT_EQ(all, Samples(order.begin(), order.begin() + static_cast<int64_t>(all.size())));
  }
  EXPECT_NE(ListOf((*DataPartitioner::Make(100, {1}, 3)).parts()[0]),
            ListOf((*DataPartitioner::Make(100, {1}, 4)).parts()[0]));
  // Neither is a list of this many kept.
  const auto large = DataPartitioner::Make(int64_t{1} << 40, {0.5, 0.5});
  EXPECT_EQ(large->parts()[1].size(), int64_t{1} << 39);
  EXPECT_LT(large->parts()[1][17], int64_t{1} << 40);
}

TEST(DataPartitioner, WrongSizesAreErrors) {
  const auto error = [](int64_t n, const std::vector<double>& sizes) {
    const absl::Status status = DataPartitioner::Make(n, sizes).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(error(0, {1}), HasSubstr("of 0 samples"));
  EXPECT_THAT(error(-1, {1}), HasSubstr("of -1 samples"));
  EXPECT_THAT(error(10, {}), HasSubstr("sizes {}"));
  EXPECT_THAT(error(10, {0.5, 0}), HasSubstr("sizes {0.5, 0}: they must be fractions above 0"));
  EXPECT_THAT(error(10, {1.2, -0.3}), HasSubstr("above 0"));
  EXPECT_THAT(error(10, {0.5, std::nan("")}), HasSubstr("above 0"));
  EXPECT_THAT(error(10, {0.7, 0.4}), AllOf(HasSubstr("at most 1"), HasSubstr("add up to 1.1")));
  EXPECT_THAT(error(10, {0.99, 0.01}), HasSubstr("part 1, of size 0.01, has none of 10 samples"));
}

}  // namespace
}  // namespace braid
