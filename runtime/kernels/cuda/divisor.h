// Division by a number that many threads divide by: a product and a shift, which cards do faster
// (Granlund and Montgomery, "Division by Invariant Integers using Multiplication", 1994).
#pragma once

#include <cstdint>

namespace braid::cuda {

struct Divisor {
  uint32_t divisor = 1, multiplier = 1, shift = 0;
};

inline constexpr int64_t kLargestDivided = INT32_MAX;

// `divisor` is at least 1; it and whatever it divides are at most kLargestDivided.
constexpr Divisor MakeDivisor(int64_t divisor) {
  Divisor made = {.divisor = static_cast<uint32_t>(divisor)};
  while ((int64_t{1} << made.shift) < divisor) ++made.shift;
  made.multiplier = static_cast<uint32_t>(
      (uint64_t{1} << 32) * ((uint64_t{1} << made.shift) - made.divisor) / made.divisor + 1);
  return made;
}

constexpr int32_t Quotient(int32_t number, const Divisor& by) {
  const auto n = static_cast<uint32_t>(number);
  const auto high = static_cast<uint32_t>((static_cast<uint64_t>(n) * by.multiplier) >> 32);
  return static_cast<int32_t>((high + n) >> by.shift);
}
constexpr int32_t Remainder(int32_t number, int32_t quotient, const Divisor& by) {
  return number - quotient * static_cast<int32_t>(by.divisor);
}

// Of numbers that are seldom larger than that, but may be.
struct LongDivisor {
  int64_t divisor = 1;
  Divisor small;
};
constexpr LongDivisor MakeLongDivisor(int64_t divisor) {
  LongDivisor made = {.divisor = divisor};
  if (divisor <= kLargestDivided) made.small = MakeDivisor(divisor);
  return made;
}
constexpr int64_t Quotient(int64_t number, const LongDivisor& by) {
  if (number > kLargestDivided || by.divisor > kLargestDivided) return number / by.divisor;
  return Quotient(static_cast<int32_t>(number), by.small);
}

}  // namespace braid::cuda
