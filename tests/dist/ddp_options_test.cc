// Options of mirrored gradients together: any two, and within two dimensions.
#include <braid/braid.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/dist/ddp_case.h"

namespace braid::ddp {
namespace {

// Mirrored over the first dimension, with weights that are split over the second one: data
// parallelism of tensor parallelism.
TEST(DdpOptionsTest, AroundTensorParallelism) {
  const GradientHook sum = [](Tensor bucket, const std::string&) { return SumMirrored(bucket); };
  std::vector<std::vector<float>> weights;
  for (const std::optional<Ddp>& ddp : {std::optional<Ddp>(),
                                        {Ddp{.hook = sum}},
                                        {Ddp{.no_sync = true}},
                                        {Ddp{.hook = PowerSgd{.rank = 100}, .no_sync = true}}}) {
    const auto session = Session::Start({.devices = {2, 2}, .seed = 5, .progress = Progress::kOff});
    ASSERT_TRUE(session.ok()) << session.status();
    auto job = (*session)->Compile("train", [&](Job& job) {
      job.On(job.devices().WithHierarchy({2, 2}), [&] {
        const auto inputs = Inputs(job, kBatch);
        const Tensor loss = job.Mirrored({0}, [&] {
          const Tensor x = MirrorParts(inputs.first), y = MirrorParts(inputs.second);
          const Tensor h =
              Relu(Linear(x, 16, {.name = "hidden", .weight = NdSbp{sbp::B, sbp::S(1)}}));
          const Tensor out = Linear(h, 3, {.name = "out", .weight = NdSbp{sbp::B, sbp::S(0)}});
          return MeanMirrored(Mean(SoftmaxCrossEntropy(out, y)));
        });
        job.Minimize(loss, Sgd{.lr = 0.1}, {.ddp = ddp});
      });
    });
    ASSERT_TRUE(job.ok()) << job.status();
    for (int64_t i = 0; i < 3; ++i) {
      const absl::Status ran = job->Run({.feeds = Batch(i)}).status();
      ASSERT_TRUE(ran.ok()) << ran;
    }
    const auto trained = Weights(**session);
    ASSERT_TRUE(trained.ok()) << trained.status();
    weights.push_back(*trained);
    ExpectNear(weights.back(), weights[0], 2e-5, absl::StrCat(weights.size()));
  }
}

struct Choice {
  std::string name;
  std::function<void(Training&)> make;
};
using Dimension = std::vector<Choice>;

std::vector<Dimension> Dimensions() {
  const auto ddp = [](Training& training) -> Ddp& {
    if (!training.options.ddp.has_value()) training.options.ddp = Ddp();
    return *training.options.ddp;
  };
  const auto join = [](JoinDivisor by) {
    return [by](Training& training) {
      training.mean = [by](Tensor own) {
        // Device 0 has no data.
        const Mirroring mirroring = *own.mirroring();
        const Tensor number = Iota(*own.graph(), {DType::kI64, {mirroring.parts}});
        const Tensor live = MirrorParts(
            Minimum(Cast(number, DType::kF32), Constant(*own.graph(), 1, {.dtype = DType::kF32})));
        return MeanOfLive(own, Reshape(live, {}), by);
      };
    };
  };
  const auto sum = [](Tensor bucket, const std::string&) { return SumMirrored(bucket); };
  return {
      {{"no hook", [](Training&) {}},
       {"own hook", [=](Training& t) { ddp(t).hook = sum; }},
       {"bf16", [=](Training& t) { ddp(t).hook = Bf16Gradients(); }},
       {"whole PowerSgd", [=](Training& t) { ddp(t).hook = PowerSgd{.rank = 100}; }}},
      {{"sync", [](Training&) {}},
       {"no_sync", [=](Training& t) { ddp(t).no_sync = true, t.runs_a_step = 2; }}},
      {{"all live", [](Training&) {}},
       {"join by live", join(JoinDivisor::kLive)},
       {"join by all", join(JoinDivisor::kAll)}},
      {{"large buckets", [](Training&) {}},
       {"small buckets",
        [=](Training& t) { ddp(t).first_bucket_bytes = 8, ddp(t).bucket_bytes = 200; }}},
      {{"whole batch", [](Training&) {}},
       {"micro-batches", [](Training& t) { t.options.micro_batches = 2; }}},
      {{"free", [](Training&) {}},
       {"clipped", [](Training& t) { t.options.clip_global_norm = 0.05; }}},
      {{"all alike", [](Training&) {}},
       {"groups",
        [](Training& t) {
          t.options.groups = {{.names = "*.bias", .rate = 0.5},
                              {.names = "hidden.weight", .is_frozen = true}};
        }}},
      {{"f32", [](Training&) {}},
       {"f16", [](Training& t) { t.precision = DType::kF16; }},
       {"bf16 products", [](Training& t) { t.precision = DType::kBF16; }}},
      {{"2 devices", [](Training&) {}},
       {"3 nodes",
        [](Training& t) {
          t.devices = {1, 1, 1};
        }},
       {"devices that lag", [](Training& t) { t.kinds = {"lagging"}; }}},
  };
}

// Choices, by dimension, of which any two are in some of them.
std::vector<std::vector<int>> Pairwise(const std::vector<Dimension>& dimensions) {
  std::mt19937 chance(7);
  std::set<std::array<int, 4>> open;
  for (int a = 0; a < static_cast<int>(dimensions.size()); ++a) {
    for (int b = a + 1; b < static_cast<int>(dimensions.size()); ++b) {
      for (int i = 0; i < static_cast<int>(dimensions[a].size()); ++i) {
        for (int j = 0; j < static_cast<int>(dimensions[b].size()); ++j) open.insert({a, i, b, j});
      }
    }
  }
  std::vector<std::vector<int>> sets;
  while (!open.empty()) {
    std::vector<int> best;
    size_t most = 0;
    const auto count = [&](const std::vector<int>& set) {
      return static_cast<size_t>(std::ranges::count_if(open, [&](const std::array<int, 4>& pair) {
        return set[pair[0]] == pair[1] && set[pair[2]] == pair[3];
      }));
    };
    for (int tried = 0; tried < 100 || most == 0; ++tried) {
      std::vector<int> set;
      for (const Dimension& dimension : dimensions) {
        set.push_back(static_cast<int>(chance() % dimension.size()));
      }
      if (const size_t covered = count(set); covered > most) {
        most = covered;
        best = set;
      }
    }
    std::erase_if(open, [&](const std::array<int, 4>& pair) {
      return best[pair[0]] == pair[1] && best[pair[2]] == pair[3];
    });
    sets.push_back(best);
  }
  return sets;
}

TEST(DdpOptionsTest, AnyTwoOptionsWorkTogether) {
  const std::vector<Dimension> dimensions = Dimensions();
  for (const std::vector<int>& set : Pairwise(dimensions)) {
    Training training = {.steps = 2};
    std::string what;
    for (size_t i = 0; i < set.size(); ++i) {
      const Choice& choice = dimensions[i][set[i]];
      choice.make(training);
      absl::StrAppend(&what, i == 0 ? "" : ", ", choice.name);
    }
    const bool is_narrow =
        training.precision != DType::kF32 || what.find("bf16") != std::string::npos;
    ExpectSame(training, is_narrow ? 4e-3 : 2e-5, what);
  }
}

}  // namespace
}  // namespace braid::ddp
