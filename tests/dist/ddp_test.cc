// Data parallelism of mirrored gradients: equal to the consistent view's, and its options, alone
// and together, to written-out math.
#include <braid/braid.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "tests/dist/ddp_case.h"
#include "tests/dist/dist_case.h"

namespace braid::ddp {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Ranks that feed what they have, against one batch that the compiler spreads over them.
TEST(DdpTest, EqualsTheConsistentViewBitForBit) {
  for (const int ranks : {2, 4}) {
    std::vector<std::vector<float>> weights(2);
    for (const bool is_mirrored : {false, true}) {
      ExpectAllWell(RunWorld(ranks, [&](dist::World& world) -> absl::Status {
        BRAID_ASSIGN_OR_RETURN(const auto session,
                               Session::Start(world, {.seed = 5, .progress = Progress::kOff}));
        BRAID_ASSIGN_OR_RETURN(auto job, session->Compile("train", [&](Job& job) {
          const auto loss_of = [&](int64_t rows) {
            const auto [x, y] = Inputs(job, rows);
            return LossOf(x, y);
          };
          const Tensor loss =
              is_mirrored
                  ? job.Mirrored([&] { return MeanMirrored(loss_of(kBatch / world.size())); })
                  : loss_of(kBatch);
          job.Minimize(loss, Adam{.lr = 0.01});
        }));
        for (int64_t i = 0; i < 5; ++i) {
          RunOptions options = {.feeds =
                                    is_mirrored ? Batch(i, world.rank(), world.size()) : Batch(i)};
          BRAID_RETURN_IF_ERROR(job.Run(options).status());
        }
        BRAID_ASSIGN_OR_RETURN(auto own, Weights(*session));
        if (world.rank() == ranks - 1) weights[is_mirrored ? 1 : 0] = std::move(own);
        return session->Close(absl::OkStatus());
      }));
    }
    EXPECT_EQ(weights[0].size(), static_cast<size_t>(kNumbers));
    EXPECT_EQ(weights[0], weights[1]) << ranks;
  }
}

TEST(DdpTest, OneStepIsThatOfOneDevice) {
  const auto alone = Train({.devices = {1}});
  ASSERT_TRUE(alone.ok()) << alone.status();
  for (const std::vector<int>& devices : {std::vector<int>{2}, {4}, {2, 1}, {1, 1, 1}}) {
    const auto weights = Train({.devices = devices});
    ASSERT_TRUE(weights.ok()) << weights.status();
    ExpectNear(*weights, *alone, 1e-6, "");
  }
}

// How many all_reduces the job does whose plan this is.
size_t NumAllReduces(const CompiledJob& job) {
  size_t count = 0;
  for (const absl::string_view line : absl::StrSplit(job.Explain(), '\n')) {
    if (absl::StrContains(line, " all_reduce \"")) ++count;
  }
  return count;
}

// Without a hook the compiler's buckets are as large as the user says: 1, for example, is one for
// each of the four variables.
TEST(DdpTest, BucketsWithoutAHookAreAsLargeAsAsked) {
  const std::vector<std::pair<std::optional<Ddp>, size_t>> cases = {
      {std::nullopt, 1},
      {Ddp(), 1},
      {Ddp{.bucket_bytes = 1}, 4},
      {Ddp{.first_bucket_bytes = 1}, 2},
      {Ddp{.first_bucket_bytes = 1, .bucket_bytes = 1 << 20}, 2},
      {Ddp{.bucket_bytes = 1 << 20}, 1},
      {Ddp{.bucket_bytes = 1, .no_sync = true}, 4}};
  for (size_t i = 0; i < cases.size(); ++i) {
    const auto& [ddp, expected] = cases[i];
    size_t count = 0;
    const auto weights = Train({.options = {.ddp = ddp}}, [&](Session&, CompiledJob& job) {
      count = NumAllReduces(job);
      return absl::OkStatus();
    });
    ASSERT_TRUE(weights.ok()) << weights.status();
    EXPECT_EQ(count, expected) << i;
    ExpectSame({.options = {.ddp = ddp}, .steps = 3}, 0, absl::StrCat(i));
  }
}

// Of a world, too; ranks that ask for different sizes do not make the same job.
TEST(DdpTest, BucketsOfRanksAreAsLargeAsAsked) {
  for (const bool is_same : {true, false}) {
    const WorldEnd end = RunWorld(2, [&](dist::World& world) -> absl::Status {
      BRAID_ASSIGN_OR_RETURN(const auto session,
                             Session::Start(world, {.seed = 5, .progress = Progress::kOff}));
      const int64_t bytes = is_same ? 1 : 1 + world.rank();
      BRAID_ASSIGN_OR_RETURN(auto job, session->Compile("train", [&](Job& job) {
        const Tensor loss = job.Mirrored([&] {
          const auto [x, y] = Inputs(job, kBatch / 2);
          return MeanMirrored(LossOf(x, y));
        });
        job.Minimize(loss, Sgd{.lr = 0.1}, {.ddp = Ddp{.bucket_bytes = bytes}});
      }));
      EXPECT_EQ(NumAllReduces(job), 4u);
      BRAID_RETURN_IF_ERROR(job.Run({.feeds = Batch(0, world.rank(), 2)}).status());
      return session->Close(absl::OkStatus());
    });
    if (is_same) {
      ExpectAllWell(end);
      continue;
    }
    for (const absl::Status& status : end.programs) {
      EXPECT_THAT(std::string(status.message()), HasSubstr("bucket=")) << status;
    }
  }
}

// A hook gets the gradients in the order in which they become final, in buckets; one that sums
// them changes no bit.
TEST(DdpTest, AHookGetsBuckets) {
  std::vector<std::string> seen;
  Ddp ddp = {.first_bucket_bytes = 80, .bucket_bytes = 300};
  ddp.hook = [&](Tensor bucket, const std::string& name) {
    EXPECT_TRUE(bucket.mirroring().has_value());
    seen.push_back(absl::StrCat(name, " ", bucket.type().ToString()));
    return SumMirrored(bucket);
  };
  for (const std::vector<int>& devices : {std::vector<int>{2}, {1, 3}}) {
    seen.clear();
    ExpectSame({.devices = devices, .options = {.ddp = ddp}, .steps = 3}, 0, "sum");
    EXPECT_THAT(seen,
                ElementsAre("out.bias f32[3]", "out.weight f32[64]", "hidden.weight f32[64]"));
  }
}

TEST(DdpTest, NarrowHooksRoundWhatTheySend) {
  const auto exact = TrainPlainly({.devices = {4}});
  ASSERT_TRUE(exact.ok()) << exact.status();
  for (const GradientHook& hook : {Fp16Gradients(), Bf16Gradients()}) {
    const auto rounded = Train({.devices = {4}, .options = {.ddp = Ddp{.hook = hook}}});
    ASSERT_TRUE(rounded.ok()) << rounded.status();
    EXPECT_NE(*rounded, *exact);
    ExpectNear(*rounded, *exact, 1e-3, "");
  }
}

// What PowerSgd sends is a part of the gradients, and each device keeps the rest of its own.
TEST(DdpTest, PowerSgdLosesNothing) {
  const Training plain = {.devices = {3}, .rate = 1};
  Training none = plain;
  none.steps = 0;
  const auto start = TrainPlainly(none), exact = TrainPlainly(plain);
  ASSERT_TRUE(start.ok() && exact.ok()) << start.status() << exact.status();
  for (const int64_t rank : {1, 3, 100}) {
    Training training = plain;
    training.options.ddp = Ddp{.hook = PowerSgd{.rank = rank}};
    std::vector<float> left;  // in the bucket's order
    const auto weights = Train(training, [&](Session& session, CompiledJob&) -> absl::Status {
      BRAID_ASSIGN_OR_RETURN(const Array error, session.Get("out.bias.error"));
      EXPECT_EQ(error.shape(), Shape({3 * kNumbers}));
      left.resize(kNumbers);
      for (int64_t i = 0; i < 3 * kNumbers; ++i) left[i % kNumbers] += error.data<float>()[i];
      return absl::OkStatus();
    });
    ASSERT_TRUE(weights.ok()) << weights.status();
    // The bucket has out.bias, out.weight, hidden.bias, hidden.weight.
    std::vector<float> rest(left.begin() + 67, left.end());
    rest.insert(rest.end(), left.begin() + 51, left.begin() + 67);
    rest.insert(rest.end(), left.begin() + 3, left.begin() + 51);
    rest.insert(rest.end(), left.begin(), left.begin() + 3);
    double missing = 0;
    std::vector<float> all = *weights;
    for (size_t i = 0; i < all.size(); ++i) {
      missing = std::max(missing, std::abs(double{rest[i]}));
      all[i] -= rest[i];
    }
    ExpectNear(all, *exact, 1e-5, absl::StrCat("rank ", rank));
    if (rank == 100) {
      EXPECT_LT(missing, 1e-4) << "a whole basis leaves nothing out";
    } else {
      EXPECT_GT(missing, 1e-3);
    }
  }
}

TEST(DdpTest, PowerSgdTrainsAsWell) {
  std::vector<double> losses;
  for (const std::optional<Ddp>& ddp : {std::optional<Ddp>(), {Ddp{.hook = PowerSgd{.rank = 2}}}}) {
    Training training = {.devices = {2, 2}, .rate = 0.5, .steps = 300, .has_one_batch = true};
    training.options.ddp = ddp;
    const auto weights = Train(training, [&](Session&, CompiledJob& job) -> absl::Status {
      BRAID_ASSIGN_OR_RETURN(const RunResult result, job.Run({.feeds = Batch(0)}));
      losses.push_back(result.Scalars("loss").at(0));
      return absl::OkStatus();
    });
    ASSERT_TRUE(weights.ok()) << weights.status();
  }
  EXPECT_LT(losses[0], 0.5) << "it begins with 1.1";
  EXPECT_LT(losses[1], losses[0] + 0.05);
}

// Ranks record the same as one program does.
TEST(DdpTest, OptionsOfRanksAreThoseOfDevices) {
  Training training = {.devices = {1, 1}, .runs_a_step = 2, .steps = 2};
  training.options.ddp = Ddp{.hook = PowerSgd{.rank = 2}, .no_sync = true};
  const auto expected = Train(training);
  ASSERT_TRUE(expected.ok()) << expected.status();
  ExpectAllWell(RunWorld(2, [&](dist::World& world) -> absl::Status {
    BRAID_ASSIGN_OR_RETURN(const auto session,
                           Session::Start(world, {.seed = 5, .progress = Progress::kOff}));
    BRAID_ASSIGN_OR_RETURN(auto job, session->Compile("train", [&](Job& job) {
      const Tensor loss = job.Mirrored([&] {
        const auto [x, y] = Inputs(job, kBatch / 2);
        return MeanMirrored(LossOf(x, y));
      });
      job.Minimize(loss, Sgd{.lr = training.rate}, training.options);
    }));
    for (int64_t run = 0; run < 4; ++run) {
      RunOptions options = {.feeds = Batch(run, world.rank(), 2)};
      options.no_sync = run % 2 == 0;
      BRAID_RETURN_IF_ERROR(job.Run(options).status());
    }
    BRAID_ASSIGN_OR_RETURN(const auto weights, Weights(*session));
    ExpectNear(weights, *expected, 1e-6, "ranks");
    return session->Close(absl::OkStatus());
  }));
}

// Gradients of steps without sync are added to those of the next step with it.
TEST(DdpTest, NoSyncAddsUp) {
  for (const std::vector<int>& devices : {std::vector<int>{2}, {1, 1, 1}}) {
    ExpectSame({.devices = devices,
                .options = {.ddp = Ddp{.no_sync = true}},
                .runs_a_step = 3,
                .steps = 2},
               1e-6, "no_sync");
  }
}

TEST(DdpTest, NoSyncUpdatesNothingAndCountsSteps) {
  Training training = {.options = {.ddp = Ddp{.no_sync = true}}, .steps = 0};
  const auto start = Train(training);
  const auto weights = Train(training, [&](Session& session, CompiledJob& job) -> absl::Status {
    BRAID_RETURN_IF_ERROR(job.Run({.steps = 4, .feeds = Batch(0), .no_sync = true}).status());
    EXPECT_EQ(job.step(), 4);
    BRAID_ASSIGN_OR_RETURN(const Array added, session.Get("out.bias.unsynced"));
    EXPECT_EQ(added.shape(), Shape({2 * 3}));
    EXPECT_NE(added.data<float>()[0], 0);
    return absl::OkStatus();
  });
  ASSERT_TRUE(start.ok() && weights.ok()) << start.status() << weights.status();
  EXPECT_EQ(*weights, *start);
}

// Three ranks have 5, 7 and 6 batches.
TEST(DdpTest, RanksThatHaveNoMoreDataJoinTheOthers) {
  const std::vector<int64_t> batches = {5, 7, 6};
  for (const JoinDivisor by : {JoinDivisor::kLive, JoinDivisor::kAll}) {
    std::vector<std::vector<float>> joined(3);  // by rank
    ExpectAllWell(RunWorld(3, [&](dist::World& world) -> absl::Status {
      BRAID_ASSIGN_OR_RETURN(const auto session,
                             Session::Start(world, {.seed = 5, .progress = Progress::kOff}));
      BRAID_ASSIGN_OR_RETURN(auto job, session->Compile("train", [&](Job& job) {
        const Tensor loss = job.Mirrored([&] {
          const auto [x, y] = Inputs(job, kBatch / 3);
          return MeanOfLive(LossOf(x, y), job.Input("live", {}), by);
        });
        job.Minimize(loss, Sgd{.lr = 0.1});
      }));
      std::vector<int64_t> most = {batches[world.rank()]};
      BRAID_RETURN_IF_ERROR(world.AllReduce(most, dist::ReduceOp::kMax));
      for (int64_t i = 0; i < most[0]; ++i) {
        const bool is_live = i < batches[world.rank()];
        RunOptions options = {.feeds = Batch(is_live ? i : 0, world.rank(), 3)};
        options.feeds.emplace_back("live", Array::FromVector<float>({}, {is_live ? 1.f : 0.f}));
        BRAID_RETURN_IF_ERROR(job.Run(options).status());
      }
      BRAID_ASSIGN_OR_RETURN(joined[world.rank()], Weights(*session));
      return session->Close(absl::OkStatus());
    }));
    // The rows of those that are live, weighted by hand.
    const auto session = Session::Start({.devices = {1}, .seed = 5, .progress = Progress::kOff});
    ASSERT_TRUE(session.ok()) << session.status();
    auto job = (*session)->Compile("train", [](Job& job) {
      const auto [x, y] = Inputs(job, kBatch);
      const Tensor h = Linear(Relu(Linear(x, 16, {.name = "hidden"})), 3, {.name = "out"});
      job.Minimize(Sum(SoftmaxCrossEntropy(h, y) * job.Input("weights", {kBatch})), Sgd{.lr = 0.1});
    });
    ASSERT_TRUE(job.ok()) << job.status();
    for (int64_t i = 0; i < 7; ++i) {
      const auto live = std::ranges::count_if(batches, [i](int64_t n) { return i < n; });
      const double divisor = static_cast<double>(by == JoinDivisor::kLive ? live : 3) * 4;
      std::vector<float> weights;
      for (int64_t row = 0; row < kBatch; ++row) {
        weights.push_back(i < batches[row / 4] ? static_cast<float>(1 / divisor) : 0);
      }
      RunOptions options = {.feeds = Batch(i)};
      options.feeds.emplace_back("weights", Array::FromVector<float>({kBatch}, weights));
      const absl::Status ran = job->Run(options).status();
      ASSERT_TRUE(ran.ok()) << ran;
    }
    const auto expected = Weights(**session);
    ASSERT_TRUE(expected.ok()) << expected.status();
    for (const auto& weights : joined) ExpectNear(weights, *expected, 1e-6, "joined");
  }
}

// A variable that no loss uses, and one that other devices share as well.
TEST(DdpTest, VariablesThatAreNotMirroredGoTheirWay) {
  std::vector<double> results;
  const GradientHook sum = [](Tensor bucket, const std::string&) { return SumMirrored(bucket); };
  for (const std::optional<Ddp>& ddp :
       {std::optional<Ddp>(), {Ddp{.hook = sum}}, {Ddp{.hook = sum, .no_sync = true}}}) {
    const auto session = Session::Start({.devices = {3}, .seed = 5, .progress = Progress::kOff});
    ASSERT_TRUE(session.ok()) << session.status();
    auto job = (*session)->Compile("train", [&](Job& job) {
      const Tensor w = Variable(job.graph(), {.name = "w", .shape = {4}, .init = "ones"});
      const Tensor other = Variable(job.graph(), {.name = "other", .shape = {4}, .init = "ones"});
      const Tensor unused = Variable(job.graph(), {.name = "unused", .shape = {2}});
      job.Fetch("unused", unused);
      const Tensor x = job.Input("x", {3, 4});
      const Tensor own = job.Mirrored([&] { return MeanMirrored(Sum(MirrorParts(x) * w * w)); });
      job.Minimize(own + Sum(Square(w)) + Sum(Square(other)), Sgd{.lr = 0.1}, {.ddp = ddp});
      job.Fetch("sum", Sum(w) + Scale(Sum(other), 10));
    });
    ASSERT_TRUE(job.ok()) << job.status();
    std::vector<float> x(12);
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
    const auto result =
        job->Run({.steps = 3, .feeds = {{"x", Array::FromVector<float>({3, 4}, x)}}});
    ASSERT_TRUE(result.ok()) << result.status();
    results.push_back(result->Scalars("sum").back());
  }
  EXPECT_NEAR(results[0], results[1], 1e-4);
  EXPECT_NEAR(results[0], results[2], 1e-4);
}

// ---- Mistakes -----------------------------------------------------------------------------------

std::string ErrorOf(const Training& training) {
  return std::string(Train(training).status().message());
}

TEST(DdpTest, MistakesAreSaid) {
  const auto with = [](GradientHook hook) {
    Training training;
    training.options.ddp = Ddp{.hook = std::move(hook)};
    return training;
  };
  EXPECT_THAT(ErrorOf(with([](Tensor bucket, const std::string&) { return bucket; })),
              HasSubstr("Minimize: the hook of .ddp was given the bucket of 'out.bias', f32[131], "
                        "and returned f32[131], which is mirrored; f32[131], which is not "
                        "mirrored, was expected (ddp_case.cc:"));
  EXPECT_THAT(
      ErrorOf(with([](Tensor bucket, const std::string&) { return Sum(SumMirrored(bucket)); })),
      HasSubstr("and returned f32[]; f32[131]"));
  EXPECT_THAT(ErrorOf(with([](Tensor, const std::string&) { return Tensor(); })),
              HasSubstr("and returned no tensor of this job"));
  EXPECT_THAT(ErrorOf(with(PowerSgd{.rank = 0})), HasSubstr("PowerSgd: rank is 0; at least 1"));
  Training training;
  training.options.ddp = Ddp{.bucket_bytes = 0};
  EXPECT_THAT(ErrorOf(training), HasSubstr(".ddp has .bucket_bytes = 0; at least 1 was expected"));
  training.options.ddp = Ddp();
  training.runs_a_step = 2;
  EXPECT_THAT(ErrorOf(training), HasSubstr("Run of job 'train': no_sync adds gradients up"));
  const auto session = Session::Start({.devices = {2}, .progress = Progress::kOff});
  ASSERT_TRUE(session.ok());
  const auto shared = (*session)->Compile("shared", [](Job& job) {
    const auto [x, y] = Inputs(job, kBatch);
    job.Minimize(LossOf(x, y), Sgd{.lr = 0.1}, {.ddp = Ddp()});
  });
  EXPECT_THAT(std::string(shared.status().message()),
              HasSubstr("no variable enters mirrored values before the loss"));
  const auto live = (*session)->Compile("live", [](Job& job) {
    job.Mirrored([&] {
      job.Fetch("x", MeanOfLive(MirrorParts(job.Input("x", {2})), job.Input("live", {})));
    });
  });
  EXPECT_THAT(std::string(live.status().message()),
              HasSubstr("MeanOfLive: live is f32[], which all devices share"));
}

}  // namespace
}  // namespace braid::ddp
