// The dimensions of a tensor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

namespace braid {

// Outermost dimension first; [] is a scalar. Dimensions may be 0.
class Shape {
 public:
  // Negative also as an int, and far from -1, which is "what is left" to some.
  static constexpr int64_t kNoAxis = -1'000'000'007;

  Shape() = default;
  Shape(std::initializer_list<int64_t> dims) : dims_(dims) {}
  explicit Shape(std::vector<int64_t> dims) : dims_(std::move(dims)) {}

  int rank() const { return static_cast<int>(dims_.size()); }
  // Of an axis that is not there it is kNoAxis, which no operator takes for a size; what is written
  // there is lost.
  int64_t operator[](int axis) const { return Has(axis) ? dims_[axis] : kNoAxis; }
  int64_t& operator[](int axis) { return Has(axis) ? dims_[axis] : none_ = kNoAxis; }
  const std::vector<int64_t>& dims() const { return dims_; }
  int64_t num_elements() const {
    int64_t n = 1;
    for (int64_t d : dims_) n *= d;
    return n;
  }
  auto begin() const { return dims_.begin(); }
  auto end() const { return dims_.end(); }
  std::string ToString() const;  // "[64, 784]"

  friend bool operator==(const Shape& a, const Shape& b) { return a.dims_ == b.dims_; }

 private:
  bool Has(int axis) const { return static_cast<size_t>(axis) < dims_.size(); }

  std::vector<int64_t> dims_;
  int64_t none_ = kNoAxis;
};

}  // namespace braid
