// Products of small matrices in bf16, added up in f32, by the tiles of AMX: for kernels that keep
// their operands in cache. Operands are packed from f32 or bf16 into tiles first, since each is
// multiplied several times.
//
// A tile is 16 rows of 32 bf16 (1 KB). Of a [m, k] tile (i, j) holds rows 16 i.. and terms 32 j..;
// of b [k, n] it holds columns 16 i.. and terms 32 j.., two terms of a column side by side. Tiles
// lie with j fastest. m, n and k are padded with zeros to multiples of kTileStep.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace braid::simd {

inline constexpr int64_t kTileStep = 32;
inline constexpr int64_t kTileRows = 16, kTileTerms = 32;
inline constexpr int64_t kTileSize = kTileRows * kTileTerms;
inline int64_t TilePadded(int64_t size) { return (size + kTileStep - 1) / kTileStep * kTileStep; }
// Elements of a packed operand.
inline int64_t TileElements(int64_t size, int64_t terms) {
  return TilePadded(size) * TilePadded(terms);
}

// c [m, n] = a b, or c += a b where `adds`; b may have been packed with more terms than k.
struct TileProduct {
  int64_t m, n, k;
  const uint16_t* a;
  const uint16_t* b;
  int64_t b_terms;
  float* c;
  int64_t c_row;  // how far rows of c lie apart
  bool adds;
};

template <class T>
struct TilePackers {
  // From x [size, terms] with rows x_row apart: a, or b^T.
  void (*a)(const T* x, int64_t x_row, int64_t size, int64_t terms, uint16_t* to);
  void (*b_transposed)(const T* x, int64_t x_row, int64_t size, int64_t terms, uint16_t* to);
  // From x [terms, size]: b, or a^T.
  void (*b)(const T* x, int64_t x_row, int64_t size, int64_t terms, uint16_t* to);
  void (*a_transposed)(const T* x, int64_t x_row, int64_t size, int64_t terms, uint16_t* to);
};

struct TileProducts {
  TilePackers<float> pack;
  TilePackers<uint16_t> pack_bf16;
  // Half tiles of a, from number `first` on: number first + i holds 16 terms of each of 16 rows,
  // those at images[r] + offset + 16 * reads[r] + i * step, or zeros where reads[r] is negative.
  void (*gather_a)(const uint16_t* const* images, int64_t offset, const int32_t* reads,
                   int64_t step, int64_t halves, int64_t first, uint16_t* tiles);
  // A tile of b of 32 terms, each with the 16 columns at images[t] + offset + 16 * reads[t], or
  // zeros.
  void (*gather_b)(const uint16_t* const* images, int64_t offset, const int32_t* reads,
                   uint16_t* tile);
  // to[c] = w[c * taps + tap], for `channels` of them, a multiple of 16.
  void (*pick_tap)(const uint16_t* w, int64_t taps, int64_t tap, int64_t channels, uint16_t* to);
  // Makes tiles of b tiles of a.
  void (*transpose)(uint16_t* tiles, int64_t count);
  // A thread multiplies between begin and end, which give it the tiles and take them back.
  void (*multiply)(const TileProduct& product);
  void (*begin)();
  void (*end)();
};

// Null on other processors than x86-64. The caller makes sure that this one has the tiles and that
// the operating system lets the process use them, as oneDNN does when it is asked for its level.
const TileProducts* CompiledTileProducts();

// Zeros, at the start of a line of the cache: rows of tiles are loaded as whole lines.
template <class T>
class TileBuffer {
 public:
  TileBuffer() = default;
  explicit TileBuffer(int64_t size) : storage_(BytesOf(size) / sizeof(T)) {
    const auto at = reinterpret_cast<uintptr_t>(storage_.data());
    data_ = storage_.data() +
            ((at + kTileAlignment - 1) / kTileAlignment * kTileAlignment - at) / sizeof(T);
  }
  TileBuffer(TileBuffer&&) = default;
  TileBuffer& operator=(TileBuffer&&) = default;

  T* data() { return data_; }
  // Of a buffer of `size` elements.
  static int64_t BytesOf(int64_t size) {
    return (size + kTileAlignment / static_cast<int64_t>(sizeof(T))) *
           static_cast<int64_t>(sizeof(T));
  }

 private:
  static constexpr int64_t kTileAlignment = 64;
  std::vector<T> storage_;
  T* data_ = nullptr;
};

// Gives a thread the tiles while it is there; null: none.
class TileScope {
 public:
  explicit TileScope(const TileProducts* products) : products_(products) {
    if (products_ != nullptr) products_->begin();
  }
  ~TileScope() {
    if (products_ != nullptr) products_->end();
  }
  TileScope(const TileScope&) = delete;
  TileScope& operator=(const TileScope&) = delete;

 private:
  const TileProducts* products_;
};

}  // namespace braid::simd
