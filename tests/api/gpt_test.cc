// The gpt example's model: GPT-2's weights give GPT-2's logits, a step with a cache those of the
// whole text, and what is written does not depend on the layout.

#include <cmath>
#include <cstring>

#include "examples/gpt_writer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/files/weight_files.h"
#include "tests/api/gpt2_reference.h"
#include "tests/api/training_case.h"

namespace braid {
namespace {

using examples::GptOptions;
using examples::Parallel;

const std::vector<int32_t> kText = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 20};

GptOptions Model(Parallel parallel, DType dtype) {
  const Gpt2Shape shape;
  GptOptions options;
  options.parallel = parallel;
  options.dtype = dtype;
  options.vocabulary = shape.vocabulary;
  options.layers = shape.layers;
  options.width = shape.width;
  options.heads = shape.heads;
  options.context = shape.context;
  options.tied = true;
  return options;
}

const std::vector<LayoutCase> kLayouts = {{"1x1", {1}, Parallel::kData},
                                          {"data on 2", {2}, Parallel::kData},
                                          {"model on 3", {3}, Parallel::kModel},
                                          {"model on 2x1", {1, 1}, Parallel::kModel},
                                          {"hybrid on 2x2", {2, 2}, Parallel::kHybrid},
                                          {"pipeline on 2", {2}, Parallel::kPipeline}};

class GptTest : public testing::Test {
 protected:
  void SetUp() override {
    path_ = TestFolder() + "/gpt2.safetensors";
    std::remove(path_.c_str());
    const absl::Status written = WriteGpt2Weights(path_, Gpt2Shape(), "transformer.");
    ASSERT_TRUE(written.ok()) << written.message();
  }
  // [time, vocabulary], of the reference.
  std::vector<double> Expected(const std::vector<int32_t>& tokens) {
    const auto logits = Gpt2Logits(path_, "transformer.", Gpt2Shape(), tokens);
    EXPECT_TRUE(logits.ok()) << logits.status().message();
    return logits.value_or(std::vector<double>());
  }
  static std::unique_ptr<Session> Start(const LayoutCase& layout) {
    auto session =
        Session::Start({.devices = layout.devices, .seed = 3, .progress = Progress::kOff});
    EXPECT_TRUE(session.ok()) << session.status().message();
    return *std::move(session);
  }
  // Compiles, and loads the weights.
  absl::StatusOr<CompiledJob> Compile(Session& session, const std::function<void(Job&)>& record) {
    BRAID_ASSIGN_OR_RETURN(CompiledJob job, session.Compile("gpt", record));
    BRAID_RETURN_IF_ERROR(session.LoadWeights(path_, examples::Gpt2Weights(/*tied=*/true)));
    return job;
  }
  std::string path_;
};

void ExpectNear(const Array& actual, const std::vector<double>& expected, size_t first,
                double tolerance) {
  const Array numbers = actual.As(DType::kF64);
  ASSERT_LE(first + static_cast<size_t>(numbers.num_elements()), expected.size());
  for (int64_t i = 0; i < numbers.num_elements(); ++i) {
    ASSERT_NEAR(numbers.data<double>()[i], expected[first + i], tolerance) << i;
  }
}

Array Tokens(const std::vector<int32_t>& tokens) {
  return Array::FromVector<int32_t>({1, static_cast<int64_t>(tokens.size())}, tokens);
}

TEST_F(GptTest, Gpt2WeightsGiveGpt2Logits) {
  const std::vector<double> expected = Expected(kText);
  for (const LayoutCase& layout : kLayouts) {
    for (const auto& [dtype, tolerance] : {std::pair(DType::kF32, 1e-5), {DType::kF64, 1e-12}}) {
      SCOPED_TRACE(layout.name + " " + std::string(ToString(dtype)));
      const auto session = Start(layout);
      const GptOptions options = Model(layout.parallel, dtype);
      auto job = Compile(*session, [&](Job& job) {
        PredictGpt(job, options, static_cast<int64_t>(kText.size()));
      });
      ASSERT_TRUE(job.ok()) << job.status().message();
      const auto result = job->Run({.feeds = {{"tokens", Tokens(kText)}}});
      ASSERT_TRUE(result.ok()) << result.status().message();
      ExpectNear(result->Last("logits"), expected, 0, tolerance);
    }
  }
}

TEST_F(GptTest, WeightsGoBackIntoTheirFile) {
  const auto session = Start(kLayouts[2]);
  const auto job =
      Compile(*session, [](Job& job) { PredictGpt(job, Model(Parallel::kModel, DType::kF32), 4); });
  ASSERT_TRUE(job.ok()) << job.status().message();
  const std::string copy = TestFolder() + "/copy.safetensors";
  const absl::Status saved = session->SaveWeights(copy, examples::Gpt2Weights(/*tied=*/true));
  ASSERT_TRUE(saved.ok()) << saved.message();
  const auto logits = Gpt2Logits(copy, "transformer.", Gpt2Shape(), kText);
  ASSERT_TRUE(logits.ok()) << logits.status().message();
  EXPECT_EQ(*logits, Expected(kText));
}

// Untied weights as other programs write them: the head is [vocabulary, width], and has no prefix.
TEST_F(GptTest, AHeadOfItsOwnIsLoadedAndGoesBack) {
  GptOptions options = Model(Parallel::kData, DType::kF64);
  options.tied = false;
  const braid::WeightsOptions weights = examples::Gpt2Weights(/*tied=*/false);
  auto session = Start(kLayouts[0]);
  const auto record = [&](Job& job) {
    PredictGpt(job, options, static_cast<int64_t>(kText.size()));
  };
  auto job = session->Compile("gpt", record);
  ASSERT_TRUE(job.ok()) << job.status().message();
  EXPECT_THAT(session->LoadWeights(path_, weights).message(),
              testing::HasSubstr("lacks 1 tensors: 'lm_head.weight'"));

  // The published head beside the rest, under its usual name.
  const auto published = WeightFiles::Open(path_);
  ASSERT_TRUE(published.ok()) << published.status();
  std::vector<Array> arrays;
  std::vector<TensorBytes> tensors;
  for (const StoredTensor& tensor : published->tensors()) {
    arrays.push_back(*published->Read(tensor.name));
    tensors.push_back({tensor, arrays.back().bytes()});
    if (tensor.name != "transformer.wte.weight") continue;
    tensors.push_back({{"lm_head.weight", tensor.dtype, tensor.shape}, arrays.back().bytes()});
  }
  const std::string file = TestFolder() + "/untied.safetensors", copy = file + ".safetensors";
  std::remove(file.c_str());
  ASSERT_TRUE(WriteSafetensors(file, tensors, {}).ok());
  absl::Status status = session->LoadWeights(file, weights);
  ASSERT_TRUE(status.ok()) << status.message();
  const auto result = job->Run({.feeds = {{"tokens", Tokens(kText)}}});
  ASSERT_TRUE(result.ok()) << result.status().message();
  ExpectNear(result->Last("logits"), Expected(kText), 0, 1e-12);

  status = session->SaveWeights(copy, weights);
  ASSERT_TRUE(status.ok()) << status.message();
  const auto saved = WeightFiles::Open(copy);
  ASSERT_TRUE(saved.ok()) << saved.status();
  const StoredTensor* const head = saved->Find("lm_head.weight");
  ASSERT_NE(head, nullptr);
  EXPECT_EQ(head->shape, (Shape{options.vocabulary, options.width}));
  EXPECT_NE(saved->Find("transformer.wte.weight"), nullptr);
}

// Four tokens at once, then one a step.
TEST_F(GptTest, StepsWithACacheGiveTheLogitsOfTheWholeText) {
  const std::vector<double> expected = Expected(kText);
  for (const LayoutCase& layout : kLayouts) {
    for (const auto& [dtype, tolerance] : {std::pair(DType::kF32, 1e-5), {DType::kF64, 1e-12}}) {
      SCOPED_TRACE(layout.name + " " + std::string(ToString(dtype)));
      const auto session = Start(layout);
      const GptOptions options = Model(layout.parallel, dtype);
      const auto record = [&](int64_t time) {
        return [&options, time](Job& job) {
          OnDevices(job, options.parallel, [&] {
            const Tensor tokens = job.Input("tokens", {1, time}, DType::kI32);
            const Tensor position = job.Input("position", {}, DType::kI32);
            job.Fetch("logits", Gpt(job, tokens, options, examples::GptCache{position}));
          });
        };
      };
      auto four = Compile(*session, record(4));
      ASSERT_TRUE(four.ok()) << four.status().message();
      auto one = session->Compile("one", record(1));
      ASSERT_TRUE(one.ok()) << one.status().message();
      std::vector<Array> first_round;
      for (int round = 0; round < 2; ++round) {  // the second on what the first left in the cache
        for (size_t i = 0; i < kText.size(); i += i == 0 ? 4 : 1) {
          const std::vector<int32_t> next(kText.begin() + i, kText.begin() + i + (i == 0 ? 4 : 1));
          const Array position = Array::Scalar<int32_t>(static_cast<int32_t>(i));
          auto result = (i == 0 ? four : one)
                            ->Run({.feeds = {{"tokens", Tokens(next)}, {"position", position}}});
          ASSERT_TRUE(result.ok()) << result.status().message();
          const Array& logits = result->Last("logits");
          ExpectNear(logits, expected, i * options.vocabulary, tolerance);
          if (round == 0) {
            first_round.push_back(logits);
          } else {
            const Array& before = first_round[i == 0 ? 0 : i - 3];
            EXPECT_EQ(std::memcmp(logits.bytes(), before.bytes(), logits.num_bytes()), 0);
          }
        }
      }
    }
  }
}

class WriterTest : public GptTest {
 protected:
  std::vector<int32_t> Write(const LayoutCase& layout, examples::WriterOptions writing,
                             int64_t count, int times = 1) {
    const auto session = Start(layout);
    const GptOptions options = Model(layout.parallel, DType::kF64);
    const auto job = Compile(*session, [&](Job& job) { PredictGpt(job, options, 4); });
    EXPECT_TRUE(job.ok()) << job.status().message();
    examples::GptWriter writer(*session, options, writing);
    std::vector<int32_t> all;
    for (int i = 0; i < times; ++i) {
      const auto text = writer.Write({3, 1, 4}, count);
      EXPECT_TRUE(text.ok()) << text.status().message();
      if (text.ok()) all.insert(all.end(), text->begin(), text->end());
    }
    return all;
  }
};

TEST_F(WriterTest, WritesTheLikeliestTokenAlsoBeyondTheContext) {
  const Gpt2Shape shape;
  std::vector<int32_t> text = {3, 1, 4};
  int64_t begin = 0;  // of what the model sees
  while (text.size() < 33) {
    const auto size = static_cast<int64_t>(text.size());
    // The last token that fits has the context's last place; then half of it is a new prompt.
    if (size - begin > shape.context) begin = size - shape.context / 2;
    const std::vector<double> logits = Expected({text.begin() + begin, text.end()});
    const auto last = logits.end() - shape.vocabulary;
    text.push_back(static_cast<int32_t>(std::max_element(last, logits.end()) - last));
  }
  for (const LayoutCase& layout : kLayouts) {
    SCOPED_TRACE(layout.name);
    EXPECT_EQ(Write(layout, {.temperature = 0}, 30), std::vector(text.begin() + 3, text.end()));
  }
}

TEST_F(WriterTest, DrawsBySeedOnAnyLayout) {
  const std::vector<int32_t> drawn = Write(kLayouts[0], {.temperature = 2}, 12, 2);
  ASSERT_EQ(drawn.size(), 24u);
  EXPECT_NE(std::vector(drawn.begin(), drawn.begin() + 12),
            std::vector(drawn.begin() + 12, drawn.end()));  // every text is another one
  for (const LayoutCase& layout : kLayouts) {
    SCOPED_TRACE(layout.name);
    EXPECT_EQ(Write(layout, {.temperature = 2}, 12, 2), drawn);
  }
}

TEST_F(WriterTest, DrawsFromTheLikeliestWithTheirProbabilities) {
  const std::vector<double> logits = Expected({3, 1, 4});
  const std::vector<double> last(logits.end() - Gpt2Shape().vocabulary, logits.end());
  std::vector<int32_t> order(last.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
  std::sort(order.begin(), order.end(), [&](int a, int b) { return last[a] > last[b]; });
  constexpr int kTimes = 300;
  std::map<int32_t, int> counts;
  for (const int32_t token : Write(kLayouts[0], {.temperature = 0.8, .top_k = 3}, 1, kTimes)) {
    ++counts[token];
  }
  double sum = 0;
  for (int i = 0; i < 3; ++i) sum += std::exp(last[order[i]] / 0.8);
  int of_three = 0;
  for (int i = 0; i < 3; ++i) {
    const double p = std::exp(last[order[i]] / 0.8) / sum;
    of_three += counts[order[i]];
    EXPECT_NEAR(counts[order[i]], kTimes * p, 4.5 * std::sqrt(kTimes * p * (1 - p)) + 1);
  }
  EXPECT_EQ(of_three, kTimes);
}

TEST_F(WriterTest, AnEmptyPromptIsAnError) {
  const auto session = Start(kLayouts[0]);
  const GptOptions options = Model(Parallel::kData, DType::kF32);
  examples::GptWriter writer(*session, options, {});
  EXPECT_FALSE(writer.Write({}, 3).ok());
}

}  // namespace
}  // namespace braid
