#include "graph/dtype.h"

#include <array>

namespace braid {
namespace {

struct Entry {
  DType dtype;
  std::string_view name;
  size_t size;
};

// In the enumerators' order.
constexpr std::array<Entry, static_cast<size_t>(kLastDType) + 1> kEntries = {
    {{DType::kF32, "f32", 4},
     {DType::kF64, "f64", 8},
     {DType::kBF16, "bf16", 2},
     {DType::kF16, "f16", 2},
     {DType::kI32, "i32", 4},
     {DType::kI64, "i64", 8},
     {DType::kU8, "u8", 1},
     {DType::kBool, "bool", 1},
     {DType::kI8, "i8", 1},
     {DType::kI16, "i16", 2},
     {DType::kU16, "u16", 2},
     {DType::kU32, "u32", 4},
     {DType::kU64, "u64", 8},
     {DType::kF8E4M3Fn, "f8e4m3fn", 1},
     {DType::kF8E4M3Fnuz, "f8e4m3fnuz", 1},
     {DType::kF8E5M2, "f8e5m2", 1},
     {DType::kF8E5M2Fnuz, "f8e5m2fnuz", 1},
     {DType::kF8E8M0, "f8e8m0", 1},
     {DType::kF4E2M1, "f4e2m1", 1},
     {DType::kI4, "i4", 1},
     {DType::kU4, "u4", 1},
     {DType::kI2, "i2", 1},
     {DType::kU2, "u2", 1}}};

const Entry& Find(DType dtype) { return kEntries[static_cast<size_t>(dtype)]; }

}  // namespace

size_t SizeOf(DType dtype) { return Find(dtype).size; }

std::string_view ToString(DType dtype) { return Find(dtype).name; }

std::optional<DType> ParseDType(std::string_view name) {
  for (const Entry& entry : kEntries) {
    if (entry.name == name) return entry.dtype;
  }
  return std::nullopt;
}

bool IsFloating(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF64 || dtype == DType::kBF16 ||
         dtype == DType::kF16;
}

bool IsWholeNumber(DType dtype) {
  if (IsCoded(dtype)) return dtype >= DType::kI4;
  return !IsFloating(dtype) && dtype != DType::kBool;
}

}  // namespace braid
