// Element types of tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace braid {

enum class DType : uint8_t { kF32 = 0, kF64, kBF16, kF16, kI32, kI64, kU8, kBool };

size_t SizeOf(DType dtype);                              // bytes per element
std::string_view ToString(DType dtype);                  // "f32", "bf16", ...
std::optional<DType> ParseDType(std::string_view name);  // the inverse of ToString
bool IsFloating(DType dtype);

}  // namespace braid
