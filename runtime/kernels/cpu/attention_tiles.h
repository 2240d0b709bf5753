// What the kernels of attention and of its gradients share: where the rows of a head lie, which
// columns a row sees, the mask, and how the scores are cut into tiles.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/kernels/cpu/simd/tile_products.h"
#include "runtime/kernels/kernel.h"

namespace braid::cpu {

// Rows of queries in a tile, and in a block of it: a block's products end where its last row does,
// so that little above the diagonal is computed. Blocks of products in bf16 are whole tiles of AMX.
inline constexpr int64_t kTileRows = 64, kBlockRows = 8;
inline constexpr int64_t kNarrowBlockRows = simd::kTileStep;
static_assert(kTileRows % kNarrowBlockRows == 0);

// Keys of a tile and of a block of it are padded to so many, whole vectors of every instruction
// set: what is computed for the others is never used.
inline constexpr int64_t kPadding = 16;
inline int64_t Padded(int64_t keys) { return (keys + kPadding - 1) / kPadding * kPadding; }

// Keys in a tile, such that a tile of scores and what it is made of stay in the second level cache.
int64_t TileColumns(int64_t bytes_per_column, int64_t columns);

// Loops that multiply in bf16 if attribute compute asks for that and this machine has them; else
// null, and f32 is multiplied as it is.
const simd::TileProducts* NarrowProductsOf(const KernelSpec& spec);

// What each thread works in: so many elements of T and, for products in bf16, packed ones. Nothing
// is taken before Allocate.
template <class T>
class ThreadScratch {
 public:
  ThreadScratch(int threads, int64_t size) : threads_(std::max(1, threads)), size_(size) {}
  void AddPacked(int64_t size) { packed_size_ += size; }

  KernelMemory memory() const {
    const int64_t own = threads_ * size_ * static_cast<int64_t>(sizeof(T));
    if (packed_size_ == 0) return {.own = own};
    return {.own = own + simd::TileBuffer<uint16_t>::BytesOf(threads_ * packed_size_)};
  }
  void Allocate() {
    all_.resize(threads_ * size_);
    if (packed_size_ > 0) packed_ = simd::TileBuffer<uint16_t>(threads_ * packed_size_);
  }

  T* Of(int thread) { return all_.data() + thread * size_; }
  uint16_t* PackedOf(int thread) { return packed_.data() + thread * packed_size_; }

 private:
  int64_t threads_, size_, packed_size_ = 0;
  std::vector<T> all_;
  simd::TileBuffer<uint16_t> packed_;
};

// Where a head's rows lie in an operand [batch, heads, time, depth], or with time before heads.
struct HeadStrides {
  int64_t batch = 0, head = 0, row = 0;
  int64_t At(int64_t b, int64_t h, int64_t i) const { return b * batch + h * head + i * row; }
};

// An additive or bool mask that broadcasts to [batch, heads, query time, key time].
struct MaskView {
  int input = -1;  // none
  bool is_bool = false;
  int64_t strides[4] = {0, 0, 0, 0};  // in elements; 0 where it is broadcast
  int64_t At(int64_t b, int64_t h, int64_t i, int64_t j) const {
    return b * strides[0] + h * strides[1] + i * strides[2] + j * strides[3];
  }
};

// The part of an attention that a device has; in heads of q, `kv` head = head / group.
class AttentionShape {
 public:
  AttentionShape(const KernelSpec& spec, bool is_masked);

  int64_t batch, heads, kv_heads, queries, keys, depth, value_depth;
  int64_t group;  // heads of q per head of k, of the whole
  HeadStrides q, k, v, o;
  MaskView mask;
  double scale;
  bool causal;

  // Whether there are enough queries, here or elsewhere, to pay for packing all keys: a query's
  // numbers do not depend on where it is.
  bool has_many_queries() const { return all_queries_ >= kBlockRows; }

  // Where this device's heads and queries start in one act.
  struct Place {
    int64_t head = 0, kv_head = 0, query = 0;
  };
  // INTERNAL if some head's key head is elsewhere.
  absl::StatusOr<Place> PlaceIn(int64_t micro_batch) const;

  // How many keys query i sees: keys and queries end together, so that the queries of the latest
  // steps fit to a cache of all keys.
  int64_t Seen(const Place& place, int64_t i) const {
    if (!causal) return keys;
    return std::clamp<int64_t>(place.query + i + all_keys_ - all_queries_ + 1, 0, keys);
  }
  int64_t KvHeadOf(const Place& place, int64_t head) const {
    return (place.head + head) / group - place.kv_head;
  }
  // The heads of q that read a head of k: [first, end).
  int64_t FirstHeadOf(const Place& place, int64_t kv_head) const {
    return std::clamp<int64_t>((place.kv_head + kv_head) * group - place.head, 0, heads);
  }

 private:
  OperandSpec query_, key_;
  int heads_axis_, time_axis_;
  int64_t all_queries_, all_keys_;
};

// Makes the scores of a row from `seen` up to its padding such that they have no weight, so that
// loops over it run in whole vectors; returns where the padding ends. `scale` multiplies them.
template <class T>
int64_t PadScores(T* scores, int64_t seen, T scale) {
  constexpr T kInfinity = std::numeric_limits<T>::infinity();
  if (seen == 0 || !(scale != T{0})) return seen;  // no number times 0 is minus infinity
  std::fill(scores + seen, scores + Padded(seen), scale > T{0} ? -kInfinity : kInfinity);
  return Padded(seen);
}

// A head of k with its head of q.
struct HeadAt {
  int64_t batch = 0, head = 0, kv_head = 0;
};

// Masks the `seen` scores of query i from key j on, and multiplies them by the scale; without a
// mask they are left to the caller to scale, and 1 is returned where they are not.
template <class T>
T ApplyMask(const AttentionShape& shape, const void* mask, const HeadAt& at, int64_t i, int64_t j,
            T* scores, int64_t seen);

}  // namespace braid::cpu
