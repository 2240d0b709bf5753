#include "runtime/array_difference.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace braid {
namespace {

TEST(ArrayDifference, NothingIsRounded) {
  constexpr int64_t kLarge = (int64_t{1} << 60) + 1;
  const Array numbers = Array::FromVector<int64_t>({2}, {1, kLarge});
  EXPECT_EQ(ExactDifference(numbers, numbers), "");
  EXPECT_EQ(ExactDifference(numbers, Array::FromVector<int64_t>({2}, {1, kLarge - 1})),
            "element 1 of 2 is 1152921504606846977, should be 1152921504606846976");
  EXPECT_EQ(ExactDifference(numbers, numbers.As(DType::kF64)), "it is i64[2], should be f64[2]");
  EXPECT_EQ(ExactDifference(numbers, Array(DType::kI64, {2, 1})),
            "it is i64[2], should be i64[2, 1]");
  const Array bools = Array::FromVector<int64_t>({2}, {0, 1}).As(DType::kBool);
  EXPECT_EQ(ExactDifference(bools, Array(DType::kBool, {2})), "element 1 of 2 is 1, should be 0");
  Array all(DType::kU64, {});
  std::fill(all.mutable_bytes(), all.mutable_bytes() + 8, std::byte{255});
  EXPECT_EQ(ExactDifference(all, Array(DType::kU64, {})),
            "element 0 of 1 is 18446744073709551615, should be 0");
}

}  // namespace
}  // namespace braid
