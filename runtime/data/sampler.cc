#include "runtime/data/sampler.h"

#include <glog/logging.h>

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

#include "runtime/base/philox.h"

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

Sampler::Sampler(int64_t num_samples, const SamplerOptions& options)
    : num_samples_(num_samples),
      epoch_length_(options.epoch_length > 0 ? options.epoch_length : num_samples),
      shuffle_(options.shuffle),
      seed_(options.seed),
      name_hash_(StableHash("sampler/" + options.name)) {
  CHECK_GE(num_samples, 1);
  if (!shuffle_ || num_samples > kMostKept) return;
  for (Epoch& epoch : epochs_) epoch.order.resize(static_cast<size_t>(num_samples));
}

const std::vector<int64_t>& Sampler::OrderOf(int64_t number) {
  Epoch& epoch = epochs_[static_cast<size_t>(number % 2)];
  if (epoch.number == number) return epoch.order;
  epoch.number = number;
  std::iota(epoch.order.begin(), epoch.order.end(), int64_t{0});
  // Fisher-Yates, from the end. Step i draws from words 2i and 2i + 1: 64 random bits scaled to
  // [0, i], uneven by at most i / 2^64.
  const RandomKey key = MakeRandomKey(seed_, name_hash_, number);
  constexpr int64_t kDrawnAtOnce = 512;
  std::array<uint32_t, 2 * kDrawnAtOnce> words;
  for (int64_t end = num_samples_; end > 0; end -= std::min(end, kDrawnAtOnce)) {
    const int64_t begin = std::max<int64_t>(end - kDrawnAtOnce, 0);
    FillUint32(key, static_cast<uint64_t>(2 * begin), static_cast<size_t>(2 * (end - begin)),
               words.data());
    for (int64_t i = end - 1; i >= begin; --i) {
      const size_t at = static_cast<size_t>(2 * (i - begin));
      const uint64_t bits = uint64_t{words[at]} << 32 | words[at + 1];
      const auto j = static_cast<size_t>(
          (static_cast<unsigned __int128>(bits) * static_cast<uint64_t>(i + 1)) >> 64);
      std::swap(epoch.order[static_cast<size_t>(i)], epoch.order[j]);
    }
  }
  return epoch.order;
}

// The cipher permutes the numbers below the next power of two; those that are no samples are
// followed to where they lead, less than twice on average. So samples are permuted, too.
int64_t Sampler::ComputeSample(int64_t epoch, int64_t place) const {
  const RandomKey key = MakeRandomKey(seed_, name_hash_, epoch);
  const int bits = std::bit_width(static_cast<uint64_t>(num_samples_ - 1));
  auto sample = static_cast<uint64_t>(place);
  do {
    sample = Encipher(key, bits, sample);
  } while (sample >= static_cast<uint64_t>(num_samples_));
  return static_cast<int64_t>(sample);
}

int64_t Sampler::SampleAt(int64_t position) {
  CHECK_GE(position, 0);
  const int64_t place = position % epoch_length_ % num_samples_;
  if (!shuffle_) return place;
  const int64_t epoch = position / epoch_length_;
  if (num_samples_ > kMostKept) return ComputeSample(epoch, place);
  return OrderOf(epoch)[static_cast<size_t>(place)];
}

void Sampler::SamplesAt(int64_t first_position, std::span<int64_t> out) {
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = SampleAt(first_position + static_cast<int64_t>(i));
  }
}

}  // namespace braid
