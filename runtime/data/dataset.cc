#include "runtime/data/dataset.h"

#include "absl/strings/str_format.h"
#include "runtime/base/crc32c.h"
#include "runtime/base/philox.h"
#include "runtime/base/status.h"
#include "runtime/data/kinds.h"

namespace braid {
namespace {

struct Kind {
  std::string_view name;
  absl::StatusOr<std::shared_ptr<const Dataset>> (*open)(const DatasetSpec& spec);
};

// The list of kinds: one line each.
constexpr Kind kKinds[] = {{"mnist", OpenMnist},
                           {"digits", OpenDigits},
                           {"text", OpenText},
                           {"npy", OpenNpy},
                           {"patterns", OpenPatterns}};

}  // namespace

uint64_t AddToFingerprint(uint64_t before, std::span<const std::byte> bytes) {
  return MixBits(before ^ MixBits(bytes.size())) ^ Crc32c(bytes.data(), bytes.size());
}

absl::StatusOr<std::shared_ptr<const Dataset>> OpenDataset(const DatasetSpec& spec) {
  std::string known;
  for (const Kind& kind : kKinds) {
    if (kind.name == spec.kind) return kind.open(spec);
    known += absl::StrFormat("%s%s", known.empty() ? "" : ", ", kind.name);
  }
  return absl::InvalidArgumentError(
      absl::StrFormat("dataset kind '%s' is unknown; known are %s", spec.kind, known));
}

absl::StatusOr<std::shared_ptr<const Dataset>> DatasetCache::Open(const DatasetSpec& spec) {
  const std::string key = spec.Serialize();
  // Held while opening: the second device that asks waits for the first one's result.
  MutexLock lock(mutex_);
  std::shared_ptr<const Dataset>& dataset = datasets_[key];
  if (dataset == nullptr) {
    ASSIGN_OR_RETURN(dataset, OpenDataset(spec));
  }
  return dataset;
}

absl::Status CheckRead(const Dataset& dataset, std::span<const int64_t> samples, int field) {
  if (field < 0 || field >= static_cast<int>(dataset.fields().size())) {
    return absl::OutOfRangeError(absl::StrFormat("the dataset has %d fields; field %d was read",
                                                 dataset.fields().size(), field));
  }
  for (int64_t sample : samples) {
    if (sample < 0 || sample >= dataset.num_samples()) {
      return absl::OutOfRangeError(absl::StrFormat("the dataset has %d samples; sample %d was read",
                                                   dataset.num_samples(), sample));
    }
  }
  return absl::OkStatus();
}

}  // namespace braid
