// How schedules cut a vector: into contiguous blocks, one a rank, and these into chunks of whole
// elements.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "comm/collective/collective.h"
#include "comm/collective/whole_elements.h"

namespace braid {

// All in bytes but for `counts`, which are the blocks' elements.
class ChunkBlocks {
 public:
  ChunkBlocks(const CollectiveSpec& spec, const std::vector<int64_t>& counts)
      : chunk_bytes_(WholeElements(spec.chunk_bytes, spec.element_size)) {
    int64_t offset = 0;
    for (const int64_t count : counts) {
      offsets_.push_back(offset);
      bytes_.push_back(count * spec.element_size);
      offset += bytes_.back();
    }
  }

  int64_t offset(int block) const { return offsets_[block]; }
  int64_t bytes(int block) const { return bytes_[block]; }
  int64_t whole() const { return offsets_.back() + bytes_.back(); }
  int64_t num_chunks(int block) const { return (bytes_[block] + chunk_bytes_ - 1) / chunk_bytes_; }
  int64_t max_chunks() const {
    int64_t most = 0;
    for (size_t i = 0; i < bytes_.size(); ++i) most = std::max(most, num_chunks(i));
    return most;
  }
  // Of chunk `c`, from the start of its block.
  int64_t chunk_offset(int64_t c) const { return c * chunk_bytes_; }
  int64_t chunk_size(int block, int64_t c) const {
    return std::min(chunk_bytes_, bytes_[block] - c * chunk_bytes_);
  }
  int64_t full_chunk() const { return chunk_bytes_; }

 private:
  const int64_t chunk_bytes_;
  std::vector<int64_t> offsets_;
  std::vector<int64_t> bytes_;
};

}  // namespace braid
