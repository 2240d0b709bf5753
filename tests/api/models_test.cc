// The bert and wide_deep examples learn, and do so on any layout as on one device.

#include <cmath>
#include <numeric>

#include "examples/bert_model.h"
#include "examples/sentences.h"
#include "examples/wide_deep_model.h"
#include "gtest/gtest.h"
#include "tests/api/training_case.h"

namespace braid {
namespace {

using examples::Parallel;

using ModelRecorder = std::function<void(Job&)> (*)(Parallel, DType);

// With what one device makes of `record`, or of `whole`.
void ExpectLayoutsAgree(ModelRecorder record, DType dtype, int64_t steps, double tolerance,
                        ModelRecorder whole = nullptr) {
  std::vector<double> reference;
  for (const LayoutCase& layout : LayoutCases()) {
    if (layout.devices.size() > 2 || layout.devices[0] == 3) continue;  // enough others
    const bool is_whole = whole != nullptr && reference.empty();
    const auto recorded = (is_whole ? whole : record)(layout.parallel, dtype);
    if (!recorded) continue;
    SCOPED_TRACE(layout.name);
    const auto run = RunTraining(
        {.layout = layout, .steps = steps, .dataset_kinds = examples::KindsWithSentences()},
        recorded);
    ASSERT_TRUE(run.ok()) << run.status().message();
    if (reference.empty()) {
      reference = run->losses;
      const auto mean_of_ten = [](auto first) {
        return std::accumulate(first, first + 10, 0.0) / 10;
      };
      EXPECT_LT(mean_of_ten(reference.end() - 10), mean_of_ten(reference.begin()));
      continue;
    }
    for (int64_t step = 0; step < steps; ++step) {
      ASSERT_NEAR(run->losses[step], reference[step], tolerance * std::abs(reference[step]))
          << "step " << step;
    }
  }
}

examples::BertOptions SmallBert(Parallel parallel, DType dtype) {
  examples::BertOptions options;
  options.parallel = parallel;
  options.dtype = dtype;
  options.vocabulary = 16;
  options.width = 16;
  options.time = 8;
  options.batch = 8;
  options.masked = 0.3;
  options.dropout = 0.1;
  options.warmup_steps = 5;
  return options;
}

std::function<void(Job&)> Bert(Parallel parallel, DType dtype) {
  return [options = SmallBert(parallel, dtype)](Job& job) { TrainBert(job, options); };
}

std::function<void(Job&)> BertOfText(Parallel parallel, DType dtype) {
  examples::BertOptions options = SmallBert(parallel, dtype);
  options.train = TextFile(MakeTextFile(), {.context = options.time});
  return [options](Job& job) { TrainBert(job, options); };
}

// How many tokens of the whole batch are masked divides every micro-batch's gradients.
std::function<void(Job&)> BertInMicroBatches(Parallel parallel, DType dtype) {
  examples::BertOptions options = SmallBert(parallel, dtype);
  options.train = TextFile(MakeTextFile(), {.context = options.time});
  options.micro_batches = 4;
  return [options](Job& job) { TrainBert(job, options); };
}

examples::WideDeepOptions SmallWideDeep(Parallel parallel, DType dtype) {
  examples::WideDeepOptions options;
  options.parallel = parallel;
  options.dtype = dtype;
  options.fields = 2;
  options.rows = 50;
  options.hidden = 12;
  options.batch = 24;
  options.lr = 0.05;
  return options;
}

std::function<void(Job&)> WideDeep(Parallel parallel, DType dtype) {
  if (parallel == Parallel::kPipeline) return nullptr;
  return [options = SmallWideDeep(parallel, dtype)](Job& job) { TrainWideDeep(job, options); };
}

TEST(ModelsTest, BertF64LossesEqualOneDevice) { ExpectLayoutsAgree(&Bert, DType::kF64, 60, 1e-9); }
TEST(ModelsTest, BertF32LossesEqualOneDevice) { ExpectLayoutsAgree(&Bert, DType::kF32, 50, 1e-4); }
TEST(ModelsTest, BertOfTextLossesEqualOneDevice) {
  ExpectLayoutsAgree(&BertOfText, DType::kF64, 60, 1e-9);
}
TEST(ModelsTest, BertInMicroBatchesEqualsBertOfWholeBatches) {
  ExpectLayoutsAgree(&BertInMicroBatches, DType::kF64, 20, 1e-9, /*whole=*/&BertOfText);
}
TEST(ModelsTest, WideDeepF64LossesEqualOneDevice) {
  ExpectLayoutsAgree(&WideDeep, DType::kF64, 100, 1e-9);
}
TEST(ModelsTest, WideDeepF32LossesEqualOneDevice) {
  ExpectLayoutsAgree(&WideDeep, DType::kF32, 50, 1e-4);
}

// Tables on servers, whose rows are so many that those of a batch are updated alone.
TEST(ModelsTest, WideDeepOnServersEqualsOneDevice) {
  examples::WideDeepOptions options = SmallWideDeep(Parallel::kData, DType::kF64);
  options.rows = 1000;
  const auto record = [&](Job& job) { TrainWideDeep(job, options); };
  const auto one = RunTraining({.steps = 60}, record);
  ASSERT_TRUE(one.ok()) << one.status();
  options.has_servers = true;
  for (const std::vector<int>& devices : {std::vector<int>{2}, {2, 2}, {1, 1, 1}}) {
    const auto served = RunTraining({.layout = {"servers", devices}, .steps = 60}, record);
    ASSERT_TRUE(served.ok()) << served.status();
    ASSERT_EQ(served->losses.size(), one->losses.size());
    for (size_t step = 0; step < one->losses.size(); ++step) {
      EXPECT_NEAR(served->losses[step], one->losses[step], 1e-9) << step;
    }
  }
  EXPECT_FALSE(RunTraining({.steps = 1}, record).ok()) << "one device cannot serve another";
}

double Evaluated(const std::function<void(Job&)>& train, const std::function<void(Job&)>& evaluate,
                 int64_t steps, const char* what) {
  auto session = Session::Start({.devices = {2},
                                 .dataset_kinds = examples::KindsWithSentences(),
                                 .seed = 3,
                                 .progress = Progress::kOff});
  EXPECT_TRUE(session.ok()) << session.status().message();
  auto training = (*session)->Compile("train", train);
  EXPECT_TRUE(training.ok()) << training.status().message();
  auto evaluating = (*session)->Compile("evaluate", evaluate);
  EXPECT_TRUE(evaluating.ok()) << evaluating.status().message();
  if (!training.ok() || !evaluating.ok()) return 0;
  const auto trained = training->Run({.steps = steps});
  EXPECT_TRUE(trained.ok()) << trained.status().message();
  const auto evaluated = evaluating->Run({.steps = 20});
  EXPECT_TRUE(evaluated.ok()) << evaluated.status().message();
  return evaluated.ok() ? evaluated->Mean(what) : 0;
}

// A guess is right once in 16.
TEST(ModelsTest, BertFindsMaskedWords) {
  examples::BertOptions options = SmallBert(Parallel::kModel, DType::kF32);
  options.width = 32;
  options.masked = 0.15;
  options.dropout = 0;
  options.batch = 32;
  options.steps = 600;
  EXPECT_GT(Evaluated([&](Job& job) { TrainBert(job, options); },
                      [&](Job& job) { EvaluateBert(job, options); }, options.steps, "accuracy"),
            0.6);
}

TEST(ModelsTest, WideDeepNearlyFindsTheRule) {
  examples::WideDeepOptions options = SmallWideDeep(Parallel::kModel, DType::kF32);
  options.batch = 256;
  const auto train = [&](Job& job) { TrainWideDeep(job, options); };
  const auto evaluate = [&](Job& job) { EvaluateWideDeep(job, options); };
  const double possible = Evaluated(train, evaluate, 1, "possible");
  EXPECT_GT(possible, 0.75);
  EXPECT_LT(Evaluated(train, evaluate, 1, "accuracy"), possible - 0.1);
  EXPECT_GT(Evaluated(train, evaluate, 1000, "accuracy"), possible - 0.05);
}

}  // namespace
}  // namespace braid
