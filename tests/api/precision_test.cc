// --precision=bf16 and f16: products in these, everything else in f32.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/api/training_case.h"

namespace braid {
namespace {

using examples::Parallel;

// Losses of the small GPT; it has products of every kind: with weights, batched, transposed.
std::vector<double> Losses(const LayoutCase& layout, DType precision, DType dtype = DType::kF32) {
  const auto run = RunTraining(
      {.layout = layout, .steps = 30, .precision = precision},
      [&](Job& job) { examples::TrainGpt(job, SmallGpt(layout.parallel, dtype, MakeTextFile())); });
  EXPECT_TRUE(run.ok()) << run.status();
  return run.ok() ? run->losses : std::vector<double>(30);
}

double LargestDifference(const std::vector<double>& a, const std::vector<double>& b) {
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, std::abs(a[i] - b[i]) / std::abs(b[i]));
  }
  return largest;
}

// bf16 keeps 8 bits, so one rounding is up to 2^-9 = 0.2 % of an operand; sums are in f32. f16
// keeps 11.
TEST(PrecisionTest, TrainsAsF32DoesUpToTheRoundingOfOperands) {
  const std::vector<double> wide = Losses({}, DType::kF32);
  for (const auto& [precision, limit] :
       {std::pair{DType::kBF16, 0.01}, std::pair{DType::kF16, 0.00125}}) {
    SCOPED_TRACE(ToString(precision));
    const std::vector<double> narrow = Losses({}, precision);
    const double difference = LargestDifference(narrow, wide);
    EXPECT_GT(difference, 1e-6) << "nothing was narrowed";
    EXPECT_LT(difference, limit);
    EXPECT_LT(narrow.back(), 0.9 * narrow.front()) << "it does not learn";
  }
}

// Layouts differ by the order of f32 sums, and by an operand that lies near a boundary between two
// narrow values and rounds to the other one.
TEST(PrecisionTest, LayoutsAgree) {
  for (const DType precision : {DType::kBF16, DType::kF16}) {
    const std::vector<double> one = Losses({}, precision);
    for (const LayoutCase& layout : LayoutCases()) {
      if (layout.devices != std::vector<int>{2, 2}) continue;
      SCOPED_TRACE(layout.name);
      EXPECT_LT(LargestDifference(Losses(layout, precision), one), 0.003);
    }
  }
}

TEST(PrecisionTest, LeavesF64Alone) {
  EXPECT_EQ(Losses({}, DType::kBF16, DType::kF64), Losses({}, DType::kF32, DType::kF64));
}

}  // namespace
}  // namespace braid
