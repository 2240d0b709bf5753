// The shape of a batch of matrix products, and how it is cut into tiles for the blocks of a grid.
#pragma once

#include <cstdint>

namespace braid::cuda {

inline constexpr int kTile = 64;       // rows and columns of the result that a block computes
inline constexpr int kTileDepth = 16;  // of both operands at a time

// result [rows, columns] = a [rows, depth] b [depth, columns], `products` times.
struct ProductShape {
  int64_t products = 1;
  int64_t rows = 0, columns = 0, depth = 0;
  // Parts of the depth, which blocks sum on their own; their sums are added up afterwards, always
  // in the same order.
  int32_t splits = 1;

  constexpr int64_t row_tiles() const { return (rows + kTile - 1) / kTile; }
  constexpr int64_t column_tiles() const { return (columns + kTile - 1) / kTile; }
  constexpr int64_t elements() const { return products * rows * columns; }
};

// With the splits that its shape asks for: few tiles of much depth would leave most of a card idle.
// They depend on the shape alone, so that sums are the same on every card.
inline ProductShape WithSplits(ProductShape shape) {
  constexpr int64_t kEnoughBlocks = 264, kLeastDepth = 256, kMostSplits = 128;
  const int64_t tiles = shape.products * shape.row_tiles() * shape.column_tiles();
  if (tiles == 0 || 2 * tiles > kEnoughBlocks) return shape;
  int64_t splits = kEnoughBlocks / tiles;
  if (splits > shape.depth / kLeastDepth) splits = shape.depth / kLeastDepth;
  if (splits > kMostSplits) splits = kMostSplits;
  if (splits > 1) shape.splits = static_cast<int32_t>(splits);
  return shape;
}

// Whether tiles would be nearly empty.
inline bool IsThin(const ProductShape& shape) {
  constexpr int64_t kThin = 4;
  return shape.rows <= kThin || shape.columns <= kThin;
}

// Of the work memory for the splits' sums.
inline int64_t SplitBytes(const ProductShape& shape, int64_t bytes_of_number) {
  return shape.splits == 1 ? 0 : shape.splits * shape.elements() * bytes_of_number;
}

}  // namespace braid::cuda
