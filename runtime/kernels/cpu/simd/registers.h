// A vector register of the instruction set, as a type. Included only by sources
// that are compiled once per instruction set.
#pragma once

namespace braid::simd::BRAID_ISA {

inline constexpr int kVectorBytes = BRAID_VECTOR_BYTES;

template <class T>
struct VectorOf;
template <>
struct VectorOf<float> {
  typedef float Type __attribute__((vector_size(kVectorBytes)));
};
template <>
struct VectorOf<double> {
  typedef double Type __attribute__((vector_size(kVectorBytes)));
};
template <class T>
inline constexpr int kVectorSize = kVectorBytes / static_cast<int>(sizeof(T));

}  // namespace braid::simd::BRAID_ISA
