#include "runtime/base/status.h"

#include <gtest/gtest.h>

namespace braid {
namespace {

absl::StatusOr<int> Half(int x) {
  if (x % 2 != 0) return absl::InvalidArgumentError("odd");
  return x / 2;
}

// A macro of a user's is one line, whatever it holds.
#define ASSIGN_HALVES(half_of_x, x, half_of_y, y) \
  BRAID_ASSIGN_OR_RETURN(half_of_x, Half(x));     \
  BRAID_ASSIGN_OR_RETURN(half_of_y, Half(y))
#define CHECK_EVEN(x, y)                   \
  BRAID_RETURN_IF_ERROR(Half(x).status()); \
  BRAID_RETURN_IF_ERROR(Half(y).status())

absl::StatusOr<int> SumOfHalves(int x, int y) {
  ASSIGN_HALVES(const int half_of_x, x, const int half_of_y, y);
  return half_of_x + half_of_y;
}

absl::Status CheckEven(int x, int y) {
  CHECK_EVEN(x, y);
  return absl::OkStatus();
}

TEST(StatusMacrosTest, StandTwiceOnALine) {
  const absl::Status odd = absl::InvalidArgumentError("odd");
  EXPECT_EQ(*SumOfHalves(8, 4), 6);
  EXPECT_EQ(SumOfHalves(7, 4).status(), odd);
  EXPECT_EQ(SumOfHalves(8, 3).status(), odd);
  EXPECT_EQ(CheckEven(8, 4), absl::OkStatus());
  EXPECT_EQ(CheckEven(7, 4), odd);
  EXPECT_EQ(CheckEven(8, 3), odd);
}

// One inside of another: in a function that the first one's expression calls.
TEST(StatusMacrosTest, StandInEachOther) {
  const auto quarter = [](int x) -> absl::StatusOr<int> {
    BRAID_ASSIGN_OR_RETURN(const int result, [&]() -> absl::StatusOr<int> {
      BRAID_ASSIGN_OR_RETURN(const int half, Half(x));
      return Half(half);
    }());
    return result;
  };
  EXPECT_EQ(*quarter(8), 2);
  EXPECT_EQ(quarter(2).status(), absl::InvalidArgumentError("odd"));
}

}  // namespace
}  // namespace braid
