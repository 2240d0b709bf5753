#include "runtime/kernels/cpu/simd/tile_products.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include <algorithm>

namespace braid::simd {
namespace {

constexpr int64_t kRows = 16, kTerms = 32, kTileSize = kRows * kTerms;

// 16 rows of 32 bf16, or of 16 pairs of them.
struct Tile {
  __m512i row[kRows];
  void Store(uint16_t* to) const {
    for (int r = 0; r < kRows; ++r) _mm512_storeu_si512(to + r * kTerms, row[r]);
  }
};

__mmask16 First(int64_t count) {
  return static_cast<__mmask16>((1u << std::clamp<int64_t>(count, 0, 16)) - 1);
}

// Rows of x as they are: [rows, terms], of which so many exist.
Tile LoadRows(const float* x, int64_t x_row, int64_t rows, int64_t terms) {
  Tile tile;
  const __mmask16 low = First(terms), high = First(terms - 16);
  for (int r = 0; r < kRows; ++r) {
    if (r >= rows) {
      tile.row[r] = _mm512_setzero_si512();
      continue;
    }
    const float* from = x + r * x_row;
    const __m512 a = _mm512_maskz_loadu_ps(low, from), b = _mm512_maskz_loadu_ps(high, from + 16);
    tile.row[r] = (__m512i)_mm512_cvtne2ps_pbh(b, a);
  }
  return tile;
}

// Rows of x two at a time, their elements side by side: [terms, columns].
Tile LoadPairs(const float* x, int64_t x_row, int64_t terms, int64_t columns) {
  Tile tile;
  const __mmask16 mask = First(columns);
  const auto load = [&](int64_t term) {
    const __m512 row =
        term < terms ? _mm512_maskz_loadu_ps(mask, x + term * x_row) : _mm512_setzero_ps();
    return _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(row));
  };
  for (int p = 0; p < kRows; ++p) {
    tile.row[p] = _mm512_or_si512(load(2 * p), _mm512_slli_epi32(load(2 * p + 1), 16));
  }
  return tile;
}

// Of 16 x 16 pairs.
void Transpose(Tile& tile) {
  __m512i* r = tile.row;
  __m512i t[kRows];
  for (int i = 0; i < kRows; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
  for (int i = 0; i < kRows; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  // Now r[4 i + j] holds, in its quarter q, column 4 q + j of rows 4 i to 4 i + 3.
  for (int j = 0; j < 4; ++j) {
    const __m512i low_a = _mm512_shuffle_i32x4(r[j], r[j + 4], 0x44);
    const __m512i high_a = _mm512_shuffle_i32x4(r[j], r[j + 4], 0xee);
    const __m512i low_b = _mm512_shuffle_i32x4(r[j + 8], r[j + 12], 0x44);
    const __m512i high_b = _mm512_shuffle_i32x4(r[j + 8], r[j + 12], 0xee);
    t[j] = _mm512_shuffle_i32x4(low_a, low_b, 0x88);
    t[j + 4] = _mm512_shuffle_i32x4(low_a, low_b, 0xdd);
    t[j + 8] = _mm512_shuffle_i32x4(high_a, high_b, 0x88);
    t[j + 12] = _mm512_shuffle_i32x4(high_a, high_b, 0xdd);
  }
  std::copy_n(t, kRows, r);
}

// load(first of size, first term) makes the tiles of an operand, in their order.
template <bool transposes, class Load>
void Pack(int64_t size, int64_t terms, uint16_t* to, Load load) {
  for (int64_t i = 0; i < TilePadded(size); i += kRows) {
    for (int64_t j = 0; j < TilePadded(terms); j += kTerms, to += kTileSize) {
      Tile tile = load(i, j);
      if constexpr (transposes) Transpose(tile);
      tile.Store(to);
    }
  }
}

template <bool transposes>
void PackRows(const float* x, int64_t x_row, int64_t size, int64_t terms, uint16_t* to) {
  Pack<transposes>(size, terms, to, [&](int64_t i, int64_t j) {
    return LoadRows(x + i * x_row + j, x_row, size - i, terms - j);
  });
}

template <bool transposes>
void PackPairs(const float* x, int64_t x_row, int64_t size, int64_t terms, uint16_t* to) {
  Pack<transposes>(size, terms, to, [&](int64_t i, int64_t j) {
    return LoadPairs(x + j * x_row + i, x_row, terms - j, size - i);
  });
}

// c [32, 32]: two tiles of a by two of b.
void Block(int64_t k_tiles, const uint16_t* a, const uint16_t* b, const uint16_t* next_b, float* c,
           int64_t c_row, bool adds) {
  const int64_t c_bytes = c_row * static_cast<int64_t>(sizeof(float));
  float* const lower = c + kRows * c_row;
  if (adds) {
    _tile_loadd(0, c, c_bytes);
    _tile_loadd(1, c + kRows, c_bytes);
    _tile_loadd(2, lower, c_bytes);
    _tile_loadd(3, lower + kRows, c_bytes);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  const uint16_t* const next_a = a + k_tiles * kTileSize;
  for (int64_t at = 0; at < k_tiles * kTileSize; at += kTileSize) {
    _tile_loadd(4, a + at, 64);
    _tile_loadd(5, next_a + at, 64);
    _tile_loadd(6, b + at, 64);
    _tile_loadd(7, next_b + at, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, c, c_bytes);
  _tile_stored(1, c + kRows, c_bytes);
  _tile_stored(2, lower, c_bytes);
  _tile_stored(3, lower + kRows, c_bytes);
}

void Multiply(const TileProduct& p) {
  const int64_t k_tiles = TilePadded(p.k) / kTerms;
  const int64_t a_step = 2 * k_tiles * kTileSize, b_size = TilePadded(p.b_terms) * kRows;
  const uint16_t* a = p.a;
  for (int64_t i = 0; i < p.m; i += kTileStep, a += a_step) {
    const int64_t rows = std::min(kTileStep, p.m - i);
    const uint16_t* b = p.b;
    for (int64_t j = 0; j < p.n; j += kTileStep, b += 2 * b_size) {
      const int64_t columns = std::min(kTileStep, p.n - j);
      float* to = p.c + i * p.c_row + j;
      if (rows == kTileStep && columns == kTileStep) {
        Block(k_tiles, a, b, b + b_size, to, p.c_row, p.adds);
        continue;
      }
      alignas(64) float edge[kTileStep * kTileStep];
      Block(k_tiles, a, b, b + b_size, edge, kTileStep, /*adds=*/false);
      for (int64_t row = 0; row < rows; ++row) {
        for (int64_t column = 0; column < columns; ++column) {
          float& element = to[row * p.c_row + column];
          element = (p.adds ? element : 0.0f) + edge[row * kTileStep + column];
        }
      }
    }
  }
}

// What ldtilecfg reads: all eight tiles whole. Not of Begin's own: GCC 12 thinks that only the
// first bytes are read.
struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfig) == 64);
constexpr TileConfig kTileConfig;

void Begin() { _tile_loadconfig(&kTileConfig); }

void End() { _tile_release(); }

constexpr TileProducts kTileProducts = {
    .pack_a = PackRows<false>,
    .pack_b_transposed = PackRows<true>,
    .pack_b = PackPairs<false>,
    .pack_a_transposed = PackPairs<true>,
    .multiply = Multiply,
    .begin = Begin,
    .end = End,
};

}  // namespace

const TileProducts* CompiledTileProducts() { return &kTileProducts; }

}  // namespace braid::simd

#else

namespace braid::simd {
const TileProducts* CompiledTileProducts() { return nullptr; }
}  // namespace braid::simd

#endif
