#include "runtime/kernels/cpu/tile_panels.h"

#include <glog/logging.h>

namespace braid::cpu {
namespace {

constexpr int64_t kMaxRows = 256;          // that meet a part of b before the next is loaded
constexpr int64_t kSumsBytes = 512 << 10;  // of a thread

}  // namespace

TilePanels::TilePanels(int64_t m, int64_t n, int64_t k, const Options& options)
    : products_(simd::CompiledTileProducts()),
      m_(m),
      n_(n),
      k_(k),
      threads_(options.threads),
      b_bytes_(simd::TileElements(n, k) * kNarrow),
      work_(options.work) {
  const int64_t parts = (k + kMaxTerms - 1) / kMaxTerms;
  terms_ = simd::TilePadded((k + parts - 1) / parts);
  // Each thread has some rows.
  const int64_t fair = simd::TilePadded((m + threads_ - 1) / threads_);
  const int64_t fitting = kSumsBytes / static_cast<int64_t>(sizeof(float)) / n;
  chunk_rows_ = std::min(fair, kMaxRows);
  if (options.keeps_sums) {
    chunk_rows_ = std::min(chunk_rows_, simd::TilePadded(std::max<int64_t>(fitting, 1)));
  }
  // Where parts of b alternate, all rows meet one before the next.
  packed_rows_ = options.packs_many || n > kMaxColumns ? chunk_rows_ : simd::kTileStep;
  a_bytes_ = packed_rows_ * terms_ * kNarrow;
  if (options.keeps_sums) sums_bytes_ = chunk_rows_ * n * static_cast<int64_t>(sizeof(float));
}

void TilePanels::Allocate() {
  if (work_ != nullptr) {
    const absl::Status reserved = work_->Reserve(Bytes());
    CHECK(reserved.ok()) << "the kernels' work memory: " << reserved.message();
  } else {
    own_ = simd::TileBuffer<uint16_t>(Bytes() / kNarrow);
  }
}

}  // namespace braid::cpu
