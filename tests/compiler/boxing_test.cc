// Boxing conformance on real numbers: every way of laying a tensor out, to every other, by the
// rules one by one and by the planner's routes.
#include "compiler/boxing/boxing.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "compiler/boxing/edge.h"
#include "gtest/gtest.h"
#include "runtime/base/seeded_choice.h"
#include "tests/compiler/interpreter.h"

namespace braid::compiler {
namespace {

// Devices first, first + 1, ... with four to a node.
Placement RowOf4s(int first, int count) {
  std::vector<DeviceId> devices;
  for (int i = first; i < first + count; ++i) devices.push_back({i / 4, i % 4});
  return Placement("cpu", devices);
}

Placement RowOf4s(int first, std::vector<int64_t> hierarchy) {
  int64_t count = 1;
  for (int64_t n : hierarchy) count *= n;
  return *RowOf4s(first, static_cast<int>(count)).WithHierarchy(std::move(hierarchy));
}

struct End {
  Placement placement;
  NdSbp sbp;
};

BoxingEdge EdgeOf(Shape shape, End source, End destination) {
  BoxingEdge edge;
  edge.type.shape = std::move(shape);
  edge.source = std::move(source.placement);
  edge.source_sbp = std::move(source.sbp);
  edge.destination = std::move(destination.placement);
  edge.destination_sbp = std::move(destination.sbp);
  return edge;
}

std::string Describe(const BoxingEdge& edge) {
  return absl::StrCat(edge.type.ToString(), " ", edge.source.ToString(), " ",
                      edge.source_sbp.ToString(), " -> ", edge.destination.ToString(), " ",
                      edge.destination_sbp.ToString());
}

// Rules that stood in some route or were tried alone.
using Coverage = std::set<std::string, std::less<>>;

// Builds `steps`, runs them on numbers, and holds values and counted bytes against the claims.
// `alone`: a rule by itself, whose busiest device is checked too (those of a chain's steps differ).
void CheckSteps(const BoxingEdge& edge, std::span<const BoxingStep> steps, bool alone) {
  const Shape act_shape = [&edge] {
    Shape shape = edge.type.shape;
    if (edge.micro_batch_sbp.is_split()) shape[edge.micro_batch_sbp.axis] /= edge.micro_batches;
    return shape;
  }();
  const Numbers logical = TestValues(act_shape);
  PhysicalGraph graph;
  Register input;
  input.name = "x";
  input.placement = edge.source;
  input.parts.emplace_back().layout = SourceLayout(edge);
  const GroupRegisterId start = graph.AddRegister(std::move(input)).id;
  int64_t total_bytes = 0, busiest_bytes = 0;
  for (const BoxingStep& step : steps) {
    total_bytes += step.cost.total_bytes;
    busiest_bytes += step.cost.busiest_bytes;
  }
  auto [result, part] = BuildRoute(
      steps, {.reg = start, .part = 0, .acts_per_step = 1, .name = "x", .location = {}}, graph);
  EXPECT_EQ(part, 0);
  Interpreter interpreter(graph);
  interpreter.Set(start, Cut(logical, SourceLayout(edge), edge.source));
  for (const TaskGroup& group : graph.groups()) interpreter.Run(group);
  ASSERT_EQ(Compare(interpreter.Get(result), logical, DestinationLayout(edge), edge.destination),
            "")
      << Describe(edge) << "\n"
      << graph.ToString();
  EXPECT_EQ(interpreter.total_bytes(), total_bytes) << Describe(edge) << "\n" << graph.ToString();
  if (alone) {
    EXPECT_EQ(interpreter.busiest_bytes(), busiest_bytes) << Describe(edge) << "\n"
                                                          << graph.ToString();
  }
}

void CheckEdge(const BoxingEdge& edge, BoxingPlanner& planner, Coverage& coverage) {
  for (const BoxingRule& rule : BoxingRules()) {
    if (!rule.matches(edge)) continue;
    coverage.insert(std::string(rule.name));
    const BoxingStep step = {rule.name, edge, rule.cost(edge, planner.machine())};
    CheckSteps(edge, {&step, 1}, /*alone=*/true);
    if (testing::Test::HasFatalFailure()) return;
  }
  for (const BoxingStep& step : planner.Route(edge)) coverage.insert(std::string(step.rule));
  CheckSteps(edge, planner.Route(edge), /*alone=*/false);
}

TEST(Boxing, EveryFlatLayoutToEveryOther) {
  const std::vector<Sbp> kinds = {sbp::S(0), sbp::S(1), sbp::B, sbp::P, sbp::Pmax, sbp::Pmin};
  BoxingPlanner planner;
  Coverage coverage;
  for (const Shape& shape : {Shape{7, 5}, Shape{4, 12}, Shape{1, 3}, Shape{2, 0}}) {
    for (int p1 = 1; p1 <= 4; ++p1) {
      for (int p2 = 1; p2 <= 4; ++p2) {
        // The same or nested, overlapping by all but one, and disjoint.
        for (int first : {0, 1, 4}) {
          for (const Sbp& from : kinds) {
            for (const Sbp& to : kinds) {
              CheckEdge(EdgeOf(shape, {RowOf4s(0, p1), from}, {RowOf4s(first, p2), to}), planner,
                        coverage);
              if (HasFatalFailure()) return;
            }
          }
        }
      }
    }
  }
  for (const BoxingRule& rule : BoxingRules()) {
    EXPECT_TRUE(coverage.count(rule.name)) << rule.name << " was never tried";
  }
}

TEST(Boxing, ScalarsAndTimeSplits) {
  BoxingPlanner planner;
  Coverage coverage;
  for (int first : {0, 1, 4}) {
    for (const Sbp& from : {sbp::B, sbp::P, sbp::Pmax}) {
      for (const Sbp& to : {sbp::B, sbp::P, sbp::Pmax}) {
        BoxingEdge edge = EdgeOf({}, {RowOf4s(0, 3), from}, {RowOf4s(first, 2), to});
        edge.type.dtype = DType::kF64;
        CheckEdge(edge, planner, coverage);
      }
    }
    for (const Sbp& from : {sbp::S(0), sbp::S(1), sbp::B, sbp::P}) {
      for (const Sbp& to : {sbp::S(0), sbp::S(1), sbp::B, sbp::P}) {
        BoxingEdge edge = EdgeOf({10, 3}, {RowOf4s(0, 3), from}, {RowOf4s(first, 3), to});
        edge.micro_batch_sbp = sbp::S(0);
        edge.micro_batches = 2;
        CheckEdge(edge, planner, coverage);
      }
    }
  }
}

std::vector<NdSbp> AllNdSbps(int dims, const std::vector<Sbp>& kinds) {
  std::vector<NdSbp> all = {NdSbp::Uniform(dims, sbp::B)};
  for (int dim = 0; dim < dims; ++dim) {
    std::vector<NdSbp> finer;
    for (const NdSbp& sbp : all) {
      for (const Sbp& kind : kinds) {
        finer.push_back(sbp);
        finer.back()[dim] = kind;
      }
    }
    all = std::move(finer);
  }
  return all;
}

TEST(Boxing, EveryTwoDimensionalLayoutOnOnePlacement) {
  const std::vector<NdSbp> layouts = AllNdSbps(2, {sbp::S(0), sbp::S(1), sbp::B, sbp::P});
  BoxingPlanner planner;
  Coverage coverage;
  for (const Shape& shape : {Shape{7, 5}, Shape{8, 4}}) {
    for (const std::vector<int64_t>& hierarchy :
         {std::vector<int64_t>{2, 2}, {2, 3}, {1, 3}, {2, 1}}) {
      const Placement placement = RowOf4s(0, hierarchy);
      for (const NdSbp& from : layouts) {
        for (const NdSbp& to : layouts) {
          CheckEdge(EdgeOf(shape, {placement, from}, {placement, to}), planner, coverage);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(Boxing, RandomLayoutsAcrossPlacements) {
  const std::vector<std::vector<int64_t>> hierarchies = {{2},    {3},    {4},    {2, 2},   {2, 3},
                                                         {3, 2}, {1, 4}, {4, 1}, {2, 2, 2}};
  const std::vector<Sbp> kinds = {sbp::S(0), sbp::S(1), sbp::S(2), sbp::B, sbp::P};
  SeededChoice choose(7);
  BoxingPlanner planner;
  Coverage coverage;
  for (int round = 0; round < 600; ++round) {
    auto pick = [&choose](const auto& from) { return from[choose.Below(from.size())]; };
    auto layout = [&](const Placement& placement) {
      std::vector<Sbp> dims;
      for (size_t dim = 0; dim < placement.hierarchy().size(); ++dim) dims.push_back(pick(kinds));
      return NdSbp(std::move(dims));
    };
    BoxingEdge edge;
    edge.source = RowOf4s(0, pick(hierarchies));
    edge.destination = RowOf4s(pick(std::vector<int>{0, 1, 8}), pick(hierarchies));
    edge.source_sbp = layout(edge.source);
    edge.destination_sbp = layout(edge.destination);
    std::vector<int64_t> shape;
    for (int axis = 0; axis < 3; ++axis) shape.push_back(1 + choose.Below(7));
    edge.type.shape = Shape(shape);
    CheckEdge(edge, planner, coverage);
    if (HasFatalFailure()) return;
  }
}

// T is large, so that bytes and not latency decide.
constexpr int64_t kRows = 12 << 10, kColumns = 12 << 10;
constexpr int64_t kT = kRows * kColumns * 4;

int64_t TableBytes(const Sbp& from, const Sbp& to, int p1, int p2, int first) {
  BoxingPlanner planner;
  const BoxingEdge edge =
      EdgeOf({kRows, kColumns}, {RowOf4s(0, p1), from}, {RowOf4s(first, p2), to});
  int64_t bytes = 0;
  for (const BoxingStep& step : planner.Route(edge)) bytes += step.cost.total_bytes;
  return bytes;
}

TEST(Boxing, SameDevicesMoveWhatTheTableSays) {
  for (int p = 1; p <= 4; ++p) {
    auto bytes = [p](const Sbp& from, const Sbp& to) { return TableBytes(from, to, p, p, 0); };
    const Sbp i = sbp::S(0), j = sbp::S(1), b = sbp::B, s = sbp::P;
    EXPECT_EQ(bytes(i, i), 0);
    EXPECT_EQ(bytes(i, j), (p - 1) * kT / p);
    EXPECT_EQ(bytes(i, b), (p - 1) * kT);
    EXPECT_EQ(bytes(j, b), (p - 1) * kT);
    EXPECT_EQ(bytes(i, s), 0);
    EXPECT_EQ(bytes(b, i), 0);
    EXPECT_EQ(bytes(b, b), 0);
    EXPECT_EQ(bytes(b, s), 0);
    EXPECT_EQ(bytes(s, i), (p - 1) * kT);
    EXPECT_EQ(bytes(s, j), (p - 1) * kT);
    EXPECT_EQ(bytes(s, b), 2 * (p - 1) * kT);
    EXPECT_EQ(bytes(sbp::Pmax, b), 2 * (p - 1) * kT);
    EXPECT_EQ(bytes(s, s), 0);
  }
}

TEST(Boxing, DisjointDevicesMoveWhatTheTableSays) {
  for (int p1 = 1; p1 <= 4; ++p1) {
    for (int p2 = 1; p2 <= 4; ++p2) {
      auto bytes = [p1, p2](const Sbp& from, const Sbp& to) {
        return TableBytes(from, to, p1, p2, 8);
      };
      const Sbp i = sbp::S(0), j = sbp::S(1), b = sbp::B, s = sbp::P;
      SCOPED_TRACE(absl::StrCat(p1, " to ", p2));
      EXPECT_EQ(bytes(i, i), kT);
      EXPECT_EQ(bytes(i, j), kT);
      EXPECT_EQ(bytes(i, b), p2 * kT);
      EXPECT_EQ(bytes(i, s), kT);
      EXPECT_EQ(bytes(b, i), kT);
      EXPECT_EQ(bytes(b, b), p2 * kT);
      EXPECT_EQ(bytes(b, s), kT);
      EXPECT_EQ(bytes(s, i), p1 * kT);
      EXPECT_EQ(bytes(s, b), (p1 + p2 - 1) * kT);
      EXPECT_EQ(bytes(s, s), p1 * kT);
    }
  }
}

// Routes in words: "all_reduce dim=1; relayout".
std::string Route(std::string_view from, std::string_view to, const Placement& source,
                  const Placement& destination, const Shape& shape) {
  BoxingPlanner planner;
  std::string text;
  const BoxingEdge edge =
      EdgeOf(shape, {source, *NdSbp::Parse(from)}, {destination, *NdSbp::Parse(to)});
  for (const BoxingStep& step : planner.Route(edge)) {
    absl::StrAppend(&text, text.empty() ? "" : "; ", std::string(step.rule), " ",
                    step.edge.source_sbp.ToString(), "->", step.edge.destination_sbp.ToString());
  }
  return text;
}

TEST(Boxing, RoutesInTwoDimensions) {
  const Placement grid = RowOf4s(0, std::vector<int64_t>{2, 4});
  auto route = [&](std::string_view from, std::string_view to) {
    return Route(from, to, grid, grid, {1024, 1024});
  };
  EXPECT_EQ(route("[P, P]", "[B, B]"), "all_reduce [P, P]->[B, B]");
  EXPECT_EQ(route("[P, S(0)]", "[B, S(0)]"), "all_reduce [P, S(0)]->[B, S(0)]");
  EXPECT_EQ(route("[S(0), S(0)]", "[B, B]"), "all_gather [S(0), S(0)]->[B, B]");
  EXPECT_EQ(route("[S(0), S(1)]", "[S(0), B]"), "all_gather [S(0), S(1)]->[S(0), B]");
  EXPECT_EQ(route("[B, B]", "[S(1), S(0)]"), "relayout [B, B]->[S(1), S(0)]");
  // Each rank reads the one addend that it lacks of just its own box: no chain moves less.
  EXPECT_EQ(route("[P, B]", "[S(0), S(0)]"), "slice_exchange [P, B]->[S(0), S(0)]");
}

// The flat and the nested view of the same devices hold the same boxes where parts are even.
TEST(Boxing, HierarchiesOfTheSameDevices) {
  const Placement flat = RowOf4s(0, 8), grid = RowOf4s(0, std::vector<int64_t>{2, 4});
  EXPECT_EQ(Route("S(0)", "[S(0), S(0)]", flat, grid, {64, 64}), "");
  EXPECT_EQ(Route("B", "[B, B]", flat, grid, {63, 64}), "");
  EXPECT_EQ(Route("P", "[P, P]", flat, grid, {63, 64}), "");
  EXPECT_EQ(Route("P", "[B, B]", flat, grid, {1024, 1024}), "all_reduce [P, P]->[B, B]");
}

// The default's rates take a ring for a tree, as deep as two sums of two. Where rates are known, a
// ring of four pays for its six messages: two sums of two take two; a sum between two others' parts
// takes three, and moves no more bytes than the ring.
TEST(Boxing, KnownMachinesPayForTheMessagesThatRun) {
  std::vector<DeviceId> devices;
  for (int node = 0; node < 4; ++node) devices.push_back({node, 0});
  const Placement grid = *Placement("cpu", devices).WithHierarchy({2, 2});
  const auto rules = [&grid](const Machine& machine, Shape shape) {
    BoxingPlanner planner(machine);
    const NdSbp sums = NdSbp::Uniform(2, sbp::P), whole = NdSbp::Uniform(2, sbp::B);
    std::string names;
    for (const BoxingStep& step :
         planner.Route(EdgeOf(std::move(shape), {grid, sums}, {grid, whole}))) {
      absl::StrAppend(&names, names.empty() ? "" : ", ", std::string(step.rule));
    }
    return names;
  };
  Machine known;
  known.is_known = true;
  const std::string twice = "all_reduce, all_reduce";
  const std::string parts = "reduce_scatter, all_reduce, all_gather";
  EXPECT_EQ(rules({}, {16}), "all_reduce");
  EXPECT_EQ(rules({}, {1 << 20}), "all_reduce");
  EXPECT_EQ(rules(known, {16}), "all_reduce") << "in doubling steps, which are as few messages";
  EXPECT_EQ(rules(known, {1 << 15}), parts);
  known.links[2].latency = 1;
  EXPECT_EQ(rules(known, {1 << 15}), twice);
  known.hosts = {0, 0, 0, 0};
  EXPECT_EQ(rules(known, {1 << 15}), parts) << "no link between hosts is taken";
}

TEST(Boxing, RoutesAreKept) {
  BoxingPlanner planner;
  const BoxingEdge edge = EdgeOf({64, 64}, {RowOf4s(0, 4), sbp::P}, {RowOf4s(4, 4), sbp::B});
  const std::vector<BoxingStep>* first = &planner.Route(edge);
  for (int p = 1; p < 4; ++p) {
    BoxingEdge other = edge;
    other.source = RowOf4s(0, p);
    planner.Route(other);
  }
  EXPECT_EQ(&planner.Route(edge), first);
}

}  // namespace
}  // namespace braid::compiler
