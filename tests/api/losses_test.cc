// Losses of which not all rows count alike, on rows and classes that are split: the numbers of one
// device.

#include <cmath>
#include <functional>

#include "gtest/gtest.h"
#include "tests/api/training_case.h"

namespace braid {
namespace {

constexpr int64_t kRows = 7, kClasses = 10;

struct LossCase {
  const char* name;
  std::function<Tensor(Tensor logits, Tensor labels, Tensor weights)> loss;
};

std::function<void(Job&)> Training(const LossCase& loss_case, const NdSbp& sbp) {
  return [=](Job& job) {
    LogicalGraph& graph = job.graph();
    const Tensor logits = Variable(graph, {.name = "logits",
                                           .dtype = DType::kF64,
                                           .shape = {kRows, kClasses},
                                           .init = "uniform",
                                           .low = -2,
                                           .high = 2,
                                           .sbp = sbp});
    // 0, 3, 6, 9, 2, 5, 8
    const Tensor three = Constant(graph, 3, {.dtype = DType::kI64});
    const Tensor ten = Constant(graph, kClasses, {.dtype = DType::kI64});
    const Tensor labels = Mod(Mul(Iota(graph, {DType::kI64, {kRows}}), three), ten);
    const Tensor weights = AddScalar(Scale(Iota(graph, {DType::kF64, {kClasses}}), 0.25), 0.5);
    const Tensor loss = loss_case.loss(logits, labels, weights);
    job.Fetch("loss", loss);
    job.Minimize(loss, Sgd{.lr = 0.5});
  };
}

TEST(LossesTest, SplitRowsAndClassesGiveTheSameLosses) {
  const LossCase cases[] = {
      {"mean", [](Tensor x, Tensor y, Tensor) { return CrossEntropy(x, y); }},
      {"smoothing",
       [](Tensor x, Tensor y, Tensor) { return CrossEntropy(x, y, {.label_smoothing = 0.25}); }},
      {"ignored",
       [](Tensor x, Tensor y, Tensor) { return CrossEntropy(x, y, {.ignore_index = 6}); }},
      {"weights", [](Tensor x, Tensor y, Tensor w) { return CrossEntropy(x, y, {.weights = w}); }},
      {"all",
       [](Tensor x, Tensor y, Tensor w) {
         return CrossEntropy(x, y, {.weights = w, .ignore_index = 6, .label_smoothing = 0.25});
       }},
      {"nll",
       [](Tensor x, Tensor y, Tensor w) {
         return NllLoss(LogSoftmax(x), y, {.weights = w, .ignore_index = 9});
       }},
      {"cosine",
       [](Tensor x, Tensor, Tensor w) {
         return Sum(CosineSimilarity(x, BroadcastTo(w, {kRows, kClasses})));
       }},
  };
  for (const LossCase& loss_case : cases) {
    SCOPED_TRACE(loss_case.name);
    std::vector<double> reference;
    for (const std::vector<int>& devices :
         std::vector<std::vector<int>>{{1}, {2}, {3}, {4}, {1, 1}}) {
      for (const Sbp sbp : {sbp::B, sbp::S(0), sbp::S(1)}) {
        const auto run = RunTraining({.layout = {.name = "", .devices = devices}, .steps = 4},
                                     Training(loss_case, NdSbp({sbp})));
        ASSERT_TRUE(run.ok()) << run.status();
        if (reference.empty()) {
          reference = run->losses;
          EXPECT_LT(reference.back(), reference.front());
          continue;
        }
        for (size_t i = 0; i < reference.size(); ++i) {
          EXPECT_NEAR(run->losses[i], reference[i], 1e-12 * (1 + std::abs(reference[i])))
              << sbp.ToString() << ", step " << i;
        }
      }
    }
  }
}

}  // namespace
}  // namespace braid
