// A tensor in host memory: what users feed, fetch, load and save. It owns its bytes; a copy copies
// them, a move does not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/dtype.h"
#include "graph/shape.h"
#include "graph/source_location.h"
#include "runtime/base/memory.h"
#include "runtime/base/mistakes.h"
#include "runtime/dtype_traits.h"

namespace braid {

class Array {
 public:
  Array() : Array(DType::kF32, Shape({0})) {}
  // All zeros. A negative size is a mistake; then it is [0]. `mistakes`, a session's for instance,
  // has what is done wrong with the array and its copies; null: the array itself, see mistake().
  Array(DType dtype, Shape shape, std::shared_ptr<Mistakes> mistakes = nullptr);

  // `values` in C order. That their number is not the shape's is a mistake; then what is missing is
  // 0.
  template <typename T>
  static Array FromVector(Shape shape, const std::vector<T>& values,
                          SourceLocation where = Here()) {
    Array array(kDTypeOf<T>, std::move(shape));
    const std::span<T> out = array.mutable_data<T>();
    if (out.size() != values.size()) array.ReportCount(values.size(), where);
    const size_t count = out.size() < values.size() ? out.size() : values.size();
    for (size_t i = 0; i < count; ++i) out[i] = values[i];
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

  // 64-byte aligned. That T is not the array's element type is a mistake; then as many zeros are
  // there.
  const std::byte* bytes() const { return memory_.data(); }
  std::byte* mutable_bytes() { return memory_.data(); }
  template <typename T>
  std::span<const T> data(SourceLocation where = Here()) const {
    if (kDTypeOf<T> != dtype_) return Zeros<T>(where);
    return {reinterpret_cast<const T*>(bytes()), num_bytes_ / sizeof(T)};
  }
  template <typename T>
  std::span<T> mutable_data(SourceLocation where = Here()) {
    if (kDTypeOf<T> != dtype_) return Zeros<T>(where);
    return {reinterpret_cast<T*>(mutable_bytes()), num_bytes_ / sizeof(T)};
  }

  // The same numbers in another element type (see ConvertElements).
  Array As(DType dtype) const;

  // The first mistake, or OK; Run, Set and WriteNpy return it. The array's own are also logged at
  // once, since it may never come to any of these.
  absl::Status mistake() const { return mistakes_->first(); }

  // Files of NumPy, https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html:
  // versions 1 to 3, C order, little endian. The format has no bf16.
  static absl::StatusOr<Array> ReadNpy(const std::string& path);
  absl::Status WriteNpy(const std::string& path) const;  // replaces the file

 private:
  template <typename T>
  std::span<T> Zeros(SourceLocation where) const {
    ReportType(kDTypeOf<T>, where);
    const auto count = static_cast<size_t>(num_elements());
    return {reinterpret_cast<T*>(mistakes_->Zeros(count * sizeof(T))), count};
  }
  void ReportType(DType wanted, SourceLocation where) const;
  void ReportCount(size_t count, SourceLocation where) const;

  DType dtype_;
  Shape shape_;
  size_t num_bytes_ = 0;
  Memory memory_;
  std::shared_ptr<Mistakes> mistakes_;
};

// Converts n elements. To a float type: rounded to nearest even. From a float to an integer type:
// towards zero, clamped to its range, NaN to 0; between integers: clamped. To bool: is not 0. To a
// coded float: the nearest, clamped to its range; NaN stays NaN where the type has one.
void ConvertElements(DType from, const void* source, DType to, void* out, int64_t n);

}  // namespace braid
