#include "runtime/array.h"

#include <glog/logging.h>
#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_format.h"
#include "runtime/base/status.h"
#include "runtime/coded_elements.h"
#include "runtime/device/host_memory.h"
#include "runtime/files/file.h"
#include "runtime/files/npy.h"

namespace braid {
namespace {

// A bool in a file may be any byte; reading it as a C++ bool would be undefined.
template <typename T>
using Stored = std::conditional_t<std::is_same_v<T, bool>, uint8_t, T>;

template <typename T>
constexpr bool kIsHalf = std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>;

template <typename To, typename From>
To ConvertInteger(From value) {
  if constexpr (std::is_floating_point_v<From>) {
    // Both bounds as floats: the lower one is exact, the upper one rounds up to a power of two.
    constexpr From kLow = static_cast<From>(std::numeric_limits<To>::min());
    constexpr From kHigh = static_cast<From>(std::numeric_limits<To>::max());
    if (std::isnan(value)) return 0;
    if (value <= kLow) return std::numeric_limits<To>::min();
    if (value >= kHigh) return std::numeric_limits<To>::max();
    return static_cast<To>(value);
  } else {
    if (std::cmp_less(value, std::numeric_limits<To>::min())) return std::numeric_limits<To>::min();
    if (std::cmp_greater(value, std::numeric_limits<To>::max())) {
      return std::numeric_limits<To>::max();
    }
    return static_cast<To>(value);
  }
}

template <typename To, typename From>
Stored<To> ConvertOne(Stored<From> value) {
  if constexpr (kIsHalf<From>) {
    return ConvertOne<To, float>(static_cast<float>(value));
  } else if constexpr (std::is_same_v<From, bool>) {
    return ConvertOne<To, uint8_t>(value != 0);
  } else if constexpr (std::is_same_v<To, bool>) {
    return value != 0;
  } else if constexpr (kIsHalf<To>) {
    return To(static_cast<float>(value));
  } else if constexpr (std::is_floating_point_v<To>) {
    return static_cast<To>(value);
  } else {
    return ConvertInteger<To>(value);
  }
}

// What coded numbers are widened to stays in the cache, however many they are.
constexpr int64_t kConvertedAtOnce = 512;

// The lowest and the highest number of a coded type of whole numbers.
std::pair<int64_t, int64_t> RangeOf(DType dtype) {
  switch (dtype) {
    case DType::kI4:
      return {-8, 7};
    case DType::kU4:
      return {0, 15};
    case DType::kI2:
      return {-2, 1};
    default:
      return {0, 3};
  }
}

// By way of a type that holds all numbers of the coded type.
void ConvertFromCoded(DType from, const uint8_t* source, DType to, void* out, int64_t n) {
  if (IsWholeNumber(from)) {
    const auto* wide = reinterpret_cast<const int8_t*>(source);
    return ConvertElements(from == DType::kI4 || from == DType::kI2 ? DType::kI8 : DType::kU8, wide,
                           to, out, n);
  }
  std::array<float, kConvertedAtOnce> wide;
  auto* next = static_cast<std::byte*>(out);
  for (int64_t begin = 0; begin < n; begin += kConvertedAtOnce) {
    const int64_t size = std::min(kConvertedAtOnce, n - begin);
    for (int64_t i = 0; i < size; ++i) wide[i] = DecodeElement(from, source[begin + i]);
    ConvertElements(DType::kF32, wide.data(), to, next, size);
    next += size * static_cast<int64_t>(SizeOf(to));
  }
}

void ConvertToCoded(DType from, const void* source, DType to, uint8_t* out, int64_t n) {
  const auto* next = static_cast<const std::byte*>(source);
  const auto [low, high] = RangeOf(to);
  for (int64_t begin = 0; begin < n; begin += kConvertedAtOnce, out += kConvertedAtOnce) {
    const int64_t size = std::min(kConvertedAtOnce, n - begin);
    if (IsWholeNumber(to)) {
      std::array<int64_t, kConvertedAtOnce> wide;
      ConvertElements(from, next, DType::kI64, wide.data(), size);
      for (int64_t i = 0; i < size; ++i) out[i] = EncodeWhole(to, std::clamp(wide[i], low, high));
    } else {
      std::array<float, kConvertedAtOnce> wide;
      ConvertElements(from, next, DType::kF32, wide.data(), size);
      for (int64_t i = 0; i < size; ++i) out[i] = EncodeElement(to, wide[i]);
    }
    next += size * static_cast<int64_t>(SizeOf(from));
  }
}

}  // namespace

void ConvertElements(DType from, const void* source, DType to, void* out, int64_t n) {
  if (n == 0) return;
  if (from == to && from != DType::kBool) {
    std::memcpy(out, source, static_cast<size_t>(n) * SizeOf(from));
    return;
  }
  if (IsCoded(from)) return ConvertFromCoded(from, static_cast<const uint8_t*>(source), to, out, n);
  if (IsCoded(to)) return ConvertToCoded(from, source, to, static_cast<uint8_t*>(out), n);
  VisitDType(from, [&]<typename From>(std::type_identity<From>) {
    VisitDType(to, [&]<typename To>(std::type_identity<To>) {
      const auto* in = static_cast<const Stored<From>*>(source);
      auto* result = static_cast<Stored<To>*>(out);
      for (int64_t i = 0; i < n; ++i) result[i] = ConvertOne<To, From>(in[i]);
    });
  });
}

Array::Array(DType dtype, Shape shape, std::shared_ptr<Mistakes> mistakes)
    : dtype_(dtype),
      shape_(std::move(shape)),
      mistakes_(mistakes != nullptr ? std::move(mistakes)
                                    : std::make_shared<Mistakes>(Mistakes::Reader::kNobodyYet)) {
  if (std::any_of(shape_.begin(), shape_.end(), [](int64_t size) { return size < 0; })) {
    mistakes_->Report(absl::InvalidArgumentError(
        absl::StrFormat("an Array of shape %s was made; no size is negative", shape_.ToString())));
    shape_ = Shape({0});
  }
  num_bytes_ = static_cast<size_t>(shape_.num_elements()) * SizeOf(dtype);
  absl::StatusOr<Memory> memory = AllocateHostMemory(std::max<size_t>(num_bytes_, 1));
  CHECK(memory.ok()) << "Array of shape " << shape_.ToString() << ": " << memory.status().message();
  memory_ = *std::move(memory);
  std::memset(mutable_bytes(), 0, num_bytes_);
}

Array::Array(const Array& other) : Array(other.dtype_, other.shape_, other.mistakes_) {
  std::memcpy(mutable_bytes(), other.bytes(), num_bytes_);
}

Array& Array::operator=(const Array& other) {
  if (this != &other) *this = Array(other);
  return *this;
}

// What was moved from is the empty array [0], still valid.
Array::Array(Array&& other) noexcept : Array() { *this = std::move(other); }

Array& Array::operator=(Array&& other) noexcept {
  std::swap(dtype_, other.dtype_);
  std::swap(shape_, other.shape_);
  std::swap(num_bytes_, other.num_bytes_);
  std::swap(memory_, other.memory_);
  std::swap(mistakes_, other.mistakes_);
  return *this;
}

void Array::ReportType(DType wanted, SourceLocation where) const {
  mistakes_->Report(absl::InvalidArgumentError(
      absl::StrFormat("an Array %s%s was asked for elements of %s; ask for its own type, or for "
                      "As(another) (%s)",
                      ToString(dtype_), shape_.ToString(), ToString(wanted), where.ToString())));
}

void Array::ReportCount(size_t count, SourceLocation where) const {
  mistakes_->Report(absl::InvalidArgumentError(
      absl::StrFormat("%d values were given for an Array %s, which has %d (%s)", count,
                      shape_.ToString(), num_elements(), where.ToString())));
}

Array Array::As(DType dtype) const {
  Array out(dtype, shape_, mistakes_);
  ConvertElements(dtype_, bytes(), dtype, out.mutable_bytes(), num_elements());
  return out;
}

absl::StatusOr<Array> Array::ReadNpy(const std::string& path) {
  BRAID_ASSIGN_OR_RETURN(InputFile file, InputFile::Open(path));
  BRAID_ASSIGN_OR_RETURN(NpyHeader header, ReadNpyHeader(file));
  Array array(header.dtype, header.shape);
  BRAID_RETURN_IF_ERROR(file.ReadAt(header.data_offset, array.mutable_bytes(), array.num_bytes()));
  if (header.dtype == DType::kBool) {  // any byte but 0 is true
    for (size_t i = 0; i < array.num_bytes(); ++i) {
      std::byte& value = array.mutable_bytes()[i];
      if (value != std::byte{0}) value = std::byte{1};
    }
  }
  return array;
}

absl::Status Array::WriteNpy(const std::string& path) const {
  BRAID_RETURN_IF_ERROR(mistake());
  BRAID_ASSIGN_OR_RETURN(std::string header, FormatNpyHeader(dtype_, shape_));
  const std::string temporary = path + ".tmp";
  unlink(temporary.c_str());
  {
    BRAID_ASSIGN_OR_RETURN(OutputFile file, OutputFile::Create(temporary));
    BRAID_RETURN_IF_ERROR(file.WriteAt(0, header.data(), header.size()));
    BRAID_RETURN_IF_ERROR(file.WriteAt(static_cast<int64_t>(header.size()), bytes(), num_bytes_));
  }
  if (rename(temporary.c_str(), path.c_str()) != 0) return ErrnoStatus(errno, "replace", path);
  return absl::OkStatus();
}

}  // namespace braid
