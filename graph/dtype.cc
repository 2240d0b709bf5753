#include "graph/dtype.h"

#include <array>

namespace braid {
namespace {

struct Entry {
  DType dtype;
  std::string_view name;
  size_t size;
};

constexpr std::array<Entry, 8> kEntries = {{{DType::kF32, "f32", 4},
                                            {DType::kF64, "f64", 8},
                                            {DType::kBF16, "bf16", 2},
                                            {DType::kF16, "f16", 2},
                                            {DType::kI32, "i32", 4},
                                            {DType::kI64, "i64", 8},
                                            {DType::kU8, "u8", 1},
                                            {DType::kBool, "bool", 1}}};

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

}  // namespace braid
