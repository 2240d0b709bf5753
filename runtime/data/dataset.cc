#include "runtime/data/dataset.h"

#include "absl/strings/str_format.h"
#include "runtime/base/crc32c.h"
#include "runtime/base/philox.h"

namespace braid {

uint64_t AddToFingerprint(uint64_t before, std::span<const std::byte> bytes) {
  return MixBits(before ^ MixBits(bytes.size())) ^ Crc32c(bytes.data(), bytes.size());
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
