// Sessions on a world: every rank runs the program.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "api/layers.h"
#include "api/session.h"
#include "runtime/base/status.h"
#include "tests/dist/dist_case.h"
#include "tests/runtime/temp_dir.h"

namespace braid {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kBatch = 12;

void Train(Job& job, int64_t hidden) {
  const Tensor x = job.Input("x", {kBatch, 4}), y = job.Input("y", {kBatch}, DType::kI32);
  const Tensor h = Relu(Linear(x, hidden, {.name = "hidden"}));
  const Tensor loss = Mean(SoftmaxCrossEntropy(Linear(h, 3, {.name = "out"}), y));
  job.Minimize(loss, Adam{.lr = 0.05});
  job.Fetch("loss", loss);
  job.Fetch("h", h);
}

RunOptions Fed(int64_t steps) {
  std::vector<float> x;
  std::vector<int32_t> y;
  for (int32_t i = 0; i < kBatch; ++i) {
    for (int k = 0; k < 4; ++k) x.push_back(static_cast<float>((i * 7 + k * 3) % 11) / 11);
    y.push_back(i % 3);
  }
  return {.steps = steps,
          .feeds = {{"x", Array::FromVector<float>({kBatch, 4}, x)},
                    {"y", Array::FromVector<int32_t>({kBatch}, y)}}};
}

// What a program fetched and has in the end.
struct Outcome {
  std::vector<double> losses;
  std::vector<float> h, weight;
};

absl::StatusOr<Outcome> RunProgram(Session& session) {
  BRAID_ASSIGN_OR_RETURN(auto job, session.Compile("train", [](Job& job) { Train(job, 16); }));
  BRAID_ASSIGN_OR_RETURN(const RunResult first, job.Run(Fed(3)));
  BRAID_ASSIGN_OR_RETURN(const RunResult second, job.Run({.steps = 2}));
  Outcome outcome = {.losses = first.Scalars("loss")};
  for (const double loss : second.Scalars("loss")) outcome.losses.push_back(loss);
  const auto h = second.Last("h").data<float>();
  outcome.h.assign(h.begin(), h.end());
  BRAID_ASSIGN_OR_RETURN(const Array weight, session.Get("hidden.weight"));
  const auto data = weight.data<float>();
  outcome.weight.assign(data.begin(), data.end());
  return outcome;
}

TEST(WorldSessionTest, EveryRankTrainsAndGetsAll) {
  const auto alone = Session::Start({.devices = {1}, .progress = Progress::kOff});
  ASSERT_TRUE(alone.ok()) << alone.status();
  const auto expected = RunProgram(**alone);
  ASSERT_TRUE(expected.ok()) << expected.status();
  for (const auto& [ranks, transport] : std::vector<std::pair<int, const char*>>{
           {1, "tcp"}, {2, "tcp"}, {3, "tcp"}, {2, "loopback"}}) {
    std::vector<Outcome> outcomes(ranks);
    const RankProgram program = [&](dist::World& world) -> absl::Status {
      BRAID_ASSIGN_OR_RETURN(const auto session,
                             Session::Start(world, {.progress = Progress::kOff}));
      BRAID_ASSIGN_OR_RETURN(outcomes[world.rank()], RunProgram(*session));
      return session->Close(absl::OkStatus());
    };
    ExpectAllWell(RunWorld(ranks, program, transport));
    for (const Outcome& outcome : outcomes) {
      ASSERT_EQ(outcome.losses.size(), expected->losses.size()) << ranks;
      for (size_t i = 0; i < outcome.losses.size(); ++i) {
        EXPECT_NEAR(outcome.losses[i], expected->losses[i], 1e-5) << ranks;
      }
      EXPECT_EQ(outcome.losses, outcomes[0].losses);
      EXPECT_EQ(outcome.h, outcomes[0].h);
      EXPECT_EQ(outcome.weight, outcomes[0].weight);
      EXPECT_EQ(outcome.weight.size(), 4u * 16);
    }
  }
}

// The rows of Fed that a rank has.
RunOptions FedBy(int rank, int ranks, int64_t steps) {
  const RunOptions all = Fed(steps);
  RunOptions own = {.steps = steps};
  const int64_t rows = kBatch / ranks;
  const auto x = all.feeds[0].second.data<float>();
  const auto y = all.feeds[1].second.data<int32_t>();
  own.feeds = {{"x", Array::FromVector<float>({rows, 4}, {x.begin() + rank * rows * 4,
                                                          x.begin() + (rank + 1) * rows * 4})},
               {"y", Array::FromVector<int32_t>(
                         {rows}, {y.begin() + rank * rows, y.begin() + (rank + 1) * rows})}};
  return own;
}

// Inside Mirrored each rank feeds what it has, and fetches what it makes of it.
TEST(WorldSessionTest, EachRankFeedsAndFetchesItsOwn) {
  const auto alone = Session::Start({.devices = {1}, .progress = Progress::kOff});
  ASSERT_TRUE(alone.ok()) << alone.status();
  const auto expected = RunProgram(**alone);
  ASSERT_TRUE(expected.ok()) << expected.status();
  for (const auto& [ranks, micro_batches] : {std::pair(1, 1), {2, 1}, {3, 2}}) {
    std::vector<double> losses(3);
    std::vector<std::vector<double>> own(ranks);
    ExpectAllWell(RunWorld(ranks, [&, pieces = micro_batches](dist::World& world) -> absl::Status {
      BRAID_ASSIGN_OR_RETURN(const auto session,
                             Session::Start(world, {.progress = Progress::kOff}));
      BRAID_ASSIGN_OR_RETURN(auto job, session->Compile("train", [&](Job& job) {
        const Tensor loss = job.Mirrored([&] {
          const int64_t rows = kBatch / world.size();
          const Tensor x = job.Input("x", {rows, 4}), y = job.Input("y", {rows}, DType::kI32);
          const Tensor h = Relu(Linear(x, 16, {.name = "hidden"}));
          const Tensor mean = Mean(SoftmaxCrossEntropy(Linear(h, 3, {.name = "out"}), y));
          job.Fetch("own", mean);
          if (pieces == 1) job.Fetch("x", x);
          return MeanMirrored(mean);
        });
        job.Minimize(loss, Adam{.lr = 0.05}, {.micro_batches = pieces});
        job.Fetch("loss", loss);
      }));
      const RunOptions fed = FedBy(world.rank(), world.size(), 3);
      BRAID_ASSIGN_OR_RETURN(const RunResult result, job.Run(fed));
      own[world.rank()] = result.Scalars("own");
      if (world.rank() == 0) losses = result.Scalars("loss");
      if (pieces == 1) {
        const auto x = result.Last("x").data<float>(), sent = fed.feeds[0].second.data<float>();
        EXPECT_TRUE(std::ranges::equal(x, sent));
      }
      return session->Close(absl::OkStatus());
    }));
    for (size_t step = 0; step < losses.size(); ++step) {
      double sum = 0;
      for (const std::vector<double>& of_rank : own) sum += of_rank.at(step);
      EXPECT_NEAR(losses[step], expected->losses[step], 1e-5) << ranks;
      EXPECT_NEAR(sum / ranks, losses[step], 1e-6) << ranks;
      if (ranks > 1) {
        EXPECT_NE(own[0][step], own[1][step]);
      }
    }
  }
}

// The calls of ranks beside the session go on meanwhile, and values that are set are everywhere.
TEST(WorldSessionTest, SetReachesAllRanks) {
  ExpectAllWell(RunWorld(2, [](dist::World& world) -> absl::Status {
    BRAID_ASSIGN_OR_RETURN(const auto session, Session::Start(world, {.progress = Progress::kOff}));
    BRAID_RETURN_IF_ERROR(session->Compile("train", [](Job& job) { Train(job, 16); }).status());
    std::vector<float> values(16, 2.5f);
    dist::Work work = world.StartAllReduce(values);
    BRAID_RETURN_IF_ERROR(
        session->Set("hidden.bias", Array::FromVector<float>({16}, std::vector<float>(16, 1.5f))));
    BRAID_RETURN_IF_ERROR(work.Wait());
    BRAID_ASSIGN_OR_RETURN(const Array bias, session->Get("hidden.bias"));
    EXPECT_EQ(bias.data<float>()[15], 1.5f);
    EXPECT_EQ(values[15], 5.0f);
    return absl::OkStatus();
  }));
}

// Losses of two steps.
absl::Status TrainOn(CompiledJob& job, std::vector<double>& losses) {
  BRAID_ASSIGN_OR_RETURN(const RunResult result, job.Run(Fed(2)));
  losses = result.Scalars("loss");
  return absl::OkStatus();
}

// A checkpoint is one, whatever the number of ranks that saved it and loads it.
TEST(WorldSessionTest, CheckpointsGoFromWorldToWorld) {
  const TempDir folder;
  std::vector<double> went_on;
  ExpectAllWell(RunWorld(2, [&](dist::World& world) -> absl::Status {
    BRAID_ASSIGN_OR_RETURN(const auto session, Session::Start(world, {.progress = Progress::kOff}));
    BRAID_ASSIGN_OR_RETURN(auto job, session->Compile("train", [](Job& job) { Train(job, 16); }));
    BRAID_RETURN_IF_ERROR(job.Run(Fed(3)).status());
    BRAID_RETURN_IF_ERROR(session->Save(folder.path()));
    std::vector<double> losses;
    BRAID_RETURN_IF_ERROR(TrainOn(job, losses));
    if (world.rank() == 1) went_on = losses;
    BRAID_RETURN_IF_ERROR(session->SaveWeights(folder.path() + "/weights.safetensors"));
    return session->Close(absl::OkStatus());
  }));
  for (const int ranks : {2, 3}) {
    std::vector<std::vector<double>> losses(ranks);
    ExpectAllWell(RunWorld(ranks, [&](dist::World& world) -> absl::Status {
      BRAID_ASSIGN_OR_RETURN(const auto session,
                             Session::Start(world, {.progress = Progress::kOff}));
      BRAID_ASSIGN_OR_RETURN(auto job, session->Compile("train", [](Job& job) { Train(job, 16); }));
      BRAID_RETURN_IF_ERROR(session->Load(folder.path()));
      EXPECT_EQ(job.step(), 3);
      BRAID_RETURN_IF_ERROR(TrainOn(job, losses[world.rank()]));
      BRAID_ASSIGN_OR_RETURN(const Array trained, session->Get("hidden.weight"));
      BRAID_RETURN_IF_ERROR(session->LoadWeights(folder.path() + "/weights.safetensors"));
      BRAID_ASSIGN_OR_RETURN(const Array loaded, session->Get("hidden.weight"));
      EXPECT_NEAR(trained.data<float>()[7], loaded.data<float>()[7], 1e-5);
      return absl::OkStatus();
    }));
    for (const std::vector<double>& of_rank : losses) {
      EXPECT_EQ(of_rank, losses[0]);
      if (ranks == 2) {
        EXPECT_EQ(of_rank, went_on);
      }
      EXPECT_NEAR(of_rank.at(1), went_on.at(1), 1e-5);
    }
  }
}

// What rank 0 finds wrong with files is the error of all ranks, and they go on.
TEST(WorldSessionTest, ErrorsOfCheckpointsAreThoseOfAllRanks) {
  const TempDir folder;
  ExpectAllWell(RunWorld(2, [&](dist::World& world) -> absl::Status {
    BRAID_ASSIGN_OR_RETURN(const auto session, Session::Start(world, {.progress = Progress::kOff}));
    BRAID_ASSIGN_OR_RETURN(auto job, session->Compile("train", [](Job& job) { Train(job, 16); }));
    const auto message = [](const absl::Status& status) { return std::string(status.message()); };
    EXPECT_THAT(message(session->Load(folder.path() + "/none")), HasSubstr("none"));
    EXPECT_THAT(message(session->LoadWeights(folder.path() + "/none")), HasSubstr("rank 0"));
    EXPECT_THAT(message(session->SaveWeights(folder.path() + "/none/weights")), HasSubstr("none"));
    EXPECT_THAT(message(session->Save("/proc/none")), HasSubstr("rank 0: saving to '/proc/none'"));
    const std::string own = folder.path() + (world.rank() == 0 ? "/a" : "/b");
    EXPECT_THAT(message(session->Save(own)),
                HasSubstr("rank 0 makes another one than rank 1: Save to"));
    BRAID_RETURN_IF_ERROR(job.Run(Fed(1)).status());
    BRAID_RETURN_IF_ERROR(session->Save(folder.path() + "/well"));
    BRAID_RETURN_IF_ERROR(session->FinishSave());
    return session->Load(folder.path() + "/well");
  }));
}

// What was saved stays, also if nobody waits for it.
TEST(WorldSessionTest, AWorldThatClosesWhileItSaves) {
  const TempDir folder;
  const WorldEnd end = RunWorld(2, [&](dist::World& world) -> absl::Status {
    BRAID_ASSIGN_OR_RETURN(const auto session, Session::Start(world, {.progress = Progress::kOff}));
    BRAID_ASSIGN_OR_RETURN(auto job, session->Compile("train", [](Job& job) { Train(job, 16); }));
    BRAID_RETURN_IF_ERROR(job.Run(Fed(2)).status());
    BRAID_RETURN_IF_ERROR(session->Save(folder.path()));
    return world.Close();
  });
  ExpectAllWell(end);
  EXPECT_LT(end.wall, absl::Seconds(10));
  EXPECT_THAT(GetFile(folder / "latest"), HasSubstr("step-2"));
}

// What ranks do otherwise is an error on all of them, and they may go on.
TEST(WorldSessionTest, RanksMakeTheSameCalls) {
  ExpectAllWell(RunWorld(3, [](dist::World& world) -> absl::Status {
    const bool is_other = world.rank() == 1;
    BRAID_ASSIGN_OR_RETURN(const auto session, Session::Start(world, {.progress = Progress::kOff}));
    const auto recorded =
        session->Compile("train", [&](Job& job) { Train(job, is_other ? 17 : 16); });
    EXPECT_THAT(std::string(recorded.status().message()),
                HasSubstr("Compile of job 'train': all ranks record the same, and operator"));
    EXPECT_THAT(std::string(recorded.status().message()), HasSubstr("[4, 17]"));
    const auto named =
        session->Compile(absl::StrCat("job", is_other ? 1 : 0), [&](Job& job) { Train(job, 16); });
    EXPECT_THAT(std::string(named.status().message()),
                HasSubstr("rank 0 makes another one than rank 1: Compile of job 'job0'; Compile of "
                          "job 'job1'"));
    BRAID_ASSIGN_OR_RETURN(auto job, session->Compile("train", [](Job& job) { Train(job, 16); }));
    const auto steps = job.Run(Fed(is_other ? 3 : 2));
    EXPECT_THAT(std::string(steps.status().message()),
                HasSubstr("Run of job 'train', 2 steps from 0 on; Run of job 'train', 3 steps"));
    RunOptions fed = Fed(1);
    if (is_other) fed.feeds[0].second = Array(DType::kF32, {5, 4});
    const auto shape = job.Run(fed);
    EXPECT_THAT(std::string(shape.status().message()),
                HasSubstr("input 'x' of job 'train' is f32[12, 4]"));
    EXPECT_THAT(std::string(shape.status().message()), HasSubstr(is_other ? "input" : "rank 1: "));
    RunOptions other = Fed(1);
    if (is_other) other.feeds[0].second = Array(DType::kF32, {kBatch, 4});
    EXPECT_THAT(std::string(job.Run(other).status().message()),
                HasSubstr("steps from 0 on: all ranks feed the same, and input 0 is 'x: f32[12, 4] "
                          "with checksum"));
    return job.Run(Fed(1)).status();
  }));
}

// What fails on one rank while a job runs ends it on all, with the cause.
TEST(WorldSessionTest, AFailureIsThatOfAllRanks) {
  std::vector<std::string> errors(3);
  const WorldEnd end = RunWorld(3, [&](dist::World& world) -> absl::Status {
    BRAID_ASSIGN_OR_RETURN(const auto session, Session::Start(world, {.progress = Progress::kOff}));
    BRAID_ASSIGN_OR_RETURN(auto job, session->Compile("train", [](Job& job) { Train(job, 16); }));
    RunOptions options = Fed(1000);
    if (world.rank() == 1) {
      options.on_step = [](int64_t step, const StepValues&) {
        return step == 5 ? absl::ResourceExhaustedError("no room for step 5") : absl::OkStatus();
      };
    }
    const absl::Status status = job.Run(options).status();
    errors[world.rank()] = std::string(status.message());
    return status;
  });
  for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr("no room for step 5"));
  EXPECT_LT(end.wall, absl::Seconds(10));
}

TEST(WorldSessionTest, ARankThatEndsItsPartEndsTheOthers) {
  const WorldEnd end = RunWorld(2, [&](dist::World& world) -> absl::Status {
    BRAID_ASSIGN_OR_RETURN(const auto session, Session::Start(world, {.progress = Progress::kOff}));
    if (world.rank() == 1) return absl::OkStatus();
    return session->Compile("train", [](Job& job) { Train(job, 16); }).status();
  });
  EXPECT_THAT(std::string(end.programs[0].message()), HasSubstr("rank 1 has ended its part"));
  EXPECT_LT(end.wall, absl::Seconds(10));
}

TEST(WorldSessionTest, OptionsAreTheSameOnAllRanks) {
  ExpectAllWell(RunWorld(2, [](dist::World& world) -> absl::Status {
    const auto session = Session::Start(
        world, {.seed = static_cast<uint64_t>(world.rank()), .progress = Progress::kOff});
    EXPECT_THAT(std::string(session.status().message()),
                HasSubstr("Session::Start with seed 0, precision f32"));
    return absl::OkStatus();
  }));
}

// A session may outlive the end of its world's calls: it only has nothing to say any more.
TEST(WorldSessionTest, OutlivesTheWorldsClose) {
  const WorldEnd end = RunWorld(2, [](dist::World& world) -> absl::Status {
    BRAID_ASSIGN_OR_RETURN(const auto session, Session::Start(world, {.progress = Progress::kOff}));
    BRAID_ASSIGN_OR_RETURN(auto job, session->Compile("train", [](Job& job) { Train(job, 16); }));
    BRAID_RETURN_IF_ERROR(job.Run(Fed(2)).status());
    return world.Close();
  });
  ExpectAllWell(end);
  EXPECT_LT(end.wall, absl::Seconds(10));
}

TEST(WorldSessionTest, WhatIsMirroredOverSomeRanksIsNotEachRanksOwn) {
  ExpectAllWell(RunWorld(2, [](dist::World& world) -> absl::Status {
    BRAID_ASSIGN_OR_RETURN(const auto session, Session::Start(world, {.progress = Progress::kOff}));
    const auto job = session->Compile("some", [](Job& job) {
      job.On(job.devices().Slice(0, 1),
             [&] { job.Mirrored([&] { job.Fetch("x", job.Input("x", {4})); }); });
    });
    EXPECT_THAT(std::string(job.status().message()),
                HasSubstr("input 'x': it is mirrored (1 values), and each of 2 ranks has one"));
    return absl::OkStatus();
  }));
}

TEST(WorldSessionTest, WhatASessionOnAWorldIsNot) {
  ExpectAllWell(RunWorld(2, [](dist::World& world) -> absl::Status {
    EXPECT_THAT(std::string(Session::Start(world, {.devices = {2}}).status().message()),
                HasSubstr("each with one CPU device"));
    for (const auto& options :
         {SessionOptions{.stall_timeout = kSecond}, SessionOptions{.event_dump = "/tmp"}}) {
      EXPECT_THAT(std::string(Session::Start(world, options).status().message()),
                  HasSubstr("give stall_timeout, event_dump, interruption and on_failure to the"));
    }
    BRAID_ASSIGN_OR_RETURN(const auto session, Session::Start(world, {.progress = Progress::kOff}));
    EXPECT_THAT(std::string(Session::Start(world, {}).status().message()),
                HasSubstr("a session was started on this world before"));
    return session->Close(absl::OkStatus());
  }));
}

}  // namespace
}  // namespace braid
