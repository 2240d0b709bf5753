#include "runtime/data/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
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

// The order is part of what a checkpoint resumes: it must not change between versions.
TEST(Sampler, OrderIsFixedForever) {
  Sampler sampler(8, {.shuffle = true, .seed = 1, .name = "r"});
  EXPECT_EQ(Epoch(sampler, 8, 0), (std::vector<int64_t>{5, 2, 3, 4, 6, 1, 0, 7}));
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
