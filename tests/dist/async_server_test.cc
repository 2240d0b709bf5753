// Asynchronous servers: updates in the order in which workers push, with a bound on how far workers
// may be apart.
#include <braid/braid.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/philox.h"
#include "tests/dist/dist_case.h"
#include "tests/multiprocess/program_run.h"
#include "tests/simulation/sim_runner.h"
#include "tests/support/from_environment.h"
#include "tests/support/lagging_device.h"

namespace braid {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// ---- who is ahead of whom -----------------------------------------------------------------------

// Sample w of the batch is worker w's, and the w-th of the identity's rows: what it pushes is 1 for
// element w of a variable, which so counts its steps. Fetches how far, by what workers pulled, one
// of them was ahead of another.
void CountSteps(Job& job, int workers, const Placement& server, int max_staleness,
                std::string_view fetch) {
  const Placement compute = job.devices().Slice(0, workers);
  const Tensor counts = Variable(job.graph(), {.name = "counts", .shape = {workers, 1}});
  Tensor loss, lead;
  job.On(compute, [&] {
    const Tensor numbers = Iota(job.graph(), {DType::kI32, {workers}});
    const Tensor own = MatMul(OneHot(ToSbp(numbers, sbp::S(0)), workers), counts);
    loss = Scale(Sum(own), -1.0 / workers);
    lead = ReduceMax(Sub(own, ReduceMin(counts)));
  });
  // A worker's gradient is of its own mean, and its rate a share: 1 comes of it.
  job.Minimize(loss, Sgd{.lr = static_cast<double>(workers)},
               {.server = Server{.placement = server, .max_staleness = max_staleness}});
  job.Fetch(std::string(fetch), lead);
}

struct Bound {
  int workers = 3, servers = 1, max_staleness = 1;
};

// The most that any seed saw.
double MostAhead(const Bound& bound, uint64_t seeds) {
  SimPlan plan;
  plan.name = "counts";
  plan.devices.assign(bound.workers + bound.servers, 1);
  plan.record = [&](Job& job) {
    CountSteps(job, bound.workers, job.devices().Slice(bound.workers, bound.servers),
               bound.max_staleness, "loss");
  };
  const auto compiled = CompileSimPlan(plan);
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  if (!compiled.ok()) return -1;
  const auto runner = MakeLoopbackRunner({.plan = *compiled, .runs = {7, 2}});
  double most = 0;
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    const auto leads = runner->Run(seed);
    EXPECT_TRUE(leads.ok()) << "seed " << seed << ": " << leads.status();
    if (!leads.ok()) return -1;
    most = std::max(most, *std::ranges::max_element(*leads));
  }
  return most;
}

// Fewer under sanitizers.
uint64_t NumSeeds(uint64_t usual) { return FromEnvironment("BRAID_SIM_SEEDS", usual); }

bool HasFewSeeds() { return NumSeeds(200) < 200; }

TEST(AsynchronousServerTest, NobodyIsFurtherAheadThanTheBound) {
  for (const Bound& bound : {Bound{3, 1, 1}, Bound{3, 1, 2}, Bound{4, 2, 3}, Bound{2, 2, 3}}) {
    const uint64_t seeds = NumSeeds(2500);
    const double most = MostAhead(bound, seeds);
    const std::string what = absl::StrCat(bound.workers, " workers, ", bound.servers, " servers");
    EXPECT_LE(most, bound.max_staleness) << what;
    // Some seed comes to it: else the bound is not what holds workers.
    if (!HasFewSeeds()) {
      EXPECT_EQ(most, bound.max_staleness) << what;
    }
  }
}

// ---- training -----------------------------------------------------------------------------------

using Seconds = std::chrono::duration<double>;

// Takes a while for a worker's samples: `usual`, and three times as much on one worker in each
// step.
struct Slowness {
  Seconds usual{0};
  int workers = 1;
  bool is_one_slow = true;
};

class SlowKernel final : public Kernel {
 public:
  SlowKernel(const KernelSpec& spec, const Slowness& slowness)
      : slowness_(slowness), bytes_(spec.outputs[0].num_elements() * 4) {
    const OperandSpec& out = spec.outputs[0];
    worker_ = out.region.offset[0] * slowness.workers / out.logical[0];
  }
  absl::Status Run(const KernelRun& run) override {
    const RandomKey key = MakeRandomKey(1, "slow", 0);
    const bool is_slow =
        slowness_.is_one_slow && Uint32At(key, run.step) % slowness_.workers == worker_;
    std::this_thread::sleep_for(slowness_.usual * (is_slow ? 3 : 1));
    std::memcpy(run.outputs[0], run.inputs[0], bytes_);
    return absl::OkStatus();
  }

 private:
  const Slowness slowness_;
  const int64_t bytes_;
  int64_t worker_ = 0;
};

void AddSlow(Session& session, const Slowness& slowness) {
  const auto like_first = [](const OpContext& context) -> absl::StatusOr<std::vector<TensorType>> {
    return std::vector<TensorType>{context.inputs[0]};
  };
  const auto rows = [](const OpContext&, int64_t) {
    return std::vector<SbpSignature>{{{sbp::S(0)}, {sbp::S(0)}}};
  };
  EXPECT_EQ(session.operators().Register(OpDef("slow")
                                             .Infer(like_first)
                                             .Signatures(rows)
                                             .NoGradient()
                                             .Sample({.inputs = {{DType::kF32, {4, 2}}}})),
            absl::OkStatus());
  EXPECT_EQ(session.kernels().Register(
                "slow",
                [slowness](const KernelSpec& spec) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                  return std::make_unique<SlowKernel>(spec, slowness);
                }),
            absl::OkStatus());
}

struct Case {
  std::vector<int> devices = {1, 1, 1, 1, 1};
  int workers = 4, servers = 1;
  OptimizerSpec optimizer = Sgd{.lr = 0.1};
  bool decays = false;  // SGD whose rate goes to 0
  int max_staleness = 0;
  Slowness slowness = {};
  int64_t steps = 300;
};

struct Outcome {
  double seconds = 0, accuracy = 0, most_stale = 0;
  std::vector<double> losses;
};

Tensor Classify(Tensor image) {
  return Linear(Relu(Linear(image, 32, {.name = "fc1"})), 10, {.name = "fc2"});
}

absl::StatusOr<Outcome> Train(const Case& c) {
  BRAID_ASSIGN_OR_RETURN(
      const auto session,
      Session::Start({.devices = c.devices, .seed = 3, .progress = Progress::kOff}));
  Slowness slowness = c.slowness;
  slowness.workers = c.workers;
  AddSlow(*session, slowness);
  BRAID_ASSIGN_OR_RETURN(auto job, session->Compile("train", [&](Job& job) {
    const Placement server = job.devices().Slice(c.workers, c.servers);
    job.On(job.devices().Slice(0, c.workers), [&] {
      auto [image, label] = job.Read(DrawnDigits({.count = 2048}), {.batch = 64, .shuffle = true});
      const Tensor loss =
          Mean(SoftmaxCrossEntropy(Classify(Apply("slow", {ToSbp(image, sbp::S(0))})), label));
      OptimizerSpec optimizer = c.optimizer;
      if (c.decays) {
        optimizer = Sgd{.lr = WarmupCosine(job.graph(), {.peak = 0.4, .steps = c.steps})};
      }
      job.Minimize(loss, optimizer,
                   {.server = Server{.placement = server,
                                     .max_staleness = c.max_staleness,
                                     .staleness = c.max_staleness > 0 ? "staleness" : ""}});
      job.Fetch("loss", loss);
    });
  }));
  BRAID_ASSIGN_OR_RETURN(auto test, session->Compile("test", [&](Job& job) {
    auto [image, label] = job.Read(DrawnDigits({.first = 10000, .count = 4000}), {.batch = 4000});
    job.Fetch("accuracy", Mean(Equal(ArgMax(Classify(image)), label)));
  }));
  BRAID_RETURN_IF_ERROR(job.Run({.steps = 2}).status());  // what is made once
  const auto begin = std::chrono::steady_clock::now();
  BRAID_ASSIGN_OR_RETURN(const RunResult trained, job.Run({.steps = c.steps}));
  Outcome outcome;
  outcome.seconds = Seconds(std::chrono::steady_clock::now() - begin).count();
  outcome.losses = trained.Scalars("loss");
  if (c.max_staleness > 0) {
    const std::vector<double> staleness = trained.Scalars("staleness");
    outcome.most_stale = *std::ranges::max_element(staleness);
  }
  BRAID_ASSIGN_OR_RETURN(const RunResult tested, test.Run());
  outcome.accuracy = tested.Scalars("accuracy")[0];
  return outcome;
}

// One worker or another is three times as slow as the rest.
TEST(AsynchronousServerTest, MakesUpForOneThatIsSlow) {
  Case c = {.decays = true, .slowness = {.usual = Seconds(0.005)}, .steps = 300};
  const auto together = Train(c);
  c.max_staleness = 4;
  const auto apart = Train(c);
  ASSERT_TRUE(together.ok() && apart.ok()) << together.status() << apart.status();
  std::printf("all together %.2f s, accuracy %.4f; up to %.0f steps apart %.2f s, accuracy %.4f\n",
              together->seconds, together->accuracy, apart->most_stale, apart->seconds,
              apart->accuracy);
  if (!HasFewSeeds()) {  // a sanitizer's step is more than its waits
    EXPECT_GE(together->seconds / apart->seconds, 1.5);
  }
  EXPECT_GT(together->accuracy, 0.9);
  EXPECT_GE(apart->accuracy, together->accuracy - 0.01);
  EXPECT_GT(apart->most_stale, 0);
  EXPECT_LE(apart->most_stale, 4);
}

TEST(AsynchronousServerTest, EveryOptimizerLearns) {
  const std::map<std::string, OptimizerSpec> optimizers = {
      {"sgd", Sgd{.lr = 0.1, .weight_decay = 1e-4}},
      {"momentum", Sgd{.lr = 0.02, .momentum = 0.9}},
      {"adam", Adam{.lr = 2e-3}},
      {"rmsprop", RmsProp{.lr = 1e-3}},
      {"adagrad", Adagrad{.lr = 0.05}}};
  for (const auto& [name, optimizer] : optimizers) {
    const auto together = Train({.optimizer = optimizer});
    const auto apart = Train({.optimizer = optimizer, .max_staleness = 2});
    ASSERT_TRUE(together.ok() && apart.ok()) << together.status() << apart.status();
    EXPECT_GT(together->accuracy, 0.85) << name;
    EXPECT_GT(apart->accuracy, 0.85) << name;
  }
}

// Whatever is on one node or on several, and split over servers or not.
TEST(AsynchronousServerTest, WorkersAndServersAreAnywhere) {
  const Case cases[] = {{.devices = {5}},
                        {.devices = {3, 3}, .servers = 2},
                        {.devices = {1, 1}, .workers = 1},
                        {.devices = {3}, .workers = 2},
                        {.devices = {1, 2, 2}, .workers = 2, .servers = 3}};
  for (Case c : cases) {
    c.max_staleness = 3;
    c.steps = 200;
    const auto trained = Train(c);
    ASSERT_TRUE(trained.ok()) << trained.status();
    EXPECT_GT(trained->accuracy, 0.75) << c.workers << " workers, " << c.servers << " servers";
    EXPECT_LE(trained->most_stale, 3);
  }
}

// One worker waits for nobody and nobody is ahead of it: the same numbers as without a server.
TEST(AsynchronousServerTest, OneWorkerIsAsWithoutBound) {
  Case c = {.devices = {1, 1}, .workers = 1, .steps = 20};
  const auto together = Train(c);
  c.max_staleness = 4;
  const auto apart = Train(c);
  ASSERT_TRUE(together.ok() && apart.ok()) << together.status() << apart.status();
  EXPECT_EQ(apart->losses, together->losses);
}

// ---- what cannot be -----------------------------------------------------------------------------

std::string ErrorOf(
    const std::function<void(Job&, const Placement& workers, Server server)>& record) {
  const auto session = Session::Start({.devices = {1, 1, 1, 1}, .progress = Progress::kOff});
  if (!session.ok()) return session.status().ToString();
  return (*session)
      ->Compile("train",
                [&](Job& job) {
                  record(job, job.devices().Slice(0, 2),
                         {.placement = job.devices().Slice(2, 1), .max_staleness = 2});
                })
      .status()
      .ToString();
}

Tensor LossOf(Job& job) {
  return Mean(Square(Linear(ToSbp(job.Input("x", {8, 4}), sbp::S(0)), 3, {.name = "fc"})));
}

TEST(AsynchronousServerTest, SaysWhatCannotBe) {
  const auto with = [](const std::function<void(MinimizeOptions&)>& change,
                       const OptimizerSpec& optimizer = Sgd{.lr = 0.1}) {
    return ErrorOf([&](Job& job, const Placement& workers, Server server) {
      MinimizeOptions options = {.server = server};
      change(options);
      job.On(workers, [&] { job.Minimize(LossOf(job), optimizer, options); });
    });
  };
  EXPECT_THAT(with([](MinimizeOptions& options) { options.clip_global_norm = 1; }),
              AllOf(HasSubstr("max_staleness 2"), HasSubstr(".clip_global_norm"),
                    HasSubstr("async_server_test.cc:")));
  EXPECT_THAT(with([](MinimizeOptions& options) { options.micro_batches = 2; }),
              HasSubstr(".micro_batches"));
  EXPECT_THAT(with([](MinimizeOptions&) {}, Lamb{}), HasSubstr("Lamb"));
  EXPECT_THAT(with([](MinimizeOptions& options) { options.ddp = Ddp{}; }),
              HasSubstr(".server and .ddp"));
  EXPECT_THAT(with([](MinimizeOptions& options) { options.server->max_staleness = -1; }),
              HasSubstr("max_staleness is -1"));
  EXPECT_THAT(with([](MinimizeOptions& options) { options.server->placement = {}; }),
              HasSubstr("its placement cannot be used: it has no devices; the cluster has"));
  EXPECT_THAT(with([](MinimizeOptions& options) {
                options.server->placement = options.server->placement.Slice(0, 2);
              }),
              HasSubstr("a slice has 2 devices from rank 0 on, of 1"));
  EXPECT_THAT(with([](MinimizeOptions& options) {
                options.server->placement = Placement("cpu", {{7, 0}});
              }),
              HasSubstr("there is no device 7.0"));
  EXPECT_THAT(with([](MinimizeOptions& options) { options.server->max_staleness = 2'000'000'000; }),
              HasSubstr("a number from 0 to 65536 was expected"));
  EXPECT_THAT(with([](MinimizeOptions& options) {
                options.server->max_staleness = 0;
                options.server->staleness = "staleness";
              }),
              HasSubstr("nothing is stale"));
  EXPECT_THAT(ErrorOf([](Job& job, const Placement& workers, Server server) {
                server.placement = job.devices();
                job.On(workers,
                       [&] { job.Minimize(LossOf(job), Sgd{.lr = 1}, {.server = server}); });
              }),
              AllOf(HasSubstr("'fc.bias'"), HasSubstr("not split over the 4 devices")));
  EXPECT_THAT(ErrorOf([](Job& job, const Placement& workers, Server server) {
                job.On(workers, [&] {
                  const Tensor alone = Variable(job.graph(), {.name = "alone", .shape = {3}});
                  job.Minimize(Add(LossOf(job), Sum(alone)), Sgd{.lr = 1}, {.server = server});
                });
              }),
              AllOf(HasSubstr("each worker is to have an addend"), HasSubstr("S(0)")));
  EXPECT_THAT(ErrorOf([](Job& job, const Placement& workers, Server server) {
                job.On(workers, [&] {
                  const Tensor x = ToSbp(job.Input("x", {8, 4}), sbp::S(0));
                  const Tensor y = Linear(x, 3, {.name = "fc"});
                  job.Minimize(Mean(Square(Sub(y, ReduceMean(y, {.axes = {0}})))), Sgd{.lr = 1},
                               {.server = server});
                });
              }),
              HasSubstr("would wait for each other"));
}

TEST(AsynchronousServerTest, IsOnCpus) {
  const auto session = Session::Start({.devices = {1, 1, 1},
                                       .node_kinds = {"cpu", "lagging", "cpu"},
                                       .device_kinds = KindsWithLagging(),
                                       .progress = Progress::kOff});
  ASSERT_TRUE(session.ok()) << session.status();
  const auto job = (*session)->Compile("train", [&](Job& job) {
    const Server server = {.placement = job.devices().Slice(2, 1), .max_staleness = 2};
    job.On(job.devices().Slice(0, 2),
           [&] { job.Minimize(LossOf(job), Sgd{.lr = 0.1}, {.server = server}); });
  });
  EXPECT_THAT(job.status().ToString(),
              AllOf(HasSubstr("lagging:0 of node 1"), HasSubstr("have to be CPUs")));
}

// In a mirrored job, too, where each worker's loss is its own.
TEST(AsynchronousServerTest, ServesMirroredWorkers) {
  const auto session = Session::Start({.devices = {1, 1, 1}, .progress = Progress::kOff});
  ASSERT_TRUE(session.ok()) << session.status();
  auto job = (*session)->Compile("train", [&](Job& job) {
    const Server server = {.placement = job.devices().Slice(2, 1), .max_staleness = 2};
    job.On(job.devices().Slice(0, 2), [&] {
      const Tensor loss = job.Mirrored([&] {
        auto [image, label] = job.Read(DrawnDigits({.count = 512}), {.batch = 16, .shuffle = true});
        return MeanMirrored(Mean(SoftmaxCrossEntropy(Classify(image), label)));
      });
      job.Minimize(loss, Sgd{.lr = 0.1}, {.server = server});
      job.Fetch("loss", loss);
    });
  });
  ASSERT_TRUE(job.ok()) << job.status();
  const auto ran = job->Run({.steps = 200});
  ASSERT_TRUE(ran.ok()) << ran.status();
  const std::vector<double> losses = ran->Scalars("loss");
  EXPECT_LT(losses.back(), losses.front() / 2);
}

// The accuracy and the steps ahead that the example prints of its only epoch.
void ExpectExampleLearns(const std::vector<std::string>& command, int max_staleness) {
  std::vector<std::string> words = command;
  for (const std::string& word :
       {std::string(BRAID_PS_ASYNC), std::string("--epochs=1"), std::string("--progress=off"),
        absl::StrCat("--max_staleness=", max_staleness)}) {
    words.push_back(word);
  }
  ProgramRun run(words);
  EXPECT_EQ(run.Wait().code, 0) << run.err();
  double loss = 0, accuracy = 0, ahead = -1;
  EXPECT_EQ(std::sscanf(run.out().c_str(), "epoch 1: loss %lf, accuracy %lf, at most %lf steps",
                        &loss, &accuracy, &ahead),
            3)
      << run.out();
  EXPECT_GT(accuracy, 0.8);
  EXPECT_GE(ahead, 0);
  EXPECT_LE(ahead, max_staleness);
}

TEST(AsynchronousServerTest, TheExampleLearnsOnTwoNodes) {
  const std::vector<std::string> two = {BRAID_TOOL,  "launch", "--local", "2",
                                        "--devices", "cpu:2",  "--"};
  ExpectExampleLearns(two, 4);
  ExpectExampleLearns(two, 0);
  ProgramRun alone({BRAID_PS_ASYNC, "--devices=cpu:1"});
  EXPECT_NE(alone.Wait().code, 0);
  EXPECT_THAT(alone.LastErrorLine(), HasSubstr("a server and a worker need 2 devices"));
}

// Where each rank runs the program, the last one has the variables.
TEST(AsynchronousServerTest, ServesRanksOfAWorld) {
  ExpectAllWell(RunWorld(3, [](dist::World& world) -> absl::Status {
    BRAID_ASSIGN_OR_RETURN(const auto session, Session::Start(world, {}));
    BRAID_ASSIGN_OR_RETURN(auto job, session->Compile("train", [](Job& job) {
      const Server server = {.placement = job.devices().Slice(2, 1), .max_staleness = 2};
      job.On(job.devices().Slice(0, 2), [&] {
        auto [image, label] = job.Read(DrawnDigits({.count = 512}), {.batch = 32, .shuffle = true});
        const Tensor loss = Mean(SoftmaxCrossEntropy(Classify(ToSbp(image, sbp::S(0))), label));
        job.Minimize(loss, Sgd{.lr = 0.1}, {.server = server});
        job.Fetch("loss", loss);
      });
    }));
    BRAID_ASSIGN_OR_RETURN(const RunResult ran, job.Run({.steps = 200}));
    const std::vector<double> losses = ran.Scalars("loss");
    EXPECT_LT(losses.back(), losses.front() / 2);
    return session->Close(absl::OkStatus());
  }));
}

}  // namespace
}  // namespace braid
