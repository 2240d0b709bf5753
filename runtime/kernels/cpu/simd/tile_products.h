// Products of small matrices in bf16, added up in f32, by the tiles of AMX: for kernels that keep
// their operands in cache, where calls into a library would cost more than the product. Operands
// are packed from f32 into tiles first, since each is multiplied several times.
//
// A tile is 16 rows of 32 bf16 (1 KB). Of a [m, k] tile (i, j) holds rows 16 i.. and terms 32 j..;
// of b [k, n] it holds columns 16 i.. and terms 32 j.., two terms of a column side by side. Tiles
// lie with j fastest. m, n and k are padded with zeros to multiples of kTileStep.
#pragma once

#include <cstdint>

namespace braid::simd {

inline constexpr int64_t kTileStep = 32;
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

struct TileProducts {
  // From x [size, terms] with rows x_row apart: a, or b^T.
  void (*pack_a)(const float* x, int64_t x_row, int64_t size, int64_t terms, uint16_t* to);
  void (*pack_b_transposed)(const float* x, int64_t x_row, int64_t size, int64_t terms,
                            uint16_t* to);
  // From x [terms, size]: b, or a^T.
  void (*pack_b)(const float* x, int64_t x_row, int64_t size, int64_t terms, uint16_t* to);
  void (*pack_a_transposed)(const float* x, int64_t x_row, int64_t size, int64_t terms,
                            uint16_t* to);
  // A thread multiplies between begin and end, which give it the tiles and take them back.
  void (*multiply)(const TileProduct& product);
  void (*begin)();
  void (*end)();
};

// Null on other processors than x86-64. The caller makes sure that this one has the tiles and that
// the operating system lets the process use them, as oneDNN does when it is asked for its level.
const TileProducts* CompiledTileProducts();

}  // namespace braid::simd
