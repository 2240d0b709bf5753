// Walks over dense row-major blocks of memory: broadcasting, boxes inside boxes, and which logical
// elements a region holds. Dimensions are merged when a walk is made, so that most walks are one
// inner loop.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/kernels/kernel.h"
#include "runtime/kernels/spec_views.h"

namespace braid::cpu {

inline constexpr int kMaxWalkOperands = 3;

// Dense output, inputs of broadcastable shapes (strides in elements, 0 where broadcast).
class BroadcastWalk {
 public:
  BroadcastWalk(const Shape& out, const std::vector<Shape>& inputs);

  int64_t inner_size() const { return inner_size_; }
  int64_t inner_stride(int input) const { return inner_strides_[input]; }  // 0 or 1
  bool is_single() const { return outer_sizes_.empty(); }
  // Whether runs follow each other with one stride: in elements, 0 or that of a dense operand.
  bool has_rows() const { return outer_sizes_.size() == 1; }
  int64_t row_stride(int input) const { return outer_strides_[0].in[input]; }

  // f(out_offset, input_offsets[]) for each inner run.
  template <class F>
  void ForEachRun(F f) const {
    int64_t offsets[kMaxWalkOperands] = {};
    if (inner_size_ == 0) return;
    Walk(0, 0, offsets, f);
  }

 private:
  template <class F>
  void Walk(size_t dim, int64_t out, const int64_t* offsets, F& f) const {
    if (dim == outer_sizes_.size()) {
      f(out, offsets);
      return;
    }
    int64_t at[kMaxWalkOperands] = {offsets[0], offsets[1], offsets[2]};
    for (int64_t i = 0; i < outer_sizes_[dim]; ++i) {
      Walk(dim + 1, out + i * outer_strides_[dim].out, at, f);
      for (int k = 0; k < kMaxWalkOperands; ++k) at[k] += outer_strides_[dim].in[k];
    }
  }

  struct Strides {
    int64_t out;
    int64_t in[kMaxWalkOperands];
  };
  int64_t inner_size_ = 1;
  int64_t inner_strides_[kMaxWalkOperands] = {};
  std::vector<int64_t> outer_sizes_;
  std::vector<Strides> outer_strides_;
};

// Copies a box of elements between two strided layouts.
class BoxCopy {
 public:
  // Strides in elements, per dimension of `sizes`; offsets in elements.
  struct Side {
    std::vector<int64_t> strides;
    int64_t offset = 0;
  };
  BoxCopy(std::vector<int64_t> sizes, Side from, Side to, size_t element_size);
  void Run(const void* from, void* to) const;

 private:
  struct Dim {
    int64_t size, from, to;  // strides in bytes
  };
  void RunDim(size_t dim, const char* from, char* to) const;
  void RunTile(const char* from, char* to) const;

  std::vector<Dim> outer_;
  Dim tile_[2] = {};  // only if is_tile_: [slow in the target, contiguous in the target]
  bool is_tile_ = false;
  int64_t run_bytes_ = 0;                    // otherwise: contiguous on both sides
  int64_t from_offset_ = 0, to_offset_ = 0;  // bytes
  size_t element_size_;
  bool empty_ = false;
};

// The runs of consecutive logical elements in an operand's region.
class RegionWalk {
 public:
  explicit RegionWalk(const OperandSpec& operand);

  // f(local_index, logical_index, n).
  template <class F>
  void ForEachRun(int64_t micro_batch, F f) const {
    if (empty_) return;
    int64_t local = 0;
    Walk(0, first_ + micro_batch * micro_batch_stride_, local, f);
  }

 private:
  template <class F>
  void Walk(size_t dim, int64_t logical, int64_t& local, F& f) const {
    if (dim == sizes_.size()) {
      f(local, logical, run_);
      local += run_;
      return;
    }
    for (int64_t i = 0; i < sizes_[dim]; ++i) {
      Walk(dim + 1, logical + i * strides_[dim], local, f);
    }
  }

  std::vector<int64_t> sizes_, strides_;
  int64_t run_ = 1, first_ = 0, micro_batch_stride_ = 0;
  bool empty_ = false;
};

}  // namespace braid::cpu
