#include "runtime/data/sampler.h"

#include <glog/logging.h>

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

namespace braid {
namespace {

constexpr int kRounds = 8;

// A permutation of the numbers below 2^bits, 2 <= bits <= 62: a Feistel cipher whose two parts may
// be of unequal length. Rounds change the one by a random function of the other, in turn.
uint64_t Encipher(const RandomKey& key, int bits, uint64_t x) {
  const int low_bits = bits / 2;
  const uint64_t low_mask = (uint64_t{1} << low_bits) - 1;
  const uint64_t high_mask = (uint64_t{1} << (bits - low_bits)) - 1;
  uint64_t low = x & low_mask, high = x >> low_bits;
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t other = round % 2 == 0 ? high : low;
    // No two rounds and parts have the same word: a part has less than 32 bits.
    const uint32_t random = Uint32At(key, (static_cast<uint64_t>(round) << 32 | other) << 2);
    if (round % 2 == 0) {
      low ^= random & low_mask;
    } else {
      high ^= random & high_mask;
    }
  }
  return high << low_bits | low;
}

}  // namespace

Permutation::Permutation(int64_t size) : size_(size) {
  CHECK_GE(size, 1);
  CHECK_LE(size, kMostNumbers);
  if (size > kMostKept) return;
  order_.resize(static_cast<size_t>(size));
  std::iota(order_.begin(), order_.end(), int64_t{0});
}

void Permutation::Shuffle(const RandomKey& key) {
  key_ = key;
  std::iota(order_.begin(), order_.end(), int64_t{0});
  // Fisher-Yates, from the end. Step i draws from words 2i and 2i + 1: 64 random bits scaled to
  // [0, i], uneven by at most i / 2^64.
  constexpr int64_t kDrawnAtOnce = 512;
  std::array<uint32_t, 2 * kDrawnAtOnce> words;
  for (int64_t end = std::ssize(order_); end > 0; end -= std::min(end, kDrawnAtOnce)) {
    const int64_t begin = std::max<int64_t>(end - kDrawnAtOnce, 0);
    FillUint32(key, static_cast<uint64_t>(2 * begin), static_cast<size_t>(2 * (end - begin)),
               words.data());
    for (int64_t i = end - 1; i >= begin; --i) {
      const size_t at = static_cast<size_t>(2 * (i - begin));
      const uint64_t bits = uint64_t{words[at]} << 32 | words[at + 1];
      const auto j = static_cast<size_t>(
          (static_cast<unsigned __int128>(bits) * static_cast<uint64_t>(i + 1)) >> 64);
      std::swap(order_[static_cast<size_t>(i)], order_[j]);
    }
  }
}

// The cipher permutes the numbers below the next power of two; those that are not below `size` are
// followed to where they lead, less than twice on average. So the numbers are permuted, too.
int64_t Permutation::Compute(int64_t place) const {
  if (!key_.has_value()) return place;
  const int bits = std::bit_width(static_cast<uint64_t>(size_ - 1));
  auto number = static_cast<uint64_t>(place);
  do {
    number = Encipher(*key_, bits, number);
  } while (number >= static_cast<uint64_t>(size_));
  return static_cast<int64_t>(number);
}

RandomKey EpochKey(uint64_t seed, std::string_view name, int64_t epoch) {
  return MakeRandomKey(seed, StableHash(name, StableHash("sampler/")), epoch);
}

Sampler::Sampler(int64_t num_samples, const SamplerOptions& options)
    : num_samples_(num_samples),
      epoch_length_(options.epoch_length > 0 ? options.epoch_length : num_samples),
      shuffle_(options.shuffle),
      seed_(options.seed),
      name_(options.name) {
  CHECK_GE(num_samples, 1);
  if (!shuffle_) return;
  for (Epoch& epoch : epochs_) epoch.order = Permutation(num_samples);
}

const Permutation& Sampler::OrderOf(int64_t number) {
  Epoch& epoch = epochs_[static_cast<size_t>(number % 2)];
  if (epoch.number != number) {
    epoch.order.Shuffle(EpochKey(seed_, name_, number));
    epoch.number = number;
  }
  return epoch.order;
}

int64_t Sampler::SampleAt(int64_t position) {
  CHECK_GE(position, 0);
  const int64_t place = position % epoch_length_ % num_samples_;
  return shuffle_ ? OrderOf(position / epoch_length_)[place] : place;
}

void Sampler::SamplesAt(int64_t first_position, std::span<int64_t> out) {
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = SampleAt(first_position + static_cast<int64_t>(i));
  }
}

}  // namespace braid
