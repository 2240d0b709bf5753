// Kernels in a row that become one when a job is loaded: with the module on the host, where the
// host's compiler stands in NVRTC's place.
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "api/file_cache.h"
#include "gtest/gtest.h"
#include "runtime/cuda/cuda_kind.h"
#include "tests/api/training_case.h"
#include "tests/cuda/module_on_host.h"

namespace braid {
namespace {

namespace fs = std::filesystem;

// A chain of drawn functions of what has come so far, which ends in one number for each row, so
// that nothing of it has to be stored.
class Chains {
 public:
  explicit Chains(Job& job, int seed) : job_(job), random_(seed) {}

  void Record(int chain) {
    const std::string name = std::to_string(chain);
    const std::vector<Shape> shapes = {{6, 8}, {6, 1}, {8}, {1}, {3, 5, 7}, {5, 1}, {7}};
    const bool is_odd = Draw(2) == 1;
    const Shape whole = is_odd ? Shape{3, 5, 7} : Shape{6, 8};
    std::vector<Tensor> values;
    for (const Shape& shape : shapes) {
      const bool fits =
          shape == whole ||
          (is_odd ? shape.rank() == 2 && shape[0] == 5 : shape.rank() == 2 && shape[0] == 6) ||
          (shape.rank() == 1 && (shape[0] == 1 || shape[0] == (is_odd ? 7 : 8)));
      if (!fits) continue;
      const std::string input = "x" + name + "_" + std::to_string(values.size());
      inputs.emplace(input, shape);
      Tensor x = job_.Input(input, shape);
      // The first has all elements; of some types, some are narrow or wide.
      const DType types[] = {DType::kF32, DType::kF32, DType::kBF16, DType::kF16, DType::kF64};
      x = Cast(x, types[Draw(5)]);
      values.push_back(x);
    }
    Tensor all = values[0];
    for (int step = 0; step < 8; ++step) {
      const Tensor other = Cast(values[Draw(static_cast<int>(values.size()))], all.dtype());
      all = Next(all, other);
      if (Draw(3) == 0) values.push_back(all);
      if (Draw(4) == 0) all = Cast(all, Draw(2) == 0 ? DType::kF32 : DType::kBF16);
    }
    // So that none is without a reader.
    for (size_t i = 1; i < values.size(); ++i) all = all + Cast(values[i], all.dtype());
    fetches.push_back("y" + name);
    job_.Fetch(fetches.back(),
               ReduceSum(Cast(all, DType::kF32), {.axes = std::vector<int64_t>{-1}}));
    if (Draw(2) == 0) return;
    fetches.push_back("z" + name);
    job_.Fetch(fetches.back(), Cast(all, DType::kF64));
  }

  std::map<std::string, Shape> inputs;
  std::vector<std::string> fetches;

 private:
  int Draw(int below) { return std::uniform_int_distribution<int>(0, below - 1)(random_); }

  Tensor Next(Tensor x, Tensor other) {
    switch (Draw(12)) {
      case 0:
        return x + other;
      case 1:
        return x * other;
      case 2:
        return x - other;
      case 3:
        return Tanh(x);
      case 4:
        return Silu(x);
      case 5:
        return Maximum(x, other);
      case 6:
        return x * 0.75;
      case 7:
        return Gelu(x);
      case 8:
        return Where(Less(x, other), x, x * x);
      case 9:
        return Cast(Cast(x * 10.0, DType::kI32) + Cast(other, DType::kI32), x.dtype()) * 0.01;
      case 10:
        return Where(LogicalOr(IsNan(x), Greater(x, x * 2.0)), Sin(x), x);
      default:
        return Sigmoid(x) + 0.5;
    }
  }

  Job& job_;
  std::mt19937 random_;
};

// What a session with the kind fetches of the chains of a seed.
struct Result {
  std::vector<std::pair<std::string, Array>> fetched;
  int64_t launches = 0, compiled = 0;
};

class CudaFusionTest : public testing::Test {
 protected:
  void SetUp() override {
    if (std::getenv("BRAID_TEST_DEVICE") != nullptr) GTEST_SKIP() << "it counts what a fake does";
    setenv("BRAID_FAKE_NVRTC", "1", 1);
    unsetenv("BRAID_FAKE_NVRTC_FAILS");
  }
  void TearDown() override {
    unsetenv("BRAID_FAKE_NVRTC");
    unsetenv("BRAID_FAKE_NVRTC_FAILS");
  }

  SessionOptions Options(bool fuses) {
    const auto cuda = std::make_shared<cuda::CudaOptions>();
    cuda->module = ModuleOnHost();
    cuda->card = 0;
    cuda->fuses_kernels = fuses;
    const FileCache cache(cache_folder_, "cuda");
    cuda->cache.read = [cache](const std::string& key) { return cache.Read(key); };
    cuda->cache.keep = [cache](const std::string& key, const std::string& code) {
      cache.Keep(key, code);
    };
    SessionOptions options;
    EXPECT_TRUE(options.device_kinds.Register("cuda", cuda::CudaKind(cuda)).ok());
    options.node_kinds = {"cuda"};
    options.devices = {1};
    options.seed = 1;
    options.progress = Progress::kOff;
    return options;
  }

  Result Run(SessionOptions options, int seed) {
    Result result;
    const int64_t launches = CountedOnHost("BraidFakeProgramLaunches");
    const int64_t compiled = CountedOnHost("BraidFakeProgramsCompiled");
    const auto session = Session::Start(std::move(options));
    EXPECT_TRUE(session.ok()) << session.status().message();
    if (!session.ok()) return result;
    std::map<std::string, Shape> inputs;
    std::vector<std::string> fetches;
    auto job = (*session)->Compile("chains", [&](Job& job) {
      Chains chains(job, seed);
      for (int chain = 0; chain < kChains; ++chain) chains.Record(chain);
      inputs = std::move(chains.inputs);
      fetches = std::move(chains.fetches);
    });
    EXPECT_TRUE(job.ok()) << job.status().message();
    if (!job.ok()) return result;
    result.compiled = CountedOnHost("BraidFakeProgramsCompiled") - compiled;
    std::mt19937 random(seed);
    std::vector<std::pair<std::string, Array>> feeds;
    for (const auto& [name, shape] : inputs) {
      std::vector<float> values(shape.num_elements());
      for (float& value : values) value = std::uniform_real_distribution<float>(-2, 2)(random);
      feeds.emplace_back(name, Array::FromVector<float>(shape, values));
    }
    // Three acts: as they are, captured, and launched at once.
    const auto run = job->Run({.steps = 3, .feeds = feeds});
    EXPECT_TRUE(run.ok()) << run.status().message();
    if (!run.ok()) return result;
    for (const std::string& name : fetches) {
      for (const Array& value : run->Values(name)) result.fetched.emplace_back(name, value);
    }
    result.launches = CountedOnHost("BraidFakeProgramLaunches") - launches;
    EXPECT_EQ(CountedOnHost("BraidFakeProgramsCompiled") - compiled, result.compiled)
        << "all when the job is loaded";
    return result;
  }

  static void ExpectSameBits(const Result& a, const Result& b) {
    ASSERT_EQ(a.fetched.size(), b.fetched.size());
    ASSERT_GE(a.fetched.size(), 3u * kChains);
    for (size_t i = 0; i < a.fetched.size(); ++i) {
      const Array &x = a.fetched[i].second, &y = b.fetched[i].second;
      ASSERT_EQ(x.shape(), y.shape());
      EXPECT_EQ(std::memcmp(x.bytes(), y.bytes(), x.num_bytes()), 0) << a.fetched[i].first;
    }
  }

  static constexpr int kChains = 40;
  std::string cache_folder_;
};

TEST_F(CudaFusionTest, GivesTheBitsOfKernelsByThemselves) {
  for (const int seed : {1, 2}) {
    const Result each = Run(Options(false), seed), fused = Run(Options(true), seed);
    ExpectSameBits(fused, each);
    EXPECT_EQ(each.launches, 0);
    EXPECT_GE(fused.launches, kChains);
    EXPECT_EQ(fused.compiled, 1) << "of a job";
  }
}

TEST_F(CudaFusionTest, WhatWasCompiledIsKept) {
  cache_folder_ = TestFolder() + "/programs/below";
  const Result first = Run(Options(true), 3), again = Run(Options(true), 3);
  EXPECT_EQ(first.compiled, 1);
  EXPECT_EQ(again.compiled, 0);
  ExpectSameBits(first, again);
  // What is damaged is compiled again.
  for (const auto& file : fs::directory_iterator(cache_folder_)) {
    std::fstream(file.path(), std::ios::in | std::ios::out | std::ios::binary).seekp(5000) << "x!";
  }
  const Result last = Run(Options(true), 3);
  EXPECT_EQ(last.compiled, 1);
  ExpectSameBits(first, last);
}

// Without a compiler, or with one that fails, kernels run by themselves.
TEST_F(CudaFusionTest, KernelsRunByThemselvesIfTheyMust) {
  const Result each = Run(Options(false), 4);
  for (const char* failure : {"1", "2"}) {
    setenv("BRAID_FAKE_NVRTC_FAILS", failure, 1);
    const Result run = Run(Options(true), 4);
    EXPECT_EQ(run.launches, 0);
    ExpectSameBits(run, each);
  }
  setenv("BRAID_FAKE_NVRTC", "0", 1);
  const Result run = Run(Options(true), 4);
  EXPECT_EQ(run.compiled, 0);
  ExpectSameBits(run, each);
}

// A model that trains, in bf16, where casts stand between products: with the same losses.
TEST_F(CudaFusionTest, TrainsAsKernelsByThemselvesDo) {
  const std::string text = MakeTextFile();
  std::vector<double> losses[2];
  for (const bool fuses : {false, true}) {
    TrainingOptions options{.layout = {.name = "one"}, .steps = 3};
    SessionOptions session = Options(fuses);
    options.device_kinds = session.device_kinds;
    options.node_kinds = session.node_kinds;
    options.precision = DType::kBF16;
    const int64_t before = CountedOnHost("BraidFakeProgramLaunches");
    const auto run = RunTraining(options, [&](Job& job) {
      examples::TrainGpt(job, SmallGpt(examples::Parallel::kData, DType::kF32, text));
    });
    ASSERT_TRUE(run.ok()) << run.status().message();
    losses[fuses ? 1 : 0] = run->losses;
    EXPECT_EQ(CountedOnHost("BraidFakeProgramLaunches") > before, fuses);
  }
  EXPECT_EQ(losses[0], losses[1]);
}

}  // namespace
}  // namespace braid
