// A tensor in host memory: what users feed, fetch, load and save. It owns its bytes; a copy copies
// them, a move does not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/dtype.h"
#include "graph/shape.h"
#include "runtime/base/memory.h"
#include "runtime/dtype_traits.h"

namespace braid {

class Array {
 public:
  Array() : Array(DType::kF32, Shape({0})) {}
  Array(DType dtype, Shape shape);  // all zeros

  // `values` in C order; their number must be the shape's.
  template <typename T>
  static Array FromVector(Shape shape, const std::vector<T>& values) {
    Array array(kDTypeOf<T>, std::move(shape));
    array.CheckCount(values.size());
    T* out = array.mutable_data<T>().data();
    for (size_t i = 0; i < values.size(); ++i) out[i] = values[i];
    return array;
  }
  template <typename T>
  static Array Scalar(T value) {
    return FromVector<T>(Shape{}, {value});
  }

  Array(const Array& other);
  Array& operator=(const Array& other);
  Array(Array&& other) noexcept;
  Array& operator=(Array&& other) noexcept;

  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  int64_t num_elements() const { return shape_.num_elements(); }
  size_t num_bytes() const { return num_bytes_; }

  // 64-byte aligned. The typed forms check that T is the array's element type.
  const std::byte* bytes() const { return memory_.data(); }
  std::byte* mutable_bytes() { return memory_.data(); }
  template <typename T>
  std::span<const T> data() const {
    CheckType(kDTypeOf<T>);
    return {reinterpret_cast<const T*>(bytes()), num_bytes_ / sizeof(T)};
  }
  template <typename T>
  std::span<T> mutable_data() {
    CheckType(kDTypeOf<T>);
    return {reinterpret_cast<T*>(mutable_bytes()), num_bytes_ / sizeof(T)};
  }

  // The same numbers in another element type (see ConvertElements).
  Array As(DType dtype) const;

  // Files of NumPy, https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html:
  // versions 1 to 3, C order, little endian. The format has no bf16.
  static absl::StatusOr<Array> ReadNpy(const std::string& path);
  absl::Status WriteNpy(const std::string& path) const;  // replaces the file

 private:
  void CheckType(DType wanted) const;
  void CheckCount(size_t count) const;

  DType dtype_;
  Shape shape_;
  size_t num_bytes_ = 0;
  Memory memory_;
};

// Converts n elements. To a float type: rounded to nearest even. From a float to an integer type:
// towards zero, clamped to its range, NaN to 0; between integers: clamped. To bool: is not 0.
void ConvertElements(DType from, const void* source, DType to, void* out, int64_t n);

}  // namespace braid
