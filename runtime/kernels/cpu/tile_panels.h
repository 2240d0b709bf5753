// A large product in bf16 by the tiles of AMX, in parts that stay in the caches: what the products
// of matrices and convolutions share. The caller packs b whole and a panel by panel, which may be
// windows of an image that never lie in a matrix.
//
// Of our own, since oneDNN 2.6 leaves most of the tiles' speed unused. Measured on one virtual core
// of a Xeon: its products 240 GFLOP/s and its convolutions of few pixels 46 to 126, these 250 to
// 470.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "runtime/kernels/cpu/for_each_item.h"
#include "runtime/kernels/cpu/simd/tile_products.h"
#include "runtime/kernels/kernel_memory.h"
#include "runtime/kernels/work_memory.h"

namespace braid::cpu {

// c [m, n] = a [m, k] b [k, n]. It has no memory, but knows how much it needs, until Allocate.
class TilePanels {
 public:
  struct Options {
    int threads = 1;
    bool keeps_sums = false;  // hands them over, some rows at a time, instead of writing c
    bool packs_many = false;  // packs a many rows at a time, as is best where its rows are terms
    // Where the packed operands lie, with anything in it at first; null: memory of its own, zeros.
    std::shared_ptr<WorkMemory> work = nullptr;
  };
  TilePanels(int64_t m, int64_t n, int64_t k, const Options& options);

  KernelMemory memory() const {
    if (work_ != nullptr) return {.shared = Bytes()};
    return {.own = simd::TileBuffer<uint16_t>::BytesOf(Bytes() / kNarrow)};
  }
  void Allocate();
  // To be filled by simd::TilePackers, before the product.
  uint16_t* b() { return reinterpret_cast<uint16_t*>(data()); }

  // pack_a(row, rows, term, terms, to) packs a part of a. Writes c.
  template <class PackA>
  void Multiply(float* c, PackA pack_a) {
    ForEachItem(Chunks(), threads_, [&](int64_t chunk, int thread) {
      const simd::TileScope tiles(products_);
      const int64_t row = chunk * chunk_rows_;
      MultiplyRows(row, std::min(chunk_rows_, m_ - row), thread, c + row * n_, pack_a);
    });
  }
  // store(row, rows, sums) takes rows of c [rows, n].
  template <class PackA, class Store>
  void MultiplyAndStore(PackA pack_a, Store store) {
    ForEachItem(Chunks(), threads_, [&](int64_t chunk, int thread) {
      const simd::TileScope tiles(products_);
      const int64_t row = chunk * chunk_rows_, rows = std::min(chunk_rows_, m_ - row);
      float* sums = SumsOf(thread);
      MultiplyRows(row, rows, thread, sums, pack_a);
      store(row, rows, sums);
    });
  }

 private:
  static constexpr int64_t kNarrow = sizeof(uint16_t);
  // Of b, whose part stays in the second-level cache while rows of a pass.
  static constexpr int64_t kMaxTerms = 1024, kMaxColumns = 512;

  int64_t Chunks() const { return (m_ + chunk_rows_ - 1) / chunk_rows_; }

  // b, then a and the sums of each thread: whole lines of the cache each.
  int64_t Bytes() const { return b_bytes_ + threads_ * (a_bytes_ + sums_bytes_); }
  std::byte* data() {
    return work_ != nullptr ? work_->data() : reinterpret_cast<std::byte*>(own_.data());
  }
  uint16_t* AOf(int thread) {
    return reinterpret_cast<uint16_t*>(data() + b_bytes_ + thread * (a_bytes_ + sums_bytes_));
  }
  float* SumsOf(int thread) {
    return reinterpret_cast<float*>(reinterpret_cast<std::byte*>(AOf(thread)) + a_bytes_);
  }

  template <class PackA>
  void MultiplyRows(int64_t row, int64_t rows, int thread, float* c, PackA pack_a) {
    uint16_t* const a = AOf(thread);
    for (int64_t term = 0; term < k_; term += terms_) {
      const int64_t terms = std::min(terms_, k_ - term);
      for (int64_t at = 0; at < rows; at += packed_rows_) {
        const int64_t packed = std::min(packed_rows_, rows - at);
        pack_a(row + at, packed, term, terms, a);
        for (int64_t column = 0; column < n_; column += kMaxColumns) {
          products_->multiply({.m = packed,
                               .n = std::min(kMaxColumns, n_ - column),
                               .k = terms,
                               .a = a,
                               .b = b() + column * simd::TilePadded(k_) + term * simd::kTileRows,
                               .b_terms = k_,
                               .c = c + at * n_ + column,
                               .c_row = n_,
                               .adds = term > 0});
        }
      }
    }
  }

  const simd::TileProducts* products_ = nullptr;
  int64_t m_ = 0, n_ = 0, k_ = 0;
  int64_t terms_ = 0, chunk_rows_ = 0;  // at once
  int64_t packed_rows_ = 0;             // a panel that stays in the first-level cache, or a chunk
  int threads_ = 1;
  int64_t b_bytes_ = 0, a_bytes_ = 0, sums_bytes_ = 0;
  std::shared_ptr<WorkMemory> work_;
  simd::TileBuffer<uint16_t> own_;
};

}  // namespace braid::cpu
