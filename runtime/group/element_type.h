// What the calls of a process group move and compute on.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "comm/collective/collective.h"
#include "graph/dtype.h"

namespace braid::dist {

enum class ElementType : uint8_t {
  kI8,
  kU8,
  kI16,
  kU16,
  kI32,
  kU32,
  kI64,
  kU64,
  kF16,
  kBF16,
  kF32,
  kF64,
  kC64,   // two f32
  kC128,  // two f64
  kBool,
  kBytes,  // of any size: moved, never computed on
};

// How values of several ranks become one. f16 and bf16 are added and multiplied in f32 and rounded
// after each step.
enum class ReduceOp : uint8_t { kSum, kAverage, kProduct, kMin, kMax, kAnd, kOr, kXor };

std::string_view NameOf(ElementType type);  // "f32"
std::string_view NameOf(ReduceOp op);       // "sum"
// 0 for kBytes.
int64_t SizeOf(ElementType type);
ElementType ElementTypeOf(DType type);

// Null if the operation is not defined: anything on kBytes; kMin and kMax on complex numbers; kAnd,
// kOr and kXor on floating-point and complex numbers; kAverage on integers and bool, where the
// quotient may not be one. On bool a sum is "or" and a product "and". An average adds: it is
// divided at the end (FindDivision).
ReduceFn FindReduction(ElementType type, ReduceOp op);

// data[i] /= by, for n elements.
using DivideFn = void (*)(void* data, int64_t by, int64_t n);
// Null where kAverage is not defined.
DivideFn FindDivision(ElementType type);

}  // namespace braid::dist
