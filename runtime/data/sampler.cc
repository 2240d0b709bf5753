#include "runtime/data/sampler.h"

#include <glog/logging.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "runtime/base/philox.h"

namespace braid {

Sampler::Sampler(int64_t num_samples, const SamplerOptions& options)
    : num_samples_(num_samples),
      shuffle_(options.shuffle),
      seed_(options.seed),
      name_hash_(StableHash("sampler/" + options.name)) {
  CHECK_GE(num_samples, 1);
  if (!shuffle_) return;
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

int64_t Sampler::SampleAt(int64_t position) {
  CHECK_GE(position, 0);
  const int64_t place = position % num_samples_;
  return shuffle_ ? OrderOf(position / num_samples_)[static_cast<size_t>(place)] : place;
}

void Sampler::SamplesAt(int64_t first_position, std::span<int64_t> out) {
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = SampleAt(first_position + static_cast<int64_t>(i));
  }
}

}  // namespace braid
