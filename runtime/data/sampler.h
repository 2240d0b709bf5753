// The order in which a reader goes through a dataset: a function of (seed, name, position) that is
// the same on every node, so that each node finds the samples of its own part of a batch by itself.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace braid {

struct SamplerOptions {
  bool shuffle = false;
  uint64_t seed = 0;
  std::string name;  // of the reader; two readers of one dataset get different orders
  // Positions of an epoch. 0: as many as there are samples. Of fewer the last samples of the order
  // are left out; of more its first ones come again.
  int64_t epoch_length = 0;
};

// Belongs to one thread. Of a dataset with up to kMostKept samples it keeps the permutations of two
// epochs (a batch may straddle them); of a larger one it computes each sample's place when it is
// asked for, and keeps nothing.
class Sampler {
 public:
  static constexpr int64_t kMostKept = int64_t{1} << 20;

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
    std::vector<int64_t> order;
  };
  const std::vector<int64_t>& OrderOf(int64_t epoch);
  // What stands at `place` in the order of a large dataset.
  int64_t ComputeSample(int64_t epoch, int64_t place) const;
  int64_t num_samples_;
  int64_t epoch_length_;
  bool shuffle_;
  uint64_t seed_;
  uint64_t name_hash_;
  std::array<Epoch, 2> epochs_;  // epoch e is kept at e % 2
};

}  // namespace braid
