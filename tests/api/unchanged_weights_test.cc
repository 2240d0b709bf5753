// Kernels are told when a variable still holds what they saw of it last, and not when it does not:
// then what was made of it, packed weights for instance, is made anew.

#include <braid/braid.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace braid {
namespace {

using testing::ElementsAre;

// By operator: in each run of its kernel, whether its second input, the variable, was said to be
// unchanged.
using Heard = std::map<std::string, std::vector<bool>>;

class ListeningKernel final : public Kernel {
 public:
  ListeningKernel(std::unique_ptr<Kernel> kernel, std::vector<bool>* heard)
      : kernel_(std::move(kernel)), heard_(heard) {}
  absl::Status Run(const KernelRun& run) override {
    heard_->push_back((run.unchanged_inputs & 2) != 0);
    return kernel_->Run(run);
  }

 private:
  const std::unique_ptr<Kernel> kernel_;
  std::vector<bool>* const heard_;
};

constexpr int64_t kRows = 4, kColumns = 3;

std::unique_ptr<Session> StartOrDie() {
  auto session = Session::Start({.devices = {1}, .progress = Progress::kOff});
  EXPECT_TRUE(session.ok()) << session.status();
  return *std::move(session);
}

// A session whose products tell what they hear.
std::unique_ptr<Session> Listening(Heard& heard) {
  std::unique_ptr<Session> session = StartOrDie();
  session->kernels().WrapAll([&heard](const KernelSpec& spec, std::unique_ptr<Kernel> kernel) {
    if (spec.op != "matmul") return kernel;
    kernel = std::make_unique<ListeningKernel>(std::move(kernel), &heard[spec.name]);
    return kernel;
  });
  return session;
}

// x w, named by the scope.
Tensor Product(Job& job, std::string_view scope) {
  const Tensor x = job.Input("x", {kRows, kColumns});
  const Tensor w =
      Variable(job.graph(), {.name = "w", .shape = {kColumns, kColumns}, .init = "ones"});
  job.graph().PushScope(scope);
  const Tensor y = MatMul(x, w);
  job.graph().PopScope();
  return y;
}

TEST(UnchangedWeightsTest, UntilSomebodyWrites) {
  Heard heard;
  const auto session = Listening(heard);
  auto infer = session->Compile("infer", [](Job& job) { job.Fetch("y", Product(job, "infer")); });
  ASSERT_TRUE(infer.ok()) << infer.status();
  auto train = session->Compile(
      "train", [](Job& job) { job.Minimize(Mean(Product(job, "train")), Sgd{.lr = 1}); });
  ASSERT_TRUE(train.ok()) << train.status();
  const Array x = Array::FromVector({kRows, kColumns}, std::vector<float>(kRows * kColumns, 12));
  const auto run = [&](CompiledJob& job, int64_t steps) {
    const auto result = job.Run({.steps = steps, .feeds = {{"x", x}}});
    ASSERT_TRUE(result.ok()) << result.status();
  };
  run(*infer, 2);
  run(*infer, 1);
  EXPECT_THAT(heard["infer.matmul"], ElementsAre(false, true, true));
  run(*train, 2);  // writes after each of its steps
  run(*infer, 2);
  EXPECT_THAT(heard["train.matmul"], ElementsAre(false, false));
  EXPECT_THAT(heard["infer.matmul"], ElementsAre(false, true, true, false, true));
  ASSERT_EQ(session->Set("w", Array(DType::kF32, {kColumns, kColumns})), absl::OkStatus());
  run(*infer, 2);
  EXPECT_THAT(heard["infer.matmul"], ElementsAre(false, true, true, false, true, false, true));
  ASSERT_TRUE(session->Get("w").ok());  // reads
  run(*infer, 1);
  EXPECT_TRUE(heard["infer.matmul"].back());
}

TEST(UnchangedWeightsTest, BetweenTheMicroBatchesOfAStep) {
  Heard heard;
  const auto session = Listening(heard);
  auto train = session->Compile("train", [](Job& job) {
    job.Minimize(Mean(Product(job, "train")), Sgd{.lr = 1}, {.micro_batches = 4});
  });
  ASSERT_TRUE(train.ok()) << train.status();
  const Array x = Array::FromVector({kRows, kColumns}, std::vector<float>(kRows * kColumns, 12));
  const auto result = train->Run({.steps = 2, .feeds = {{"x", x}}});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(heard["train.matmul"], ElementsAre(false, true, true, true, false, true, true, true));
}

// Convolutions keep their weights as their loops want them.
TEST(UnchangedWeightsTest, ConvolutionsSeeWhatTrainingWrote) {
  constexpr int64_t kChannels = 32, kSide = 6;
  const Shape images = {2, kChannels, kSide, kSide};
  std::vector<float> numbers(images.num_elements());
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i * 37 % 101) / 101;
  const Array x = Array::FromVector(images, numbers);
  const auto net = [&](Job& job) {
    const Tensor w = Variable(
        job.graph(),
        {.name = "w", .shape = {kChannels, kChannels, 3, 3}, .init = "normal", .stddev = 0.1});
    return Conv(job.Input("x", images), w, {.padding = {1, 1}});
  };
  const auto infer = [&](Session& session) {
    return session.Compile("infer", [&](Job& job) { job.Fetch("y", net(job)); });
  };
  const auto run = [&](CompiledJob& job) {
    const auto result = job.Run({.feeds = {{"x", x}}});
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? result->Last("y") : Array();
  };
  const auto session = StartOrDie();
  auto job = infer(*session);
  ASSERT_TRUE(job.ok()) << job.status();
  auto train = session->Compile(
      "train", [&](Job& job) { job.Minimize(Mean(Square(net(job))), Sgd{.lr = 10}); });
  ASSERT_TRUE(train.ok()) << train.status();
  const Array first = run(*job), again = run(*job);
  EXPECT_TRUE(std::ranges::equal(first.data<float>(), again.data<float>()));
  ASSERT_TRUE(train->Run({.steps = 3, .feeds = {{"x", x}}}).ok());
  const Array after = run(*job);
  EXPECT_FALSE(std::ranges::equal(first.data<float>(), after.data<float>()));
  // A session that never saw other weights.
  const auto w = session->Get("w");
  ASSERT_TRUE(w.ok()) << w.status();
  const auto fresh = StartOrDie();
  auto fresh_job = infer(*fresh);
  ASSERT_TRUE(fresh_job.ok()) << fresh_job.status();
  ASSERT_EQ(fresh->Set("w", *w), absl::OkStatus());
  EXPECT_TRUE(std::ranges::equal(run(*fresh_job).data<float>(), after.data<float>()));
}

// How often the kernels of each name have run.
using Runs = std::map<std::string, int>;

class CountingKernel final : public Kernel {
 public:
  CountingKernel(std::unique_ptr<Kernel> kernel, int* runs)
      : kernel_(std::move(kernel)), runs_(runs) {}
  absl::Status Run(const KernelRun& run) override {
    ++*runs_;
    return kernel_->Run(run);
  }

 private:
  const std::unique_ptr<Kernel> kernel_;
  int* const runs_;
};

// Numbers of 4 bits, two in a byte, and a scale for each 32 of them.
TEST(UnchangedWeightsTest, WeightsOfFewBitsAreMadeRealOnce) {
  Runs runs;
  const auto session = StartOrDie();
  session->kernels().WrapAll([&runs](const KernelSpec& spec, std::unique_ptr<Kernel> kernel) {
    kernel = std::make_unique<CountingKernel>(std::move(kernel), &runs[spec.name]);
    return kernel;
  });
  constexpr int64_t kWide = 1024;  // so that all is larger than what is kept anyway
  auto job = session->Compile("infer", [&](Job& job) {
    const Tensor packed =
        Variable(job.graph(), {.name = "w", .dtype = DType::kU8, .shape = {kWide, kWide / 2, 1}});
    const Tensor scales = Variable(job.graph(), {.name = "s", .shape = {kWide, kWide / 32, 1}});
    const Tensor x = job.Input("x", {kRows, kWide});
    job.graph().PushScope("net");
    const Tensor places = Literal(job.graph(), {DType::kI32, {2}}, {0, 4});
    const Tensor mask = Constant(job.graph(), 15, {.dtype = DType::kI32});
    const Tensor numbers = BitwiseAnd(ShiftRight(Cast(packed, DType::kI32), places), mask);
    const Tensor blocks = Reshape(Cast(numbers, DType::kF32), {kWide, kWide / 32, 32});
    const Tensor reals = Mul(blocks, RepeatInterleave(scales, 32, 2));
    const Tensor y = MatMul(x, Reshape(reals, {kWide, kWide}), {.transpose_b = true});
    job.graph().PopScope();
    job.Fetch("y", y);
  });
  ASSERT_TRUE(job.ok()) << job.status();
  const std::vector<uint8_t> bytes(kWide * kWide / 2, 0x21);  // 1, 2, 1, 2, ...
  const std::vector<float> halves(kWide * kWide / 32, 0.5f);
  ASSERT_EQ(session->Set("w", Array::FromVector<uint8_t>({kWide, kWide / 2, 1}, bytes)),
            absl::OkStatus());
  ASSERT_EQ(session->Set("s", Array::FromVector<float>({kWide, kWide / 32, 1}, halves)),
            absl::OkStatus());
  const Array x = Array::FromVector(Shape({kRows, kWide}), std::vector<float>(kRows * kWide, 1));
  for (int i = 0; i < 3; ++i) {
    const auto result = job->Run({.feeds = {{"x", x}}});
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->Last("y").data<float>()[0], 0.75f * kWide);
  }
  EXPECT_EQ(runs["net.mul"], 1);
  for (const auto& [name, count] : runs) {
    if (!name.starts_with("net.")) continue;
    EXPECT_EQ(count, name == "net.matmul" ? 3 : 1) << name;
  }
}

// What depends on variables alone is computed when one has changed.
TEST(UnchangedWeightsTest, ResultsAreKeptUntilSomebodyWrites) {
  Runs runs;
  const auto session = StartOrDie();
  session->kernels().WrapAll([&runs](const KernelSpec& spec, std::unique_ptr<Kernel> kernel) {
    kernel = std::make_unique<CountingKernel>(std::move(kernel), &runs[spec.name]);
    return kernel;
  });
  const auto net = [](Job& job, std::string_view scope) {
    const Tensor x = job.Input("x", {kRows, kColumns});
    const Tensor w =
        Variable(job.graph(), {.name = "w", .shape = {kColumns, kColumns}, .init = "ones"});
    job.graph().PushScope(scope);
    const Tensor y = MatMul(x, Transpose(Scale(w, 2), {1, 0}));
    job.graph().PopScope();
    return y;
  };
  auto infer = session->Compile("infer", [&](Job& job) { job.Fetch("y", net(job, "infer")); });
  ASSERT_TRUE(infer.ok()) << infer.status();
  auto train = session->Compile(
      "train", [&](Job& job) { job.Minimize(Mean(net(job, "train")), Sgd{.lr = 1}); });
  ASSERT_TRUE(train.ok()) << train.status();
  const Array x = Array::FromVector({kRows, kColumns}, std::vector<float>(kRows * kColumns, 1));
  float last = 0;
  const auto run = [&](CompiledJob& job, int64_t steps) {
    const auto result = job.Run({.steps = steps, .feeds = {{"x", x}}});
    ASSERT_TRUE(result.ok()) << result.status();
    if (&job == &*infer) last = result->Last("y").data<float>()[0];
  };
  run(*infer, 3);
  EXPECT_EQ(last, 2 * kColumns);
  EXPECT_EQ(runs["infer.scale"], 1);
  EXPECT_EQ(runs["infer.transpose"], 1);
  EXPECT_EQ(runs["infer.matmul"], 3);
  run(*train, 2);  // works in the same arena
  EXPECT_EQ(runs["train.scale"], 2);
  run(*infer, 2);
  EXPECT_EQ(runs["infer.scale"], 2);
  EXPECT_LT(last, 2 * kColumns);
  ASSERT_EQ(session->Set("w", Array(DType::kF32, {kColumns, kColumns})), absl::OkStatus());
  run(*infer, 2);
  EXPECT_EQ(last, 0);
  EXPECT_EQ(runs["infer.scale"], 3);
  EXPECT_EQ(runs["infer.transpose"], 3);
  EXPECT_EQ(runs["infer.matmul"], 7);
}

// What each job keeps counts for those that are loaded later.
TEST(UnchangedWeightsTest, KeptResultsHaveToFit) {
  constexpr int64_t kSide = 512, kBytes = kSide * kSide * 4;
  auto session = Session::Start(
      {.devices = {1}, .progress = Progress::kOff, .device_memory_bytes = kBytes * 7 / 2});
  ASSERT_TRUE(session.ok()) << session.status();
  const auto compile = [&](const std::string& name) {
    return (*session)->Compile(name, [](Job& job) {
      const Tensor w = Variable(job.graph(), {.name = "w", .shape = {kSide, kSide}});
      job.Fetch("y", Sum(job.Input("x", {kSide}) * Scale(w, 2)));
    });
  };
  const auto first = compile("first"), second = compile("second");
  ASSERT_TRUE(first.ok() && second.ok()) << first.status() << second.status();
  EXPECT_THAT(first->Explain(), testing::HasSubstr(" kept"));
  EXPECT_THAT(second->Explain(), testing::Not(testing::HasSubstr(" kept")));
}

// Norms by running statistics are part of the convolutions' weights, where these are trained on.
TEST(UnchangedWeightsTest, NormsAreFoldedIntoWhatTrainingWrote) {
  constexpr int64_t kChannels = 6, kSide = 5;
  const Shape images = {2, kChannels, kSide, kSide};
  std::vector<float> numbers(images.num_elements());
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i * 37 % 101) / 101;
  const Array x = Array::FromVector(images, numbers);
  const auto session = StartOrDie();
  // Fetched, what lies between stays.
  const auto compile = [&](const std::string& name, bool may_fold, bool trains) {
    return session->Compile(name, [=](Job& job) {
      Tensor y = ConvLayer(job.Input("x", images), kChannels, {.name = "conv", .padding = {1, 1}});
      if (!may_fold) job.Fetch("between", y);
      y = Relu(BatchNormLayer(y, {.name = "norm"}));
      if (trains) {
        job.Minimize(Mean(Square(AddScalar(y, -1))), Sgd{.lr = 0.1});
      } else {
        job.Fetch("y", y);
      }
    });
  };
  auto folded = compile("folded", true, false), plain = compile("plain", false, false);
  auto train = compile("train", true, true);
  ASSERT_TRUE(folded.ok() && plain.ok() && train.ok())
      << folded.status() << plain.status() << train.status();
  EXPECT_THAT(folded->Explain(), testing::Not(testing::HasSubstr("= batch_norm ")));
  EXPECT_THAT(plain->Explain(), testing::HasSubstr("= batch_norm "));
  const auto run = [&](CompiledJob& job) {
    const auto result = job.Run({.feeds = {{"x", x}}});
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? result->Last("y") : Array();
  };
  Array before;
  for (int round = 0; round < 3; ++round) {
    const Array y = run(*folded), expected = run(*plain);
    ASSERT_EQ(y.num_elements(), expected.num_elements());
    for (int64_t i = 0; i < y.num_elements(); ++i) {
      ASSERT_NEAR(y.data<float>()[i], expected.data<float>()[i], 2e-6) << i;
    }
    if (round > 0) {
      EXPECT_FALSE(std::ranges::equal(y.data<float>(), before.data<float>()));
    }
    before = y;
    ASSERT_TRUE(train->Run({.steps = 2, .feeds = {{"x", x}}}).ok());
  }
}

}  // namespace
}  // namespace braid
