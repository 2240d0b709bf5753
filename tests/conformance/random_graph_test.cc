// Random jobs, laid out at random over a random cluster, compute what they compute on one CPU, on
// whatever kinds of devices.
// BRAID_GRAPH_SEEDS says how many, BRAID_GRAPH_FIRST where to begin: a failing seed alone is
// BRAID_GRAPH_FIRST=<seed> BRAID_GRAPH_SEEDS=1.

#include <algorithm>
#include <cmath>
#include <iostream>
#include <map>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "api/session.h"
#include "gtest/gtest.h"
#include "runtime/base/status.h"
#include "tests/conformance/random_graph_coverage.h"
#include "tests/conformance/random_graph_job.h"
#include "tests/conformance/random_graph_layout.h"
#include "tests/support/device_mix.h"
#include "tests/support/from_environment.h"
#include "tests/support/lagging_device.h"

namespace braid::conformance {
namespace {

constexpr int kDefaultSeeds = 4000;
constexpr int kEnoughSeeds = 400;     // to need every rule of boxing, and all but a few
constexpr double kMostMissing = 0.1;  // of the signatures; all seeds need every one
constexpr int kLaggingSeeds = 100;    // if there are not fewer
constexpr int64_t kSteps = 3;
// Of the largest element of a value; and of nothing, for values that are zero but for rounding.
constexpr double kRelative = 1e-9, kAbsolute = 1e-12;

struct Outcome {
  std::map<std::string, std::vector<Array>> values;  // fetches by step, then variables
  std::string explanation;
};

absl::StatusOr<Outcome> RunJob(const std::vector<int>& cluster, DeviceMix mix,
                               const RandomJob& options) {
  BRAID_ASSIGN_OR_RETURN(const auto session,
                         Session::Start({.devices = cluster,
                                         .node_kinds = NodeKindsOf(mix, cluster.size()),
                                         .device_kinds = KindsWithLagging(),
                                         .seed = options.seed,
                                         .layout_seed = DrawLayoutSeed(options.seed),
                                         .progress = Progress::kOff}));
  std::vector<std::string> fetches;
  BRAID_ASSIGN_OR_RETURN(CompiledJob job, session->Compile("random", [&](Job& job) {
    RecordRandomJob(job, options);
    for (const Op& op : job.graph().ops()) {
      if (op.type == "fetch") fetches.push_back(op.attrs.String("name"));
    }
  }));
  Outcome outcome;
  outcome.explanation = job.Explain();
  RunOptions run = {.steps = kSteps};
  for (auto& feed : FeedsOf(options.seed)) {
    // An input that nothing reads is not in the job.
    if (outcome.explanation.find(absl::StrCat(" = input \"", feed.first, "\"")) !=
        std::string::npos) {
      run.feeds.push_back(std::move(feed));
    }
  }
  BRAID_ASSIGN_OR_RETURN(const RunResult result, job.Run(run));
  for (const std::string& name : fetches) outcome.values["fetch " + name] = result.Values(name);
  for (const std::string& name : session->variables()) {
    BRAID_ASSIGN_OR_RETURN(Array value, session->Get(name));
    outcome.values["variable " + name] = {std::move(value)};
  }
  return outcome;
}

// "" if equal within the bounds.
std::string Difference(const Array& actual, const Array& expected) {
  if (actual.shape() != expected.shape()) return "shapes differ";
  const Array wide_actual = actual.As(DType::kF64), wide_expected = expected.As(DType::kF64);
  const std::span<const double> a = wide_actual.data<double>(), e = wide_expected.data<double>();
  double largest = 0;
  for (double number : e) largest = std::max(largest, std::abs(number));
  if (!std::isfinite(largest) || largest > 1e6) return absl::StrFormat("grew to %g", largest);
  for (size_t i = 0; i < e.size(); ++i) {
    if (std::abs(a[i] - e[i]) <= kRelative * largest + kAbsolute) continue;
    return absl::StrFormat("element %d is %.17g, on one device %.17g (largest %g)", i, a[i], e[i],
                           largest);
  }
  return "";
}

bool CannotBeCut(const absl::Status& status) {
  return absl::IsInvalidArgument(status) && absl::StrContains(status.message(), "micro_batches");
}

// Runs a seed; `micro_batches` becomes 1 if the job cannot be cut, which does not depend on where
// it runs.
void Check(uint64_t seed, DeviceMix mix, Coverage& coverage, std::map<std::string, int>& counts) {
  const std::vector<int> cluster = ClusterOf(seed);
  int micro_batches = MicroBatchesOf(seed);
  const auto run_one = [&] {
    return RunJob({1}, DeviceMix::kCpu, {.seed = seed, .micro_batches = micro_batches});
  };
  absl::StatusOr<Outcome> one = run_one();
  if (micro_batches > 1 && CannotBeCut(one.status())) {
    ++counts["not to be cut"];
    micro_batches = 1;
    one = run_one();
  }
  const absl::StatusOr<Outcome> many =
      RunJob(cluster, mix, {.seed = seed, .is_spread = true, .micro_batches = micro_batches});
  ASSERT_TRUE(one.ok()) << one.status().message();
  ASSERT_TRUE(many.ok()) << many.status().message();
  if (micro_batches > 1) ++counts["with micro-batches"];
  ++counts[absl::StrCat("on [", absl::StrJoin(cluster, ", "), "]")];
  const absl::Status covered = coverage.Add(many->explanation, BuiltinOps());
  ASSERT_TRUE(covered.ok()) << covered.message();
  ASSERT_EQ(one->values.size(), many->values.size());
  for (const auto& [name, expected] : one->values) {
    ASSERT_TRUE(many->values.contains(name)) << name;
    const std::vector<Array>& actual = many->values.at(name);
    ASSERT_EQ(actual.size(), expected.size()) << name;
    for (size_t step = 0; step < expected.size(); ++step) {
      ASSERT_EQ(Difference(actual[step], expected[step]), "") << name << ", step " << step;
    }
  }
}

// Checks `seeds` jobs; `coverage` is what they need of the boxing rules.
void CheckAll(int64_t seeds, DeviceMix mix, Coverage& coverage) {
  const auto first = static_cast<int64_t>(FromEnvironment("BRAID_GRAPH_FIRST", 0));
  std::map<std::string, int> counts;
  for (int64_t seed = first; seed < first + seeds; ++seed) {
    SCOPED_TRACE(absl::StrCat("BRAID_GRAPH_FIRST=", seed, " BRAID_GRAPH_SEEDS=1"));
    Check(static_cast<uint64_t>(seed), mix, coverage, counts);
  }
  std::cout << seeds << " jobs:";
  for (const auto& [what, count] : counts) std::cout << "  " << count << " " << what;
  std::cout << "\n" << coverage.Report();
}

TEST(RandomGraphTest, EqualsOneDevice) {
  const auto seeds = static_cast<int64_t>(FromEnvironment("BRAID_GRAPH_SEEDS", kDefaultSeeds));
  Coverage coverage;
  CheckAll(seeds, DeviceMix::kCpu, coverage);
  if (seeds < kEnoughSeeds) return;  // a replay, or a sanitizer's
  EXPECT_EQ(coverage.MissingRules(), std::vector<std::string>());
  EXPECT_LE(coverage.MissingShare(), kMostMissing);
  if (seeds >= kDefaultSeeds) {
    EXPECT_EQ(coverage.MissingSignatures(), std::vector<std::string>());
  }
}

class RandomGraphOnLaggingDevices : public testing::TestWithParam<DeviceMix> {};

TEST_P(RandomGraphOnLaggingDevices, EqualsOneCpu) {
  Coverage coverage;
  CheckAll(std::min<int64_t>(kLaggingSeeds, static_cast<int64_t>(FromEnvironment(
                                                "BRAID_GRAPH_SEEDS", kLaggingSeeds))),
           GetParam(), coverage);
}

INSTANTIATE_TEST_SUITE_P(Mixes, RandomGraphOnLaggingDevices,
                         testing::Values(DeviceMix::kLagging, DeviceMix::kMixed),
                         [](const auto& mix) { return NameOf(mix.param); });

}  // namespace
}  // namespace braid::conformance
