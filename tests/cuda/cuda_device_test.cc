// Cards as devices of sessions: the numbers of CPUs. Without BRAID_TEST_DEVICE they are those of
// module_on_host.cc, whose kernels run on the host, later than they are queued.
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "glog/logging.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/cuda/cuda_kind.h"
#include "tests/api/training_case.h"
#include "tests/cuda/module_on_host.h"

namespace braid {
namespace {

using examples::Parallel;
using testing::HasSubstr;

// `card` has all devices of a node; -1: each has a card.
DeviceKinds KindsWithCuda(bool uses_graphs = true, int card = 0) {
  const auto options = std::make_shared<cuda::CudaOptions>();
  options->card = card;
  options->uses_graphs = uses_graphs;
  if (std::getenv("BRAID_TEST_DEVICE") == nullptr) options->module = ModuleOnHost();
  DeviceKinds kinds;
  EXPECT_TRUE(kinds.Register("cuda", cuda::CudaKind(options)).ok());
  return kinds;
}

SessionOptions OnCuda(std::vector<int> devices) {
  SessionOptions options;
  options.node_kinds.assign(devices.size(), "cuda");
  options.devices = std::move(devices);
  options.device_kinds = KindsWithCuda();
  options.seed = 1;
  options.progress = Progress::kOff;
  return options;
}

// All layouts; where kernels run on the host, which takes long, one device, and of each parallelism
// the widest layout on two nodes and one whose devices are all on one.
std::vector<LayoutCase> Layouts() {
  if (std::getenv("BRAID_TEST_DEVICE") != nullptr) return LayoutCases();
  std::vector<LayoutCase> chosen = {LayoutCases().front()};
  std::map<Parallel, LayoutCase> widest;
  for (const LayoutCase& layout : LayoutCases()) {
    if (layout.devices.size() == 2) widest[layout.parallel] = layout;
    if (layout.devices == std::vector<int>{4}) chosen.push_back(layout);
  }
  for (const auto& [parallel, layout] : widest) chosen.push_back(layout);
  return chosen;
}

void ExpectNear(const std::vector<double>& losses, const std::vector<double>& of_cpus) {
  ASSERT_EQ(losses.size(), of_cpus.size());
  for (size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], of_cpus[i], 1e-9);
}

// On cards alone, and with CPUs as every second node.
void ExpectTheNumbersOfCpus(const std::function<void(Job&, const LayoutCase&)>& record) {
  for (const LayoutCase& layout : Layouts()) {
    TrainingOptions options{.layout = layout, .steps = 3, .wants_variables = true};
    const auto train = [&] { return RunTraining(options, [&](Job& job) { record(job, layout); }); };
    const auto reference = train();
    ASSERT_TRUE(reference.ok()) << reference.status().message();
    for (const bool is_mixed : {false, true}) {
      if (is_mixed && layout.devices.size() < 2) continue;
      SCOPED_TRACE(layout.name + (is_mixed ? ", mixed" : ""));
      options.device_kinds = KindsWithCuda();
      options.node_kinds.clear();
      for (size_t node = 0; node < layout.devices.size(); ++node) {
        options.node_kinds.push_back(is_mixed && node % 2 == 1 ? "cpu" : "cuda");
      }
      const auto run = train();
      ASSERT_TRUE(run.ok()) << run.status().message();
      ExpectNear(run->losses, reference->losses);
    }
  }
}

TEST(CudaDeviceTest, MnistHasTheNumbersOfCpus) {
  for (const int micro_batches : {1, 4}) {
    ExpectTheNumbersOfCpus([=](Job& job, const LayoutCase& layout) {
      examples::MnistOptions options = SmallMnist(layout.parallel, DType::kF64);
      options.dropout = 0.2;
      options.micro_batches = micro_batches;
      examples::TrainMnist(job, options);
    });
  }
}

TEST(CudaDeviceTest, GptHasTheNumbersOfCpus) {
  const std::string text = MakeTextFile();
  ExpectTheNumbersOfCpus([text](Job& job, const LayoutCase& layout) {
    examples::TrainGpt(job, SmallGpt(layout.parallel, DType::kF64, text));
  });
}

// Each device has a card, and these see each other's memory or do not.
TEST(CudaDeviceTest, CardsOfOneNodeHaveTheNumbersOfCpus) {
  if (std::getenv("BRAID_TEST_DEVICE") != nullptr) GTEST_SKIP() << "it takes four cards";
  const std::string text = MakeTextFile();
  setenv("BRAID_FAKE_CARDS", "4", 1);
  for (const LayoutCase& layout : LayoutCases()) {
    if (layout.devices != std::vector<int>{4}) continue;
    TrainingOptions options{.layout = layout, .steps = 3};
    const auto train = [&] {
      return RunTraining(options, [&](Job& job) {
        examples::TrainGpt(job, SmallGpt(layout.parallel, DType::kF64, text));
      });
    };
    const auto reference = train();
    ASSERT_TRUE(reference.ok()) << reference.status().message();
    options.node_kinds = {"cuda"};
    for (const char* reach : {"1", "0"}) {
      SCOPED_TRACE(layout.name + ", reach " + reach);
      setenv("BRAID_FAKE_REACH", reach, 1);
      options.device_kinds = KindsWithCuda(/*uses_graphs=*/true, /*card=*/-1);
      const auto run = train();
      ASSERT_TRUE(run.ok()) << run.status().message();
      ExpectNear(run->losses, reference->losses);
    }
  }
  unsetenv("BRAID_FAKE_REACH");
  unsetenv("BRAID_FAKE_CARDS");
}

// Collectives of some of a node's devices and of all of them, in a pipeline of micro-batches, in
// whatever order each device comes to them.
TEST(CudaDeviceTest, CollectivesOfOverlappingLists) {
  const examples::MnistOptions mnist = SmallMnist(Parallel::kModel, DType::kF64);
  const auto record = [&](Job& job) {
    // Columns, then rows: a sum over the devices.
    const auto block = [&](Tensor x, const std::string& name) {
      x = Relu(Linear(x, 24, {.name = name + ".in", .weight = sbp::S(1)}));
      return Relu(Linear(x, 24, {.name = name + ".out", .weight = sbp::S(0)}));
    };
    auto [x, label] = job.Read(
        mnist.train, {.batch = 24, .shuffle = true, .name = "train", .dtype = DType::kF64});
    Tensor y = x;
    for (const int count : {2, 4, 3}) {
      y = job.On(job.devices().Slice(count == 2 ? 1 : 0, count),
                 [&] { return block(y, "block" + std::to_string(count)); });
    }
    const Tensor loss = Mean(SoftmaxCrossEntropy(Linear(y, 10, {.name = "out"}), label));
    job.Minimize(loss, Adam{.lr = 0.01}, {.micro_batches = 4});
    job.Fetch("loss", loss);
  };
  TrainingOptions options{.layout = {.name = "lists", .devices = {4}}, .steps = 6};
  const auto reference = RunTraining(options, record);
  ASSERT_TRUE(reference.ok()) << reference.status().message();
  options.node_kinds = {"cuda"};
  options.device_kinds = KindsWithCuda();
  const auto run = RunTraining(options, record);
  ASSERT_TRUE(run.ok()) << run.status().message();
  ExpectNear(run->losses, reference->losses);
}

// What lies between products is narrow on cards, which it is not on CPUs: their steps stay as near
// to those in f32 as narrow numbers are to wide ones.
TEST(CudaDeviceTest, NarrowProductsStayNearWideOnes) {
  const std::string text = MakeTextFile();
  for (const LayoutCase& layout : Layouts()) {
    TrainingOptions options{.layout = layout, .steps = 6};
    const auto train = [&] {
      return RunTraining(options, [&](Job& job) {
        examples::TrainGpt(job, SmallGpt(layout.parallel, DType::kF32, text));
      });
    };
    const auto wide = train();
    ASSERT_TRUE(wide.ok()) << wide.status().message();
    // They have come further than they may be apart.
    ASSERT_GT(wide->losses.front() - wide->losses.back(), 0.02 * wide->losses.back());
    options.device_kinds = KindsWithCuda();
    options.node_kinds.assign(layout.devices.size(), "cuda");
    for (const DType precision : {DType::kBF16, DType::kF16}) {
      SCOPED_TRACE(layout.name + " " + std::string(ToString(precision)));
      options.precision = precision;
      const auto narrow = train();
      ASSERT_TRUE(narrow.ok()) << narrow.status().message();
      ASSERT_EQ(narrow->losses.size(), wide->losses.size());
      for (size_t i = 0; i < wide->losses.size(); ++i) {
        EXPECT_NEAR(narrow->losses[i], wide->losses[i], 0.005 * wide->losses[i]);
      }
    }
  }
}

// In f32 and f64 channels stay second, in narrow types they are last, and norms and pooling hand on
// what is narrow.
TEST(CudaDeviceTest, ImagesTrainAsOnCpus) {
  struct Precision {
    DType dtype, products;
    double tolerance;
  };
  for (const std::vector<int>& devices : {std::vector<int>{1}, {2}, {2, 1}}) {
    for (const int micro_batches : {1, 2}) {
      for (const Precision& precision :
           {Precision{DType::kF64, DType::kF32, 1e-9}, Precision{DType::kF32, DType::kBF16, 0.05},
            Precision{DType::kF32, DType::kF16, 0.01}}) {
        const DType dtype = precision.dtype, products = precision.products;
        const double tolerance = precision.tolerance;
        SCOPED_TRACE(testing::Message() << devices.size() << " nodes, " << ToString(dtype)
                                        << " and " << ToString(products) << ", " << micro_batches);
        TrainingOptions options{.layout = {.name = "images", .devices = devices}, .steps = 6};
        const auto train = [&] {
          return RunTraining(options,
                             [&](Job& job) { TrainSmallImages(job, dtype, micro_batches); });
        };
        const auto reference = train();
        ASSERT_TRUE(reference.ok()) << reference.status().message();
        options.device_kinds = KindsWithCuda();
        options.node_kinds.assign(devices.size(), "cuda");
        options.precision = products;
        const auto run = train();
        ASSERT_TRUE(run.ok()) << run.status().message();
        ASSERT_EQ(run->losses.size(), reference->losses.size());
        for (size_t i = 0; i < run->losses.size(); ++i) {
          EXPECT_NEAR(run->losses[i], reference->losses[i], tolerance * reference->losses[i]);
        }
      }
    }
  }
}

// What a plan does with images in narrow types: convolutions are given, and make, narrow tensors
// with the channels last; only their weights, which are f32, and the images that come in are cast.
TEST(CudaDeviceTest, NarrowImagesHaveChannelsLast) {
  SessionOptions options = OnCuda({1});
  options.precision = DType::kBF16;
  const auto session = Session::Start(std::move(options));
  ASSERT_TRUE(session.ok()) << session.status().message();
  const auto job =
      (*session)->Compile("train", [](Job& job) { TrainSmallImages(job, DType::kF32, 1); });
  ASSERT_TRUE(job.ok()) << job.status().message();
  const std::string plan = job->Explain();
  EXPECT_THAT(plan, HasSubstr("channel_block=-1"));
  int found = 0;
  for (const absl::string_view line : absl::StrSplit(plan, '\n')) {
    const bool is_one = absl::StrContains(line, "= conv \"") ||
                        absl::StrContains(line, "= conv_input_grad \"") ||
                        absl::StrContains(line, "= batch_norm \"") ||
                        absl::StrContains(line, "= batch_norm_dx \"") ||
                        absl::StrContains(line, "= max_pool_grad \"");
    if (!is_one) continue;
    ++found;
    EXPECT_THAT(std::string(line),
                testing::AllOf(HasSubstr(":bf16[12, 1, "), HasSubstr(", 8] = ")));
  }
  EXPECT_EQ(found, 3 + 2 + 3 + 3 + 1);
}

// So far; 0 with a real module.
int64_t GraphLaunches() { return CountedOnHost("BraidFakeGraphLaunches"); }
int64_t NcclCollectives() { return CountedOnHost("BraidFakeNcclCollectives"); }

// Where all nodes have NCCL, what their cards reduce and gather together goes by it, with the
// numbers of CPUs.
TEST(CudaDeviceTest, CardsOfSeveralNodesCollectByNccl) {
  if (std::getenv("BRAID_TEST_DEVICE") != nullptr) GTEST_SKIP() << "it takes several machines";
  const std::string text = MakeTextFile();
  setenv("BRAID_FAKE_CARDS", "4", 1);
  setenv("BRAID_FAKE_APART", "1", 1);
  for (const LayoutCase& layout : LayoutCases()) {
    if (layout.devices.size() < 2 || layout.devices.size() == 4) continue;
    TrainingOptions options{.layout = layout, .steps = 3};
    const auto train = [&] {
      return RunTraining(options, [&](Job& job) {
        examples::TrainGpt(job, SmallGpt(layout.parallel, DType::kF64, text));
      });
    };
    const auto reference = train();
    ASSERT_TRUE(reference.ok()) << reference.status().message();
    options.node_kinds.assign(layout.devices.size(), "cuda");
    for (const char* version : {"22809", "0"}) {
      SCOPED_TRACE(layout.name + ", NCCL " + version);
      setenv("BRAID_FAKE_NCCL", version, 1);
      options.device_kinds = KindsWithCuda(/*uses_graphs=*/true, /*card=*/-1);
      const int64_t before = NcclCollectives();
      const auto run = train();
      ASSERT_TRUE(run.ok()) << run.status().message();
      ExpectNear(run->losses, reference->losses);
      const bool reduces = layout.parallel != Parallel::kPipeline;
      EXPECT_EQ(NcclCollectives() > before, reduces && std::string(version) != "0");
    }
  }
  // A member that NCCL loses is the cause of the end, on all nodes and in the words of NCCL.
  setenv("BRAID_FAKE_NCCL", "22809", 1);
  setenv("BRAID_FAKE_NCCL_FAILS", "5", 1);
  TrainingOptions options{.layout = {.name = "lost", .devices = {2, 2}}, .steps = 30};
  options.node_kinds = {"cuda", "cuda"};
  options.device_kinds = KindsWithCuda(/*uses_graphs=*/true, /*card=*/-1);
  const auto run = RunTraining(options, [&](Job& job) {
    examples::TrainMnist(job, SmallMnist(Parallel::kData, DType::kF32));
  });
  EXPECT_THAT(std::string(run.status().message()), HasSubstr("NCCL says of"));
  for (const char* name :
       {"BRAID_FAKE_NCCL", "BRAID_FAKE_NCCL_FAILS", "BRAID_FAKE_APART", "BRAID_FAKE_CARDS"}) {
    unsetenv(name);
  }
}

// The same losses, bit for bit, whether chains of kernels are captured or not, also where CUDA
// refuses; with random numbers, which are other ones in each step, and which cut no graph in two.
TEST(CudaDeviceTest, GraphsHaveTheBitsOfKernels) {
  for (const int micro_batches : {1, 2}) {
    std::vector<std::vector<double>> losses;
    std::vector<int64_t> launches;
    for (const std::string way : {"graphs", "kernels", "refused", "without dropout"}) {
      setenv("BRAID_FAKE_CAPTURES", way == "refused" ? "0" : "1", 1);
      TrainingOptions options{.layout = LayoutCases().front(), .steps = 8};
      options.device_kinds = KindsWithCuda(way != "kernels");
      options.node_kinds = {"cuda"};
      const int64_t before = GraphLaunches();
      const auto run = RunTraining(options, [&](Job& job) {
        examples::MnistOptions mnist = SmallMnist(Parallel::kData, DType::kF32);
        mnist.dropout = way == "without dropout" ? 0 : 0.2;
        mnist.micro_batches = micro_batches;
        examples::TrainMnist(job, mnist);
      });
      unsetenv("BRAID_FAKE_CAPTURES");
      ASSERT_TRUE(run.ok()) << run.status().message();
      losses.push_back(run->losses);
      launches.push_back(GraphLaunches() - before);
    }
    EXPECT_EQ(losses[0], losses[1]);
    EXPECT_EQ(losses[0], losses[2]);
    if (std::getenv("BRAID_TEST_DEVICE") != nullptr) continue;
    // All acts but those of the first two steps.
    EXPECT_GE(launches[0], 6 * micro_batches);
    EXPECT_EQ(launches[1], 0);
    EXPECT_EQ(launches[2], 0);
    EXPECT_EQ(launches[0], launches[3]);
  }
}

// Bit for bit: with a rate that is off by the last bit of f32, no f64 of a job is a CPU's.
TEST(CudaDeviceTest, LearningRatesAreThoseOfCpus) {
  const auto rates_on = [](const SessionOptions& options) {
    const auto session = StartOrDie(options);
    auto job = session->Compile("rates", [](Job& recorded) {
      LogicalGraph& graph = recorded.graph();
      recorded.Fetch("cosine", WarmupCosine(graph, {.warmup_steps = 20, .steps = 150}));
      recorded.Fetch("power", ExponentialDecay(graph, {.factor = 0.7, .every = 30}));
      recorded.Fetch("line",
                     LinearWarmup(PolynomialDecay(graph, {.power = 0.9, .steps = 150}), 50));
      recorded.Fetch("cycle", OneCycle(graph, {.steps = 150}));
      recorded.Fetch("steps", StepDecay(graph, {.factor = 0.3, .every = 40}));
    });
    CHECK(job.ok()) << job.status();
    const auto result = job->Run({.steps = 150});
    CHECK(result.ok()) << result.status();
    std::map<std::string, std::vector<double>> rates;
    for (const char* name : {"cosine", "power", "line", "cycle", "steps"}) {
      rates[name] = result->Scalars(name);
    }
    return rates;
  };
  const auto expected = rates_on({.devices = {1}, .progress = Progress::kOff});
  EXPECT_EQ(rates_on(OnCuda({1})), expected);
}

TEST(CudaDeviceTest, FeedsComeBackAsFetches) {
  for (const std::vector<int>& devices : std::vector<std::vector<int>>{{1}, {3}, {1, 2}}) {
    const auto session = StartOrDie(OnCuda(devices));
    ExpectFeedsComeBackAsFetches(*session);
  }
}

TEST(CudaDeviceTest, ACheckpointContinuesOnCpus) {
  const std::string folder = TestFolder() + "/cuda_checkpoint";
  const auto record = [](Job& job) {
    examples::TrainMnist(job, SmallMnist(Parallel::kData, DType::kF64));
  };
  const auto saved = StartOrDie(OnCuda({2, 1}));
  auto job = saved->Compile("train", record);
  ASSERT_TRUE(job.ok()) << job.status().message();
  ASSERT_TRUE(job->Run({.steps = 3}).ok());
  ASSERT_TRUE(saved->Save(folder).ok());
  const auto reference = job->Run({.steps = 3});
  ASSERT_TRUE(reference.ok()) << reference.status().message();
  ASSERT_TRUE(saved->FinishSave().ok());
  SessionOptions cpus;
  cpus.devices = {3};
  cpus.seed = 1;
  cpus.progress = Progress::kOff;
  const auto session = StartOrDie(std::move(cpus));
  auto resumed = session->Compile("train", record);
  ASSERT_TRUE(resumed.ok()) << resumed.status().message();
  ASSERT_TRUE(session->Load(folder).ok());
  const auto result = resumed->Run({.steps = 3});
  ASSERT_TRUE(result.ok()) << result.status().message();
  const std::vector<double> got = result->Scalars("loss"), wanted = reference->Scalars("loss");
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], wanted[i], 1e-9);
}

// The device goes on with a valid index, and the run fails in the CPU's words before the value of
// that step is fetched.
TEST(CudaDeviceTest, AWrongIndexEndsTheRunInTheCpusWords) {
  const auto record = [](Job& job) {
    job.Fetch("y", Gather(job.Input("table", {4, 2}), job.Input("rows", {3}, DType::kI32)));
  };
  const std::vector<std::pair<std::string, Array>> feeds = {
      {"table", Array::FromVector<float>({4, 2}, {0, 1, 2, 3, 4, 5, 6, 7})},
      {"rows", Array::FromVector<int32_t>({3}, {1, 9, 2})}};
  SessionOptions cpus;
  cpus.progress = Progress::kOff;
  std::vector<std::string> messages;
  for (SessionOptions& options : std::vector<SessionOptions>{std::move(cpus), OnCuda({1})}) {
    const auto session = StartOrDie(std::move(options));
    auto job = session->Compile("pick", record);
    ASSERT_TRUE(job.ok()) << job.status().message();
    const auto result = job->Run({.steps = 1, .feeds = feeds});
    ASSERT_FALSE(result.ok());
    messages.emplace_back(result.status().message());
  }
  for (const std::string& message : messages) {
    EXPECT_THAT(message, HasSubstr("index 9 at position 1 is outside [-4, 4)"));
    EXPECT_THAT(message, HasSubstr("cuda_device_test.cc"));
  }
}

TEST(CudaDeviceTest, ASimulationIsRefused) {
  SessionOptions options = OnCuda({1});
  options.simulation_seed = 1;
  const auto session = Session::Start(std::move(options));
  ASSERT_FALSE(session.ok());
  EXPECT_THAT(std::string(session.status().message()),
              HasSubstr("node 0 has cuda:1, whose work a simulation cannot step"));
}

TEST(CudaDeviceTest, MemoryThatACardDoesNotHaveIsAnError) {
  if (std::getenv("BRAID_TEST_DEVICE") != nullptr) GTEST_SKIP() << "a real card has more";
  const auto session = StartOrDie(OnCuda({1}));
  const auto job = session->Compile("large", [](Job& job) {
    job.Fetch("y", Linear(job.Input("x", {1, 40000}), 40000, {.name = "fc"}));
  });
  ASSERT_FALSE(job.ok());
  EXPECT_THAT(std::string(job.status().message()),
              HasSubstr("on node 0 cuda:0, which has 4294967296 bytes"));
}

}  // namespace
}  // namespace braid
