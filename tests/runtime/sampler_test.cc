#include "runtime/data/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <set>
#include <vector>

namespace braid {
namespace {

std::vector<int64_t> Epoch(Sampler& sampler, int64_t n, int64_t epoch) {
  std::vector<int64_t> out(static_cast<size_t>(n));
  sampler.SamplesAt(epoch * n, out);
  return out;
}

TEST(Sampler, IdentityWithoutShuffle) {
  Sampler sampler(3, {});
  std::vector<int64_t> out(7);
  sampler.SamplesAt(2, out);
  EXPECT_EQ(out, (std::vector<int64_t>{2, 0, 1, 2, 0, 1, 2}));
}

TEST(Sampler, EveryEpochIsAPermutationOfItsOwn) {
  constexpr int64_t kN = 1500;
  std::vector<int64_t> identity(kN);
  std::iota(identity.begin(), identity.end(), 0);
  Sampler sampler(kN, {.shuffle = true, .seed = 3, .name = "train"});
  std::vector<std::vector<int64_t>> epochs;
  for (int64_t e = 0; e < 4; ++e) {
    epochs.push_back(Epoch(sampler, kN, e));
    EXPECT_NE(epochs.back(), identity);
    std::vector<int64_t> sorted = epochs.back();
    std::sort(sorted.begin(), sorted.end());
    EXPECT_EQ(sorted, identity);
    for (int64_t before = 0; before < e; ++before) {
      EXPECT_NE(epochs[static_cast<size_t>(before)], epochs.back());
    }
  }
  // The same on another node, in another order of asking.
  Sampler other(kN, {.shuffle = true, .seed = 3, .name = "train"});
  for (int64_t position : {5999, 0, 1499, 1500, 3000, 17, 4500}) {
    EXPECT_EQ(other.SampleAt(position),
              epochs[static_cast<size_t>(position / kN)][static_cast<size_t>(position % kN)]);
  }
  Sampler other_seed(kN, {.shuffle = true, .seed = 4, .name = "train"});
  Sampler other_name(kN, {.shuffle = true, .seed = 3, .name = "test"});
  EXPECT_NE(Epoch(other_seed, kN, 0), epochs[0]);
  EXPECT_NE(Epoch(other_name, kN, 0), epochs[0]);
}

TEST(Sampler, EpochsOfOtherLengths) {
  const SamplerOptions options = {.shuffle = true, .seed = 1, .name = "r"};
  Sampler plain(8, options);
  for (const int64_t length : {6, 9}) {
    SamplerOptions other = options;
    other.epoch_length = length;
    Sampler sampler(8, other);
    for (int64_t epoch = 0; epoch < 3; ++epoch) {
      std::vector<int64_t> expected = Epoch(plain, 8, epoch);
      expected.push_back(expected[0]);
      expected.resize(static_cast<size_t>(length));
      EXPECT_EQ(Epoch(sampler, length, epoch), expected);
    }
  }
}

// The order is part of what a checkpoint resumes: it must not change between versions.
TEST(Sampler, OrderIsFixedForever) {
  Sampler sampler(8, {.shuffle = true, .seed = 1, .name = "r"});
  EXPECT_EQ(Epoch(sampler, 8, 0), (std::vector<int64_t>{5, 2, 3, 4, 6, 1, 0, 7}));
}

// A gigabyte of text has as many windows as bytes: their order takes no memory.
TEST(Sampler, LargeDatasetsTakeNoMemory) {
  const int64_t large = int64_t{1} << 33;
  EXPECT_EQ(Sampler::MemoryBytes(large, true), 0);
  EXPECT_EQ(Sampler::MemoryBytes(Sampler::kMostKept, true), Sampler::kMostKept * 16);
  Sampler sampler(large, {.shuffle = true, .seed = 3, .name = "train"});
  std::set<int64_t> seen;
  for (int64_t place = 0; place < 1000; ++place) {
    const int64_t sample = sampler.SampleAt(5 * large + place);
    EXPECT_GE(sample, 0);
    EXPECT_LT(sample, large);
    EXPECT_TRUE(seen.insert(sample).second) << place;
  }
}

TEST(Sampler, LargeEpochsArePermutationsOfTheirOwn) {
  for (const int64_t n : {Sampler::kMostKept + 1, 3 * Sampler::kMostKept / 2}) {
    Sampler sampler(n, {.shuffle = true, .seed = 3, .name = "train"});
    const std::vector<int64_t> first = Epoch(sampler, n, 0), second = Epoch(sampler, n, 1);
    EXPECT_NE(first, second);
    for (const auto* epoch : {&first, &second}) {
      std::vector<bool> seen(static_cast<size_t>(n), false);
      for (int64_t sample : *epoch) seen[static_cast<size_t>(sample)] = true;
      EXPECT_EQ(std::count(seen.begin(), seen.end(), true), n);
    }
  }
}

// Where samples come, in eighths of an epoch and of the dataset: all 64 combinations equally often,
// also of neighbours, and between two epochs.
TEST(Sampler, LargeEpochsAreShuffledEvenly) {
  constexpr int64_t n = Sampler::kMostKept + 12345;
  Sampler sampler(n, {.shuffle = true, .seed = 9, .name = "r"});
  const std::vector<int64_t> order = Epoch(sampler, n, 0), next = Epoch(sampler, n, 1);
  const auto eighth = [](int64_t i) { return static_cast<size_t>(8 * i / n); };
  std::array<std::array<int, 8>, 8> places = {}, neighbours = {}, epochs = {};
  for (int64_t i = 0; i + 1 < n; ++i) {
    const auto at = static_cast<size_t>(i);
    ++places[eighth(i)][eighth(order[at])];
    ++neighbours[eighth(order[at])][eighth(order[at + 1])];
    ++epochs[eighth(order[at])][eighth(next[at])];
  }
  for (const auto* table : {&places, &neighbours, &epochs}) {
    for (const auto& row : *table) {
      for (int count : row) EXPECT_NEAR(count, n / 64, 800);  // the standard deviation is 127
    }
  }
}

TEST(Sampler, TheOrderOfALargeDatasetIsFixedForever) {
  Sampler sampler(3000000000, {.shuffle = true, .seed = 1, .name = "r"});
  std::vector<int64_t> first(4);
  sampler.SamplesAt(0, first);
  EXPECT_EQ(first, (std::vector<int64_t>{563339116, 2348588246, 1447045966, 1223760358}));
}

// Each of the 24 orders of 4 samples comes up about equally often.
TEST(Sampler, ShufflesEvenly) {
  std::vector<int> counts(256, 0);
  Sampler sampler(4, {.shuffle = true, .seed = 9, .name = "r"});
  constexpr int kEpochs = 24000;
  for (int64_t e = 0; e < kEpochs; ++e) {
    int code = 0;
    for (int64_t sample : Epoch(sampler, 4, e)) code = 4 * code + static_cast<int>(sample);
    ++counts[static_cast<size_t>(code)];
  }
  int orders = 0;
  for (int count : counts) {
    if (count == 0) continue;
    ++orders;
    EXPECT_NEAR(count, 1000, 150);  // the standard deviation is 31
  }
  EXPECT_EQ(orders, 24);
}

}  // namespace
}  // namespace braid
