#include "runtime/kernels/cpu/strided.h"

#include <glog/logging.h>

#include <algorithm>
#include <cstring>

namespace braid::cpu {

BroadcastWalk::BroadcastWalk(const Shape& out, const std::vector<Shape>& inputs) {
  CHECK_LE(inputs.size(), static_cast<size_t>(kMaxWalkOperands));
  if (out.num_elements() == 0) {
    inner_size_ = 0;
    return;
  }
  struct Dim {
    int64_t size;
    Strides strides;
  };
  std::vector<Dim> dims;  // innermost first
  int64_t out_stride = 1, in_stride[kMaxWalkOperands] = {1, 1, 1};
  for (int i = 0; i < out.rank(); ++i) {
    const int64_t size = out[out.rank() - 1 - i];
    Dim dim = {size, {out_stride, {}}};
    out_stride *= size;
    for (size_t k = 0; k < inputs.size(); ++k) {
      const int64_t input_size = i < inputs[k].rank() ? inputs[k][inputs[k].rank() - 1 - i] : 1;
      CHECK(input_size == size || input_size == 1)
          << inputs[k].ToString() << " does not broadcast to " << out.ToString();
      dim.strides.in[k] = input_size == 1 ? 0 : in_stride[k];
      in_stride[k] *= input_size;
    }
    if (size == 1) continue;
    bool merges = !dims.empty();
    for (size_t k = 0; k < inputs.size() && merges; ++k) {
      merges = dim.strides.in[k] == dims.back().strides.in[k] * dims.back().size;
    }
    if (merges) {
      dims.back().size *= size;
    } else {
      dims.push_back(dim);
    }
  }
  if (dims.empty()) return;
  inner_size_ = dims[0].size;
  std::copy_n(dims[0].strides.in, kMaxWalkOperands, inner_strides_);
  for (size_t i = dims.size(); i-- > 1;) {
    outer_sizes_.push_back(dims[i].size);
    outer_strides_.push_back(dims[i].strides);
  }
}

BoxCopy::BoxCopy(std::vector<int64_t> sizes, Side from, Side to, size_t element_size)
    : from_offset_(from.offset * static_cast<int64_t>(element_size)),
      to_offset_(to.offset * static_cast<int64_t>(element_size)),
      element_size_(element_size) {
  const auto bytes = static_cast<int64_t>(element_size);
  std::vector<Dim> dims;  // outermost first, merged where both sides allow
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0) {
      empty_ = true;
      return;
    }
    if (sizes[i] == 1) continue;
    const Dim dim = {sizes[i], from.strides[i] * bytes, to.strides[i] * bytes};
    if (!dims.empty() && dims.back().from == dim.from * dim.size &&
        dims.back().to == dim.to * dim.size) {
      dims.back() = {dims.back().size * dim.size, dim.from, dim.to};
    } else {
      dims.push_back(dim);
    }
  }
  run_bytes_ = bytes;
  if (!dims.empty() && dims.back().from == bytes && dims.back().to == bytes) {
    run_bytes_ = dims.back().size * bytes;
    dims.pop_back();
  } else if (!dims.empty() && dims.back().to == bytes) {
    // The target is contiguous, the source is not: pair it with the dimension that is contiguous
    // in the source, if there is one (a transpose), or with the next one.
    is_tile_ = true;
    tile_[1] = dims.back();
    dims.pop_back();
    tile_[0] = {1, 0, 0};
    if (!dims.empty()) {
      auto slow =
          std::find_if(dims.begin(), dims.end(), [&](const Dim& dim) { return dim.from == bytes; });
      if (slow == dims.end()) slow = dims.end() - 1;
      tile_[0] = *slow;
      dims.erase(slow);
    }
  }
  outer_ = std::move(dims);
}

namespace {

// Blocks of kBlock x kBlock elements keep the lines of both sides in the cache.
template <class T>
void CopyTile(const char* from, char* to, int64_t rows, int64_t row_from, int64_t row_to,
              int64_t columns, int64_t column_from) {
  constexpr int64_t kBlock = 16;
  for (int64_t row0 = 0; row0 < rows; row0 += kBlock) {
    const int64_t row1 = std::min(rows, row0 + kBlock);
    for (int64_t column0 = 0; column0 < columns; column0 += kBlock) {
      const int64_t column1 = std::min(columns, column0 + kBlock);
      for (int64_t row = row0; row < row1; ++row) {
        T* target = reinterpret_cast<T*>(to + row * row_to);
        const char* source = from + row * row_from;
        for (int64_t column = column0; column < column1; ++column) {
          target[column] = *reinterpret_cast<const T*>(source + column * column_from);
        }
      }
    }
  }
}

}  // namespace

void BoxCopy::RunTile(const char* from, char* to) const {
  const Dim& rows = tile_[0];
  const Dim& columns = tile_[1];
  const auto copy = element_size_ == 8   ? CopyTile<uint64_t>
                    : element_size_ == 4 ? CopyTile<uint32_t>
                    : element_size_ == 2 ? CopyTile<uint16_t>
                                         : CopyTile<uint8_t>;
  copy(from, to, rows.size, rows.from, rows.to, columns.size, columns.from);
}

void BoxCopy::RunDim(size_t dim, const char* from, char* to) const {
  if (dim == outer_.size()) {
    if (is_tile_) {
      RunTile(from, to);
    } else {
      std::memcpy(to, from, run_bytes_);
    }
    return;
  }
  for (int64_t i = 0; i < outer_[dim].size; ++i) {
    RunDim(dim + 1, from + i * outer_[dim].from, to + i * outer_[dim].to);
  }
}

void BoxCopy::Run(const void* from, void* to) const {
  if (empty_) return;
  RunDim(0, static_cast<const char*>(from) + from_offset_, static_cast<char*>(to) + to_offset_);
}

RegionWalk::RegionWalk(const OperandSpec& operand) {
  const std::vector<int64_t> strides = DenseStrides(operand.logical);
  const Shape& size = operand.region.size;
  empty_ = size.num_elements() == 0;
  for (int i = 0; i < size.rank(); ++i) first_ += operand.region.offset[i] * strides[i];
  if (operand.micro_batch_axis >= 0) {
    micro_batch_stride_ = operand.micro_batch_stride * strides[operand.micro_batch_axis];
  }
  int axis = size.rank() - 1;
  while (axis >= 0) {
    run_ *= size[axis];
    const bool whole = size[axis] == operand.logical[axis];
    --axis;
    if (!whole) break;
  }
  for (int i = 0; i <= axis; ++i) {
    sizes_.push_back(size[i]);
    strides_.push_back(strides[i]);
  }
}

}  // namespace braid::cpu
