#include "runtime/array_difference.h"

#include <cstdint>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace braid {
namespace {

// As its type has it: no whole number is rounded.
std::string ElementText(const Array& array, int64_t i) {
  Array one(array.dtype(), {});
  const size_t size = SizeOf(array.dtype());
  std::memcpy(one.mutable_bytes(), array.bytes() + i * size, size);
  if (IsFloating(array.dtype())) return absl::StrCat(one.As(DType::kF64).data<double>()[0]);
  if (array.dtype() != DType::kU64) return absl::StrCat(one.As(DType::kI64).data<int64_t>()[0]);
  uint64_t whole = 0;
  std::memcpy(&whole, one.bytes(), size);
  return absl::StrCat(whole);
}

std::string TypeText(const Array& array) {
  return absl::StrCat(std::string(ToString(array.dtype())), array.shape().ToString());
}

}  // namespace

std::string ExactDifference(const Array& actual, const Array& expected) {
  if (actual.dtype() != expected.dtype() || actual.shape() != expected.shape()) {
    return absl::StrCat("it is ", TypeText(actual), ", should be ", TypeText(expected));
  }
  const size_t size = SizeOf(actual.dtype());
  for (int64_t i = 0; i < actual.num_elements(); ++i) {
    if (std::memcmp(actual.bytes() + i * size, expected.bytes() + i * size, size) == 0) continue;
    return absl::StrCat("element ", i, " of ", actual.num_elements(), " is ",
                        ElementText(actual, i), ", should be ", ElementText(expected, i));
  }
  return "";
}

}  // namespace braid
