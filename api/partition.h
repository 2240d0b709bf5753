// How ranks share a dataset: which samples each of them goes through, in which order.
//
//   BRAID_ASSIGN_OR_RETURN(auto sampler,
//                          dist::DistributedSampler::Make(60'000, world->rank(), world->size(),
//                                                         {.batch_size = 32}));
//   while (sampler.epoch() < 10) {
//     while (const auto batch = sampler.Next()) Train(batch->samples);
//   }
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/data/sampler.h"

namespace braid::dist {

// Numbers of samples, each of which is found when it is asked for. A value, which any number of
// threads may read.
class SampleRange {
 public:
  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using iterator_concept = std::forward_iterator_tag;
    using value_type = int64_t;
    using difference_type = std::ptrdiff_t;
    using pointer = void;
    using reference = int64_t;

    Iterator() = default;
    Iterator(const SampleRange* range, int64_t i) : range_(range), i_(i) {}
    int64_t operator*() const { return (*range_)[i_]; }
    Iterator& operator++() {
      ++i_;
      return *this;
    }
    Iterator operator++(int) {
      Iterator before = *this;
      ++i_;
      return before;
    }
    bool operator==(const Iterator& other) const { return i_ == other.i_; }

   private:
    const SampleRange* range_ = nullptr;
    int64_t i_ = 0;
  };

  // Which places of the order, as of a list that begins again at its end.
  struct Places {
    int64_t first = 0, stride = 1, count = 0;
  };

  SampleRange() = default;
  // A null `order`: samples are in their own order.
  SampleRange(int64_t num_samples, std::shared_ptr<const Permutation> order, const Places& places)
      : num_samples_(num_samples), order_(std::move(order)), places_(places) {}

  int64_t size() const { return places_.count; }
  bool empty() const { return size() == 0; }
  // 0 <= i < size().
  int64_t operator[](int64_t i) const {
    const int64_t place = (places_.first + i * places_.stride) % num_samples_;
    return order_ == nullptr ? place : (*order_)[place];
  }
  Iterator begin() const { return {this, 0}; }
  Iterator end() const { return {this, size()}; }

 private:
  int64_t num_samples_ = 0;
  std::shared_ptr<const Permutation> order_;  // also of other ranges, on other threads
  Places places_;
};

// What becomes of the samples that are too few for one more on each rank.
enum class Remainder : uint8_t {
  kPad,     // samples from the start of the list come again, on as many ranks as lack one
  kDrop,    // no rank gets them in this epoch
  kUneven,  // the first ranks have one sample more; weights make means exact
};

struct DistributedSamplerOptions {
  int64_t batch_size = 1;  // of each rank
  bool shuffle = true;
  uint64_t seed = 0;  // the same on all ranks
  Remainder remainder = Remainder::kPad;
};

struct SampleBatch {
  // Until the next call of Next. Of the last batch fewer than others; with kUneven maybe none.
  std::span<const int64_t> samples;
  // The part of the samples that all ranks get in this step. The mean of the step is the sum over
  // the ranks of weight * mean, those without samples left out (their mean is no number).
  double weight;
};

// Where a sampler is: plain numbers, for a file, a store or BroadcastObject.
struct SamplerState {
  int64_t epoch = 0;
  int64_t consumed = 0;  // samples of the epoch's list that the ranks have got together
  int64_t num_samples = 0;
  uint64_t seed = 0;

  bool operator==(const SamplerState&) const = default;
};

// One rank's part of each epoch: of the list of all samples, in an order that follows from seed and
// epoch and is the same on all ranks, rank r of R gets those at r, r + R, r + 2R and so on. Ranks
// call Next equally often. Belongs to one thread.
class DistributedSampler {
 public:
  // INVALID_ARGUMENT for a number of samples, a rank, a number of ranks or a batch size that there
  // cannot be, and if kDrop leaves no sample.
  static absl::StatusOr<DistributedSampler> Make(int64_t num_samples, int rank, int ranks,
                                                 const DistributedSamplerOptions& options = {});

  // This rank's samples in an epoch, and its part of all ranks': a metric's mean over the epoch is
  // the sum over the ranks of weight * mean.
  int64_t size() const { return SizeOf(rank_); }
  double weight() const;
  // In an epoch; the same on all ranks.
  int64_t num_batches() const;

  // The next of this epoch's batches. After the last one nothing, once: then the next epoch begins.
  std::optional<SampleBatch> Next();
  // What Next has left of this epoch for this rank.
  SampleRange samples() const;

  int64_t epoch() const { return epoch_; }
  // To the start of any epoch.
  void SetEpoch(int64_t epoch);

  // The same on all ranks after equally many calls of Next. A sampler of any number of ranks goes
  // on with the epoch's list from there; a change of their number in mid-epoch gives no sample
  // twice and leaves none out (kPad and kDrop: at the epoch's end, as always).
  SamplerState state() const;
  // INVALID_ARGUMENT if it is of other samples or of another seed.
  absl::Status Restore(const SamplerState& state);

 private:
  DistributedSampler(int64_t num_samples, int rank, int ranks,
                     const DistributedSamplerOptions& options);
  // So many samples of the list of `epoch` have been given to ranks.
  void Enter(int64_t epoch, int64_t consumed);
  // Of rank `rank` in the epoch.
  int64_t SizeOf(int rank) const;
  // Of all ranks together.
  int64_t Total() const;

  int64_t num_samples_;
  int rank_, ranks_;
  DistributedSamplerOptions options_;
  int64_t epoch_ = 0;
  std::shared_ptr<const Permutation> order_;  // ranges that were given out have it, too
  int64_t skipped_ = 0;   // samples at the list's start that are no whole row of these ranks
  int64_t position_ = 0;  // how many samples of each rank were given out
  std::vector<int64_t> batch_;
};

// Cuts a dataset into parts once and for all, for training and validation, say. A shuffled list of
// all samples is cut where the sums of `sizes` say: part i has sizes[i] of the samples, rounded,
// and each sample is in at most one part.
class DataPartitioner {
 public:
  // `sizes`: above 0, at most 1 together. INVALID_ARGUMENT if they are not, or if a part has no
  // sample.
  static absl::StatusOr<DataPartitioner> Make(int64_t num_samples, const std::vector<double>& sizes,
                                              uint64_t seed = 0);

  const std::vector<SampleRange>& parts() const { return parts_; }

 private:
  explicit DataPartitioner(std::vector<SampleRange> parts) : parts_(std::move(parts)) {}
  std::vector<SampleRange> parts_;
};

}  // namespace braid::dist
