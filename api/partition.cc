#include "api/partition.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "runtime/base/status.h"

namespace braid::dist {
namespace {

// What fractions may add up to above 1 and still be rounding, of a float's.
constexpr double kFractionRounding = 1e-6;

int64_t CeilDivide(int64_t a, int64_t b) { return a / b + (a % b == 0 ? 0 : 1); }

absl::Status CheckSamples(const char* who, int64_t num_samples) {
  if (num_samples >= 1 && num_samples <= Permutation::kMostNumbers) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat("%s of %d samples; there must be from 1 to %d",
                                                    who, num_samples, Permutation::kMostNumbers));
}

std::shared_ptr<const Permutation> EpochOrder(int64_t num_samples, uint64_t seed,
                                              std::string_view name, int64_t epoch) {
  auto order = std::make_shared<Permutation>(num_samples);
  order->Shuffle(EpochKey(seed, name, epoch));
  return order;
}

}  // namespace

// ---- DistributedSampler -------------------------------------------------------------------------

absl::StatusOr<DistributedSampler> DistributedSampler::Make(
    int64_t num_samples, int rank, int ranks, const DistributedSamplerOptions& options) {
  BRAID_RETURN_IF_ERROR(CheckSamples("DistributedSampler", num_samples));
  if (ranks < 1 || rank < 0 || rank >= ranks) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "DistributedSampler of rank %d of %d; ranks count from 0 to one less than there are", rank,
        ranks));
  }
  if (options.batch_size < 1) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "DistributedSampler with batches of %d samples; it must be 1 or more", options.batch_size));
  }
  if (options.remainder == Remainder::kDrop && num_samples < ranks) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "DistributedSampler of %d samples for %d ranks: Remainder::kDrop leaves none; take kPad or "
        "kUneven",
        num_samples, ranks));
  }
  return DistributedSampler(num_samples, rank, ranks, options);
}

DistributedSampler::DistributedSampler(int64_t num_samples, int rank, int ranks,
                                       const DistributedSamplerOptions& options)
    : num_samples_(num_samples), rank_(rank), ranks_(ranks), options_(options) {
  Enter(0, 0);
}

void DistributedSampler::Enter(int64_t epoch, int64_t consumed) {
  if (options_.shuffle && (order_ == nullptr || epoch != epoch_)) {
    order_ = EpochOrder(num_samples_, options_.seed, "distributed_sampler", epoch);
  }
  epoch_ = epoch;
  const bool is_over = consumed >= num_samples_;
  skipped_ = is_over ? 0 : consumed % ranks_;
  position_ = is_over ? SizeOf(0) : consumed / ranks_;
}

int64_t DistributedSampler::SizeOf(int rank) const {
  const int64_t left = num_samples_ - skipped_;
  switch (options_.remainder) {
    case Remainder::kPad:
      return CeilDivide(left, ranks_);
    case Remainder::kDrop:
      return left / ranks_;
    case Remainder::kUneven:
      return rank < left ? CeilDivide(left - rank, ranks_) : 0;
  }
  return 0;
}

int64_t DistributedSampler::Total() const {
  return options_.remainder == Remainder::kUneven ? num_samples_ - skipped_ : SizeOf(0) * ranks_;
}

double DistributedSampler::weight() const {
  const int64_t total = Total();
  return total == 0 ? 0 : static_cast<double>(size()) / static_cast<double>(total);
}

// Rank 0 has as many samples as any.
int64_t DistributedSampler::num_batches() const {
  return CeilDivide(SizeOf(0), options_.batch_size);
}

SampleRange DistributedSampler::samples() const {
  return SampleRange(num_samples_, order_,
                     {.first = skipped_ + rank_ + position_ * ranks_,
                      .stride = ranks_,
                      .count = std::max<int64_t>(size() - position_, 0)});
}

std::optional<SampleBatch> DistributedSampler::Next() {
  const int64_t most = std::min(options_.batch_size, SizeOf(0) - position_);
  if (most <= 0) {
    SetEpoch(epoch_ + 1);
    return std::nullopt;
  }
  const SampleRange left = samples();
  const int64_t own = std::min(most, left.size());
  batch_.resize(static_cast<size_t>(own));
  for (int64_t i = 0; i < own; ++i) batch_[static_cast<size_t>(i)] = left[i];
  const int64_t of_all = std::min(most * ranks_, Total() - position_ * ranks_);
  position_ += most;
  return SampleBatch{batch_, static_cast<double>(own) / static_cast<double>(of_all)};
}

void DistributedSampler::SetEpoch(int64_t epoch) { Enter(epoch, 0); }

SamplerState DistributedSampler::state() const {
  return {.epoch = epoch_,
          .consumed = std::min(skipped_ + position_ * ranks_, num_samples_),
          .num_samples = num_samples_,
          .seed = options_.seed};
}

absl::Status DistributedSampler::Restore(const SamplerState& state) {
  if (state.num_samples != num_samples_ || state.seed != options_.seed) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "the sampler's state is of %d samples and seed %d, and the sampler has %d and seed %d; "
        "restore it with the same",
        state.num_samples, state.seed, num_samples_, options_.seed));
  }
  if (state.consumed < 0 || state.consumed > num_samples_) {
    return absl::InvalidArgumentError(
        absl::StrFormat("the sampler's state says that %d samples of %d are consumed",
                        state.consumed, num_samples_));
  }
  Enter(state.epoch, state.consumed);
  return absl::OkStatus();
}

// ---- DataPartitioner ----------------------------------------------------------------------------

absl::StatusOr<DataPartitioner> DataPartitioner::Make(int64_t num_samples,
                                                      const std::vector<double>& sizes,
                                                      uint64_t seed) {
  BRAID_RETURN_IF_ERROR(CheckSamples("DataPartitioner", num_samples));
  double sum = 0;
  bool is_positive = !sizes.empty();
  for (const double size : sizes) {
    is_positive = is_positive && size > 0;  // a NaN is not
    sum += size;
  }
  if (!is_positive || !(sum <= 1 + kFractionRounding)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "DataPartitioner with sizes {%s}: they must be fractions above 0 and add up to at most 1, "
        "and add up to %.9g",
        absl::StrJoin(sizes, ", "), sum));
  }
  const auto order = EpochOrder(num_samples, seed, "data_partitioner", /*epoch=*/0);
  std::vector<SampleRange> parts;
  int64_t begin = 0;
  double before = 0;
  for (const double size : sizes) {
    before += size;
    const bool is_rest = parts.size() + 1 == sizes.size() && sum >= 1 - kFractionRounding;
    const auto cut = static_cast<long double>(before) * static_cast<long double>(num_samples);
    const int64_t end = is_rest ? num_samples : std::min<int64_t>(std::llround(cut), num_samples);
    if (end <= begin) {
      return absl::InvalidArgumentError(
          absl::StrFormat("DataPartitioner with sizes {%s}: part %d, of size %g, has none of %d "
                          "samples; give it more or leave it out",
                          absl::StrJoin(sizes, ", "), parts.size(), size, num_samples));
    }
    parts.push_back(SampleRange(num_samples, order, {.first = begin, .count = end - begin}));
    begin = end;
  }
  return DataPartitioner(std::move(parts));
}

}  // namespace braid::dist
