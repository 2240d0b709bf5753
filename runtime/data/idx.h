// Files in the IDX format of the MNIST database (http://yann.lecun.com/exdb/mnist/), plain or
// compressed by gzip.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace braid {

struct IdxFile {
  std::string path;  // the one that was found
  std::vector<int64_t> dims;
  std::vector<uint8_t> values;
};

// Reads the first of `candidates` that exists; its elements must be unsigned bytes in `rank`
// dimensions.
absl::StatusOr<IdxFile> ReadIdx(const std::vector<std::string>& candidates, int rank);

}  // namespace braid
