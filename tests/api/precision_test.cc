// --precision=bf16 and f16: products in these, everything else in f32.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>
#include <vector>

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

// The gradients of two products' weights, as --precision makes them, or as f32 does.
std::vector<Array> Gradients(DType precision, const std::function<void(Job&)>& record) {
  const auto session =
      Session::Start({.precision = precision, .seed = 5, .progress = Progress::kOff});
  EXPECT_TRUE(session.ok()) << session.status();
  auto job = (*session)->Compile("gradients", record);
  EXPECT_TRUE(job.ok()) << job.status();
  if (!job.ok()) return {};
  const auto result = job->Run();
  EXPECT_TRUE(result.ok()) << result.status();
  return {result->Last("dw0"), result->Last("dw1")};
}

// Of the largest number in `b`.
double LargestDifference(const Array& a, const Array& b) {
  double largest = 0, difference = 0;
  for (size_t i = 0; i < b.data<float>().size(); ++i) {
    largest = std::max<double>(largest, std::abs(b.data<float>()[i]));
    difference = std::max<double>(difference, std::abs(a.data<float>()[i] - b.data<float>()[i]));
  }
  return difference / largest;
}

struct TwoProducts {
  explicit TwoProducts(Job& job) {
    const auto normal = [&](const char* name, Shape shape) {
      return Variable(job.graph(),
                      {.name = name, .shape = std::move(shape), .init = "normal", .stddev = 1});
    };
    x = normal("x", {64, 48});
    w0 = normal("w0", {48, 40});
    w1 = normal("w1", {40, 32});
    t = normal("t", {64, 32});
  }
  Tensor x, w0, w1, t;
};

// Every operand of every product is rounded once, forwards and backwards, and nothing else is.
TEST(PrecisionTest, GradientsAreThoseOfRoundedOperands) {
  const auto minimized = [](Job& job) {
    const TwoProducts m(job);
    const Tensor y = MatMul(Relu(MatMul(m.x, m.w0)), m.w1);
    job.Minimize(Mean(Square(y - m.t)), Sgd{.lr = 0});
    job.Fetch("dw0", job.GradientOf(m.w0));
    job.Fetch("dw1", job.GradientOf(m.w1));
  };
  const std::vector<Array> wide = Gradients(DType::kF32, minimized);
  const auto by_hand = [](Job& job) {
    const TwoProducts m(job);
    const auto rounded = [](Tensor x) { return Cast(Cast(x, DType::kBF16), DType::kF32); };
    const Tensor before = MatMul(rounded(m.x), rounded(m.w0));
    const Tensor h = Relu(before);
    const Tensor dy = (MatMul(rounded(h), rounded(m.w1)) - m.t) * (2.0 / (64 * 32));
    const Tensor dh = MatMul(rounded(dy), rounded(m.w1), {.transpose_b = true});
    const Tensor d_before = Where(Greater(before, before * 0.0), dh, dh * 0.0);
    job.Fetch("dw0", MatMul(rounded(m.x), rounded(d_before), {.transpose_a = true}));
    job.Fetch("dw1", MatMul(rounded(h), rounded(dy), {.transpose_a = true}));
  };
  const std::vector<Array> narrow = Gradients(DType::kBF16, minimized);
  const std::vector<Array> expected = Gradients(DType::kF32, by_hand);
  ASSERT_EQ(narrow.size(), expected.size());
  for (size_t i = 0; i < narrow.size(); ++i) {
    EXPECT_LT(LargestDifference(narrow[i], expected[i]), 2e-4) << "dw" << i;
    EXPECT_GT(LargestDifference(narrow[i], wide[i]), 1e-3) << "dw" << i;
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
