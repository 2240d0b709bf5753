// The order in which a reader goes through a dataset: a function of (seed, name, position) that is
// the same on every node, so that each node finds the samples of its own part of a batch by itself.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/philox.h"

namespace braid {

// An order of the numbers below `size` that follows from a key. Of up to kMostKept numbers it is
// kept; of more each is computed when it is asked for, in the time of a few random numbers. A
// value, which any number of threads may read.
class Permutation {
 public:
  static constexpr int64_t kMostKept = int64_t{1} << 20;
  static constexpr int64_t kMostNumbers = int64_t{1} << 62;

  Permutation() = default;  // of no numbers
  // The numbers in their own order. 1 <= size <= kMostNumbers.
  explicit Permutation(int64_t size);

  // Into the key's order; in the memory that it has.
  void Shuffle(const RandomKey& key);

  // 0 <= place < size().
  int64_t operator[](int64_t place) const {
    return order_.empty() ? Compute(place) : order_[static_cast<size_t>(place)];
  }
  int64_t size() const { return size_; }

 private:
  int64_t Compute(int64_t place) const;

  int64_t size_ = 0;
  std::optional<RandomKey> key_;
  std::vector<int64_t> order_;
};

// The key of a dataset's order in an epoch; `name` says whose order it is.
RandomKey EpochKey(uint64_t seed, std::string_view name, int64_t epoch);

struct SamplerOptions {
  bool shuffle = false;
  uint64_t seed = 0;
  std::string name;  // of the reader; two readers of one dataset get different orders
  // Positions of an epoch. 0: as many as there are samples. Of fewer the last samples of the order
  // are left out; of more its first ones come again.
  int64_t epoch_length = 0;
};

// Belongs to one thread. Has the permutations of two epochs, as a batch may straddle them, and
// their memory from the start.
class Sampler {
 public:
  static constexpr int64_t kMostKept = Permutation::kMostKept;

  // num_samples >= 1.
  Sampler(int64_t num_samples, const SamplerOptions& options);

  // Positions count from the start of training: position g is in epoch g / epoch_length, and each
  // epoch visits every sample once, as far as its length lets it.
  int64_t SampleAt(int64_t position);
  void SamplesAt(int64_t first_position, std::span<int64_t> out);

  // Of the permutations.
  static int64_t MemoryBytes(int64_t num_samples, bool shuffle) {
    const bool keeps = shuffle && num_samples <= kMostKept;
    return keeps ? 2 * num_samples * static_cast<int64_t>(sizeof(int64_t)) : 0;
  }

 private:
  struct Epoch {
    int64_t number = -1;
    Permutation order;
  };
  const Permutation& OrderOf(int64_t epoch);
  int64_t num_samples_;
  int64_t epoch_length_;
  bool shuffle_;
  uint64_t seed_;
  std::string name_;
  std::array<Epoch, 2> epochs_;  // epoch e is kept at e % 2
};

}  // namespace braid
