// Convolution as a matrix product. For one image and group, the windows' taps are the columns of a
// matrix "columns" [in * taps, windows]: y = w * columns, columns' gradient = w^T * dy, and
// dw = dy * columns^T. It is built tile by tile (a range of windows), so that it stays in the
// cache.
#include <algorithm>
#include <utility>

#include "runtime/kernels/cpu/convolution.h"
#include "runtime/kernels/cpu/gemm.h"

namespace braid::cpu {
namespace {

constexpr int64_t kTileBytes = 512 << 10;
struct Range {
  int64_t begin, end;
  int64_t size() const { return end - begin; }
};

// Calls row(x_offset, column_offset, n, stride) for runs of windows in `tile` that read existing
// elements: column row r, window begin + i, is at column_offset + i and reads x_offset + i *
// stride.
template <class F>
void ForEachRun(const SpatialAxes& a, int64_t channels, Range tile, F run) {
  const int64_t plane = a.num_pixels();
  const int64_t row_windows = a.windows[2];
  int64_t row = 0;  // of the columns
  for (int64_t channel = 0; channel < channels; ++channel) {
    for (int64_t t0 = 0; t0 < a.axis[0].kernel; ++t0) {
      for (int64_t t1 = 0; t1 < a.axis[1].kernel; ++t1) {
        for (int64_t t2 = 0; t2 < a.axis[2].kernel; ++t2, ++row) {
          for (int64_t at = tile.begin; at < tile.end;) {
            const int64_t line = at / row_windows, first = at % row_windows;
            const int64_t last = std::min(row_windows, first + tile.end - at);
            const int64_t o0 = line / a.windows[1], o1 = line % a.windows[1];
            const int64_t x0 =
                o0 * a.axis[0].stride - a.axis[0].pad_begin + t0 * a.axis[0].dilation;
            const int64_t x1 =
                o1 * a.axis[1].stride - a.axis[1].pad_begin + t1 * a.axis[1].dilation;
            const int64_t column = row * tile.size() + at - tile.begin;
            at += last - first;
            if (x0 < 0 || x0 >= a.size[0] || x1 < 0 || x1 >= a.size[1]) continue;
            // Windows whose x2 = o2 * stride + shift is inside.
            const int64_t stride = a.axis[2].stride;
            const int64_t shift = t2 * a.axis[2].dilation - a.axis[2].pad_begin;
            const int64_t low = shift >= 0 ? 0 : (-shift + stride - 1) / stride;
            const int64_t high = shift >= a.size[2] ? 0 : (a.size[2] - 1 - shift) / stride + 1;
            const int64_t begin = std::max(first, low), end = std::min(last, high);
            if (begin >= end) continue;
            run(channel * plane + (x0 * a.size[1] + x1) * a.size[2] + begin * stride + shift,
                column + begin - first, end - begin, stride);
          }
        }
      }
    }
  }
}

template <class T>
class GemmConvolution final : public Convolution {
 public:
  explicit GemmConvolution(const ConvolutionShape& shape)
      : shape_(shape),
        axes_(shape),
        windows_(axes_.num_windows()),
        rows_(shape.w_elements() / (shape.groups * shape.out)) {
    const int64_t fitting = kTileBytes / static_cast<int64_t>(sizeof(T)) / rows_;
    tile_ = std::clamp<int64_t>(fitting, 1, windows_);
    product_ = Product(tile_);
    if (windows_ % tile_ != 0) last_product_ = Product(windows_ % tile_);
  }

  KernelMemory memory() const override {
    KernelMemory all = {.own = (columns_size() + y_tile_size() + w_tile_size()) *
                               static_cast<int64_t>(sizeof(T))};
    all.Add(product_->memory());
    if (last_product_ != nullptr) all.Add(last_product_->memory());
    return all;
  }
  void Allocate() override {
    columns_.resize(columns_size());
    y_tile_.resize(y_tile_size());
    w_tile_.resize(w_tile_size());
    product_->Allocate();
    if (last_product_ != nullptr) last_product_->Allocate();
  }

  void Run(const Operands& operands) override {
    const auto* a = static_cast<const T*>(operands.first);
    const auto* b = static_cast<const T*>(operands.second);
    auto* c = static_cast<T*>(operands.result);
    const int64_t x_group = shape_.x_elements() / shape_.groups;
    const int64_t y_group = shape_.y_elements() / shape_.groups;
    const int64_t w_group = shape_.w_elements() / shape_.groups;
    if (shape_.side == ConvolutionSide::kInput) {
      std::fill_n(c, shape_.batch * shape_.x_elements(), T{0});
    } else if (shape_.side == ConvolutionSide::kWeights) {
      std::fill_n(c, shape_.w_elements(), T{0});
    }
    for (int64_t image = 0; image < shape_.batch; ++image) {
      for (int64_t group = 0; group < shape_.groups; ++group) {
        const int64_t at = image * shape_.groups + group;
        for (int64_t begin = 0; begin < windows_; begin += tile_) {
          const Range tile = {begin, std::min(windows_, begin + tile_)};
          Gemm& product = tile.size() == tile_ ? *product_ : *last_product_;
          switch (shape_.side) {
            case ConvolutionSide::kOutput:
              Gather(a + at * x_group, tile);
              product.Run(b + group * w_group, columns_.data(), y_tile_.data());
              StoreOutput(tile,
                          operands.bias == nullptr
                              ? nullptr
                              : static_cast<const T*>(operands.bias) + group * shape_.out,
                          c + at * y_group);
              break;
            case ConvolutionSide::kInput:
              LoadOutput(a + at * y_group, tile);
              product.Run(b + group * w_group, y_tile_.data(), columns_.data());
              Scatter(tile, c + at * x_group);
              break;
            case ConvolutionSide::kWeights:
              Gather(a + at * x_group, tile);
              LoadOutput(b + at * y_group, tile);
              product.Run(y_tile_.data(), columns_.data(), w_tile_.data());
              for (int64_t i = 0; i < w_group; ++i) c[group * w_group + i] += w_tile_[i];
              break;
          }
        }
      }
    }
  }

 private:
  int64_t columns_size() const { return rows_ * tile_; }
  int64_t y_tile_size() const { return shape_.out * tile_; }
  int64_t w_tile_size() const {
    return shape_.side == ConvolutionSide::kWeights ? shape_.out * rows_ : 0;
  }

  std::unique_ptr<Gemm> Product(int64_t tile) const {
    GemmShape gemm = {.dtype = shape_.dtype, .threads = shape_.threads};
    switch (shape_.side) {
      case ConvolutionSide::kOutput:
        gemm.m = shape_.out, gemm.n = tile, gemm.k = rows_;
        break;
      case ConvolutionSide::kInput:
        gemm.m = rows_, gemm.n = tile, gemm.k = shape_.out, gemm.transpose_a = true;
        break;
      case ConvolutionSide::kWeights:
        gemm.m = shape_.out, gemm.n = rows_, gemm.k = tile, gemm.transpose_b = true;
        break;
    }
    return ChooseGemm(gemm);
  }

  void Gather(const T* x, Range tile) {
    std::fill_n(columns_.data(), rows_ * tile.size(), T{0});
    ForEachRun(axes_, shape_.in, tile, [&](int64_t from, int64_t to, int64_t n, int64_t stride) {
      for (int64_t i = 0; i < n; ++i) columns_[to + i] = x[from + i * stride];
    });
  }
  void Scatter(Range tile, T* dx) const {
    ForEachRun(axes_, shape_.in, tile, [&](int64_t to, int64_t from, int64_t n, int64_t stride) {
      for (int64_t i = 0; i < n; ++i) dx[to + i * stride] += columns_[from + i];
    });
  }
  void LoadOutput(const T* y, Range tile) {
    for (int64_t channel = 0; channel < shape_.out; ++channel) {
      std::copy_n(y + channel * windows_ + tile.begin, tile.size(),
                  y_tile_.data() + channel * tile.size());
    }
  }
  void StoreOutput(Range tile, const T* bias, T* y) const {
    for (int64_t channel = 0; channel < shape_.out; ++channel) {
      const T* from = y_tile_.data() + channel * tile.size();
      T* to = y + channel * windows_ + tile.begin;
      const T addend = bias == nullptr ? T{0} : bias[channel];
      for (int64_t i = 0; i < tile.size(); ++i) to[i] = from[i] + addend;
    }
  }

  ConvolutionShape shape_;
  SpatialAxes axes_;
  int64_t windows_, rows_;  // of an image; of the columns
  int64_t tile_ = 1;        // windows
  std::vector<T> columns_, y_tile_, w_tile_;
  std::unique_ptr<Gemm> product_, last_product_;
};

}  // namespace

std::unique_ptr<Convolution> ChooseGemmConvolution(const ConvolutionShape& shape) {
  if (shape.dtype == DType::kF64) return std::make_unique<GemmConvolution<double>>(shape);
  return std::make_unique<GemmConvolution<float>>(shape);
}

}  // namespace braid::cpu
