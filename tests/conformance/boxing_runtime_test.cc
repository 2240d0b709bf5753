// Boxing end to end: a fed value is laid out one way, then another way elsewhere, and fetched.
// Every pair of layouts, on the same, overlapping and disjoint devices, through plans, threads and
// links.

#include <algorithm>
#include <iostream>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "api/session.h"
#include "gtest/gtest.h"
#include "tests/conformance/random_graph_coverage.h"
#include "tests/support/device_mix.h"
#include "tests/support/lagging_device.h"

namespace braid {
namespace {

using conformance::Coverage;

struct Pair {
  NdSbp source, destination;
};

// All pairs go through one job.
struct Case {
  Placement source, destination;
  DType dtype = DType::kF64;
  Shape shape = {7, 5};
  std::vector<Pair> pairs;
};

// More than devices, so that some hold several.
constexpr int64_t kAddends = 5;

const Sbp* FirstPartial(const NdSbp& sbp) {
  for (const Sbp& kind : sbp.dims()) {
    if (kind.is_partial()) return &kind;
  }
  return nullptr;
}

bool MixesPartials(const NdSbp& sbp) {
  const Sbp* first = FirstPartial(sbp);
  for (const Sbp& kind : sbp.dims()) {
    if (kind.is_partial() && kind != *first) return true;
  }
  return false;
}

// x in `layout`: if that is partial, every device's addend is a reduction of rows of its own.
Tensor Source(Tensor x, Tensor addends, const NdSbp& layout) {
  const Sbp* partial = FirstPartial(layout);
  if (partial == nullptr) return ToSbp(x, layout);
  NdSbp rows = layout;
  for (int dim = 0; dim < rows.rank(); ++dim) {
    if (layout[dim].is_partial()) rows[dim] = sbp::S(0);
    if (layout[dim].is_split()) rows[dim] = sbp::S(layout[dim].axis + 1);
  }
  const Tensor cut = ToSbp(addends, rows);
  const ReduceOptions first = {.axes = {0}};
  return ToSbp(*partial == sbp::P      ? ReduceSum(cut, first)
               : *partial == sbp::Pmax ? ReduceMax(cut, first)
                                       : ReduceMin(cut, first),
               layout);
}

// Whole numbers, so that sums are exact in any order.
std::vector<double> Numbers(int64_t n) {
  std::vector<double> numbers(n);
  for (int64_t i = 0; i < n; ++i) numbers[i] = static_cast<double>((i * 37 + 11) % 23 - 9);
  return numbers;
}

std::vector<double> Reduced(std::span<const double> addends, int64_t n, const Sbp& partial) {
  std::vector<double> result(addends.begin(), addends.begin() + n);
  for (size_t i = n; i < addends.size(); ++i) {
    double& at = result[i % n];
    at = partial == sbp::P      ? at + addends[i]
         : partial == sbp::Pmax ? std::max(at, addends[i])
                                : std::min(at, addends[i]);
  }
  return result;
}

void Check(Session& session, const Case& c, Coverage& coverage) {
  SCOPED_TRACE(absl::StrCat(c.source.ToString(), " -> ", c.destination.ToString(), ", ",
                            TensorType{c.dtype, c.shape}.ToString()));
  std::vector<int64_t> dims = c.shape.dims();
  dims.insert(dims.begin(), kAddends);
  const Shape addends_shape(dims);
  bool wants_x = false, wants_addends = false;
  for (const Pair& pair : c.pairs) (FirstPartial(pair.source) ? wants_addends : wants_x) = true;
  auto job = session.Compile("boxing", [&](Job& job) {
    const Tensor x = wants_x ? job.Input("x", c.shape, c.dtype) : Tensor();
    const Tensor addends = wants_addends ? job.Input("addends", addends_shape, c.dtype) : Tensor();
    std::map<NdSbp, Tensor> sources;
    for (const Pair& pair : c.pairs) {
      if (sources.contains(pair.source)) continue;
      sources[pair.source] = job.On(c.source, [&] { return Source(x, addends, pair.source); });
    }
    for (size_t i = 0; i < c.pairs.size(); ++i) {
      const Tensor source = sources[c.pairs[i].source];
      job.Fetch(std::to_string(i),
                job.On(c.destination, [&] { return ToSbp(source, c.pairs[i].destination); }));
    }
  });
  ASSERT_TRUE(job.ok()) << job.status().message();
  ASSERT_TRUE(coverage.Add(job->Explain(), session.operators()).ok());
  const auto x = Array::FromVector<double>(c.shape, Numbers(c.shape.num_elements())).As(c.dtype);
  const auto addends =
      Array::FromVector<double>(addends_shape, Numbers(addends_shape.num_elements())).As(c.dtype);
  RunOptions options = {.steps = 2};
  if (wants_x) options.feeds.emplace_back("x", x);
  if (wants_addends) options.feeds.emplace_back("addends", addends);
  const auto result = job->Run(options);
  ASSERT_TRUE(result.ok()) << result.status().message();
  const Array wide_x = x.As(DType::kF64), wide_addends = addends.As(DType::kF64);
  for (size_t i = 0; i < c.pairs.size(); ++i) {
    const Sbp* partial = FirstPartial(c.pairs[i].source);
    const std::span<const double> plain = wide_x.data<double>();
    const std::vector<double> expected =
        partial == nullptr ? std::vector<double>(plain.begin(), plain.end())
                           : Reduced(wide_addends.data<double>(), c.shape.num_elements(), *partial);
    const std::vector<Array>& steps = result->Values(std::to_string(i));
    ASSERT_EQ(steps.size(), 2u);
    for (const Array& step : steps) {
      ASSERT_EQ(step.shape(), c.shape);
      const Array wide = step.As(DType::kF64);
      const std::span<const double> actual = wide.data<double>();
      ASSERT_EQ(std::vector<double>(actual.begin(), actual.end()), expected)
          << c.pairs[i].source.ToString() << " -> " << c.pairs[i].destination.ToString();
    }
  }
  job->Unload();
}

std::unique_ptr<Session> Start(const std::vector<int>& cluster, DeviceMix mix = DeviceMix::kCpu) {
  auto session = Session::Start({.devices = cluster,
                                 .node_kinds = NodeKindsOf(mix, cluster.size()),
                                 .device_kinds = KindsWithLagging(),
                                 .progress = Progress::kOff});
  EXPECT_TRUE(session.ok()) << session.status().message();
  return *std::move(session);
}

std::vector<Pair> EveryPair(const std::vector<NdSbp>& sources,
                            const std::vector<NdSbp>& destinations) {
  std::vector<Pair> pairs;
  for (const NdSbp& source : sources) {
    for (const NdSbp& destination : destinations) pairs.push_back({source, destination});
  }
  return pairs;
}

const std::vector<NdSbp> kFlat = {sbp::S(0), sbp::S(1), sbp::B, sbp::P};

// With maxima and minima, which boxing resolves but never makes.
const std::vector<NdSbp> kFlatSources = {sbp::S(0), sbp::S(1), sbp::B,
                                         sbp::P,    sbp::Pmax, sbp::Pmin};

// All layouts of two dimensions.
std::vector<NdSbp> Squares(const std::vector<NdSbp>& kinds) {
  std::vector<NdSbp> layouts;
  for (const NdSbp& outer : kinds) {
    for (const NdSbp& inner : kinds) {
      const NdSbp layout = {outer[0], inner[0]};
      if (!MixesPartials(layout)) layouts.push_back(layout);
    }
  }
  return layouts;
}

void CheckFlatLayouts(const std::vector<std::vector<int>>& clusters, DeviceMix mix,
                      Coverage& coverage) {
  for (const std::vector<int>& cluster : clusters) {
    const auto session = Start(cluster, mix);
    const Placement& all = session->devices();
    for (int p1 = 1; p1 <= 4; ++p1) {
      for (int p2 = 1; p2 <= 4; ++p2) {
        // The same or nested, overlapping by all but one, disjoint.
        for (const int first : std::set<int>{0, 1, p1}) {
          if (first + p2 > all.size()) continue;
          // Eight devices are here for what four cannot hold.
          if (all.size() == 8 && first + p2 <= 4) continue;
          Check(*session,
                {.source = all.Slice(0, p1),
                 .destination = all.Slice(first, p2),
                 .shape = (p1 + p2) % 2 == 0 ? Shape{7, 5} : Shape{2, 9},
                 .pairs = EveryPair(kFlatSources, kFlat)},
                coverage);
          if (testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(BoxingRuntimeTest, EveryFlatLayoutToEveryOther) {
  Coverage coverage;
  CheckFlatLayouts({{4}, {2, 2}, {1, 2, 1}, {4, 4}}, DeviceMix::kCpu, coverage);
  std::cout << coverage.Report();
  EXPECT_EQ(coverage.MissingRules(), std::vector<std::string>());
}

TEST(BoxingRuntimeTest, EveryFlatLayoutOnLaggingDevices) {
  Coverage coverage;
  CheckFlatLayouts({{4}, {1, 2, 1}}, DeviceMix::kLagging, coverage);
  CheckFlatLayouts({{2, 2}, {1, 2, 1}}, DeviceMix::kMixed, coverage);
}

TEST(BoxingRuntimeTest, EveryTwoDimensionalLayoutToEveryOther) {
  Coverage coverage;
  const std::vector<NdSbp> layouts = Squares(kFlat);
  const auto session = Start({2, 2});
  const Placement square = *session->devices().WithHierarchy({2, 2});
  for (const NdSbp& source : Squares(kFlatSources)) {
    Check(*session,
          {.source = square, .destination = square, .pairs = EveryPair({source}, layouts)},
          coverage);
    if (HasFatalFailure()) return;
  }
  std::cout << coverage.Report();
}

// Hierarchies of other ranks and sizes, and devices in another order.
TEST(BoxingRuntimeTest, BetweenHierarchies) {
  Coverage coverage;
  const std::vector<NdSbp> layouts = {
      {sbp::S(0), sbp::S(0)}, {sbp::S(1), sbp::S(0)}, {sbp::B, sbp::S(0)}, {sbp::P, sbp::S(1)},
      {sbp::S(0), sbp::P},    {sbp::P, sbp::B},       {sbp::P, sbp::P}};
  const std::vector<NdSbp> flat = {sbp::S(0), sbp::S(1), sbp::B, sbp::P};
  for (const std::vector<int>& cluster : std::vector<std::vector<int>>{{2, 2}, {1, 2, 1}, {3, 3}}) {
    const auto session = Start(cluster);
    const Placement& all = session->devices();
    const Placement four = all.Slice(0, 4);
    const Placement square = *four.WithHierarchy({2, 2});
    std::vector<DeviceId> reversed(four.devices().rbegin(), four.devices().rend());
    const Placement backwards(all.device_type(), reversed);
    std::vector<Case> cases = {
        {.source = square, .destination = four, .pairs = EveryPair(layouts, flat)},
        {.source = four, .destination = square, .pairs = EveryPair(flat, layouts)},
        {.source = square,
         .destination = *backwards.WithHierarchy({2, 2}),
         .pairs = EveryPair(layouts, layouts)},
        {.source = four, .destination = backwards, .pairs = EveryPair(flat, flat)},
        {.source = square, .destination = all.Slice(1, 3), .pairs = EveryPair(layouts, flat)},
        {.source = all.Slice(1, 2), .destination = square, .pairs = EveryPair(flat, layouts)}};
    if (all.size() == 6) {
      const Placement wide = *all.WithHierarchy({2, 3}), tall = *all.WithHierarchy({3, 2});
      cases.push_back({.source = wide, .destination = tall, .pairs = EveryPair(layouts, layouts)});
      cases.push_back(
          {.source = tall, .destination = square, .pairs = EveryPair(layouts, layouts)});
    }
    for (const Case& c : cases) {
      Check(*session, c, coverage);
      if (HasFatalFailure()) return;
    }
  }
  std::cout << coverage.Report();
}

TEST(BoxingRuntimeTest, EveryElementType) {
  Coverage coverage;
  const auto session = Start({2, 2});
  const Placement& all = session->devices();
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kI32, DType::kI64,
                            DType::kU8, DType::kBool}) {
    const std::vector<NdSbp> whole = {sbp::S(0), sbp::S(1), sbp::B};
    const bool has_sums = dtype != DType::kBool && dtype != DType::kU8;
    for (const int first : {0, 1, 2}) {
      for (const int p2 : {2, 3}) {
        if (first + p2 > all.size()) continue;
        Check(*session,
              {.source = all.Slice(0, first == 2 ? 2 : 3),
               .destination = all.Slice(first, p2),
               .dtype = dtype,
               .pairs = has_sums ? EveryPair(kFlatSources, kFlat) : EveryPair(whole, whole)},
              coverage);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(BoxingRuntimeTest, LayoutsThatCannotBeMadeAreTheUsersErrors) {
  const auto session = Start({2, 2});
  const Placement square = *session->devices().WithHierarchy({2, 2});
  for (const NdSbp& layout : {NdSbp{sbp::Pmax, sbp::Pmax}, NdSbp{sbp::P, sbp::Pmin}}) {
    const auto job = session->Compile("job", [&](Job& job) {
      const Tensor x = job.Input("x", {4, 4});
      job.Fetch("y", job.On(square, [&] { return ToSbp(x, layout); }));
    });
    EXPECT_EQ(job.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(job.status().message().find(layout.ToString()), std::string_view::npos);
  }
}

}  // namespace
}  // namespace braid
