// The weights' gradient of a convolution in blocks of channels, as products of whatever type: for
// each tap dw [out, in] = dy^T x, whose terms are the windows of all images. They are packed where
// they lie.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "runtime/kernels/cpu/convolution.h"
#include "runtime/kernels/cpu/for_each_item.h"
#include "runtime/kernels/cpu/simd/tile_products.h"
#include "runtime/kernels/cpu/window_rows.h"

namespace braid::cpu {

// A block of channels of x, as the windows read it at a tap.
struct BlockAtTap {
  int64_t tap, block;
};

// sums [out, columns] = a b, or += a b where `adds`, with rows `row` apart. a and b are as the
// engine packed them: a in blocks of its kChannels rows, each of TilePadded(terms) terms.
template <class T>
struct WeightProduct {
  int64_t out, columns, terms;
  const T* a;
  const T* b;
  float* sums;
  int64_t row;
  bool adds;
};

// Engine: its Element; kChannels of a block; kBlocks of x that are multiplied at once;
// kTermsAtOnce; a Scope that a thread holds while it multiplies; PackA(rows, images, dy, row,
// count, to), which packs a block of channels of dy; PackB(rows, images, x, blocks, row, count,
// to), which packs up to kBlocks BlockAtTap of x; Multiply(product).
//
// Two blocks of x at a time, at all taps, so that their sums stay in the cache until they are
// stored.
template <class Engine>
class WeightGradient final : public Convolution {
 public:
  using Element = typename Engine::Element;

  explicit WeightGradient(const ConvolutionShape& shape) : shape_(shape) {
    const SpatialAxes axes(shape);
    num_taps_ = axes.num_taps();
    x_ = {shape.in / kChannels, axes.num_pixels(), kChannels};
    y_ = {shape.out / kChannels, axes.num_windows(), kChannels};
    terms_ = shape.batch * axes.num_windows();
    part_ = std::min(kMaxTerms, simd::TilePadded(terms_));
  }

  KernelMemory memory() const override {
    return {.own = simd::TileBuffer<Element>::BytesOf(a_size()) +
                   shape_.threads * simd::TileBuffer<Element>::BytesOf(b_size()) +
                   simd::TileBuffer<float>::BytesOf(sums_size())};
  }
  void Allocate() override {
    windows_ = RowsOfWindows(SpatialAxes(shape_));
    own_ = {.positions = windows_.positions, .taps = {0}, .reads = windows_.positions};
    a_ = simd::TileBuffer<Element>(a_size());
    for (int thread = 0; thread < shape_.threads; ++thread) b_.emplace_back(b_size());
    sums_ = simd::TileBuffer<float>(sums_size());
  }

  void Run(const Operands& operands) override {
    const auto* x = static_cast<const Element*>(operands.first);
    const auto* dy = static_cast<const Element*>(operands.second);
    for (int64_t term = 0; term < terms_; term += part_) {
      const int64_t terms = std::min(part_, terms_ - term);
      const int64_t pieces = (terms + kPiece - 1) / kPiece;
      const auto piece_at = [&](int64_t piece) {
        return Piece{.term = term + piece * kPiece,
                     .terms = std::min(kPiece, terms - piece * kPiece),
                     .a = a_.data() + piece * kPiece * simd::TilePadded(shape_.out)};
      };
      ForEachItem(pieces, shape_.threads, [&](int64_t number, int) {
        const Piece piece = piece_at(number);
        const int64_t step = simd::TilePadded(piece.terms) * kChannels;
        for (int64_t block = 0; block < y_.blocks; ++block) {
          Engine::PackA(own_, y_, dy + block * y_.pixels * kChannels, piece.term, piece.terms,
                        piece.a + block * step);
        }
      });
      ForEachItem(num_pairs(), shape_.threads, [&](int64_t pair, int thread) {
        float* const sums = sums_.data() + (terms_ <= part_ ? thread : pair) * sums_step();
        {
          [[maybe_unused]] const typename Engine::Scope scope;
          for (int64_t piece = 0; piece < pieces; ++piece) {
            AddPiece(piece_at(piece), pair, x, b_[thread].data(), sums);
          }
        }
        if (term + terms == terms_) {
          Store(sums, blocks_of(pair),
                static_cast<float*>(operands.result) + pair * 2 * kChannels * windows_.num_taps());
        }
      });
    }
  }

 private:
  static constexpr int64_t kMaxTerms = 1024;  // of which sums are kept for a pair only
  static constexpr int64_t kPiece = Engine::kTermsAtOnce;
  static constexpr int64_t kChannels = Engine::kChannels;
  static constexpr int64_t kColumns = Engine::kBlocks * kChannels;

  struct Piece {
    int64_t term, terms;
    Element* a;  // packed
  };

  int64_t a_size() const { return simd::TilePadded(shape_.out) * part_; }
  int64_t b_size() const { return kColumns * std::min(kPiece, part_); }
  int64_t sums_size() const {
    return (terms_ <= part_ ? shape_.threads : num_pairs()) * sums_step();
  }
  int64_t num_pairs() const { return (x_.blocks + 1) / 2; }
  int64_t blocks_of(int64_t pair) const { return std::min<int64_t>(2, x_.blocks - 2 * pair); }
  // Products of a pair, each with sums [out, kColumns]; tap by tap, as many blocks as fit.
  int64_t products_step() const { return shape_.out * kColumns; }
  int64_t sums_step() const {
    return (2 * num_taps_ + Engine::kBlocks - 1) / Engine::kBlocks * products_step();
  }

  void AddPiece(const Piece& piece, int64_t pair, const Element* x, Element* b, float* sums) const {
    const int64_t blocks = blocks_of(pair), all = windows_.num_taps() * blocks;
    for (int64_t first = 0; first < all; first += Engine::kBlocks) {
      BlockAtTap packed[Engine::kBlocks];
      const int64_t count = std::min<int64_t>(Engine::kBlocks, all - first);
      for (int64_t i = 0; i < count; ++i) {
        packed[i] = {(first + i) / blocks, 2 * pair + (first + i) % blocks};
      }
      Engine::PackB(windows_, x_, x, std::span(packed, count), piece.term, piece.terms, b);
      Engine::Multiply({.out = shape_.out,
                        .columns = count * kChannels,
                        .terms = piece.terms,
                        .a = piece.a,
                        .b = b,
                        .sums = sums + first / Engine::kBlocks * products_step(),
                        .row = kColumns,
                        .adds = piece.term > 0});
    }
  }

  // From the sums of a pair to its channels of dw [out, in, taps].
  void Store(const float* sums, int64_t blocks, float* dw) const {
    const int64_t taps = windows_.num_taps();
    for (int64_t out = 0; out < shape_.out; ++out, sums += kColumns) {
      float* to = dw + out * shape_.in * taps;
      for (int64_t block = 0; block < blocks; ++block) {
        for (int64_t tap = 0; tap < taps; ++tap) {
          const int64_t at = tap * blocks + block;
          const float* from =
              sums + at / Engine::kBlocks * products_step() + at % Engine::kBlocks * kChannels;
          for (int64_t lane = 0; lane < kChannels; ++lane) to[lane * taps + tap] = from[lane];
        }
        to += kChannels * taps;
      }
    }
  }

  ConvolutionShape shape_;
  WindowRows windows_, own_;  // which read x; and dy, each its own
  BlockedImages x_, y_;
  int64_t num_taps_, terms_, part_;
  simd::TileBuffer<Element> a_;               // dy
  std::vector<simd::TileBuffer<Element>> b_;  // of a thread
  simd::TileBuffer<float> sums_;              // of a thread, or where there are parts of a pair
};

}  // namespace braid::cpu
