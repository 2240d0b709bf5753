#include "graph/sbp.h"

#include "gtest/gtest.h"

namespace braid {
namespace {

using sbp::B;
using sbp::M;
using sbp::P;
using sbp::Pmax;
using sbp::Pmin;
using sbp::S;

TEST(SbpTest, TextRoundTrip) {
  for (auto [sbp, text] : std::initializer_list<std::pair<Sbp, const char*>>{{S(0), "S(0)"},
                                                                             {S(12), "S(12)"},
                                                                             {B, "B"},
                                                                             {P, "P"},
                                                                             {Pmax, "P(max)"},
                                                                             {Pmin, "P(min)"},
                                                                             {M, "M"}}) {
    EXPECT_EQ(sbp.ToString(), text);
    auto parsed = Sbp::Parse(text);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(*parsed, sbp);
  }
  for (const char* text : {"", "S", "S(", "S(-1)", "S(x)", "S(1", "S(300)", "P(sum)", "BB", "X"}) {
    EXPECT_EQ(Sbp::Parse(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST(NdSbpTest, TextRoundTrip) {
  for (auto [sbp, text] :
       std::initializer_list<std::pair<NdSbp, const char*>>{{NdSbp(S(0)), "S(0)"},
                                                            {NdSbp({S(0), B}), "[S(0), B]"},
                                                            {NdSbp({B, P, S(1)}), "[B, P, S(1)]"},
                                                            {NdSbp(), "[]"}}) {
    EXPECT_EQ(sbp.ToString(), text);
    auto parsed = NdSbp::Parse(text);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(*parsed, sbp);
  }
  EXPECT_FALSE(NdSbp::Parse("[S(0) B]").ok());
  EXPECT_FALSE(NdSbp::Parse("S(0), B").ok());
}

TEST(NdSbpTest, Questions) {
  EXPECT_TRUE(NdSbp({B, Pmax}).has_partial());
  EXPECT_FALSE(NdSbp({B, S(0)}).has_partial());
  EXPECT_TRUE(NdSbp({B, M}).has_mirrored());
  EXPECT_FALSE(NdSbp({B, M}).has_partial());
  EXPECT_FALSE(NdSbp({B, M}).all_broadcast());
  EXPECT_FALSE(NdSbp({B, P}).has_mirrored());
  EXPECT_TRUE(NdSbp::Uniform(3, B).all_broadcast());
  EXPECT_FALSE(NdSbp({B, S(0)}).all_broadcast());
  EXPECT_EQ(NdSbp::Uniform(2, P), NdSbp({P, P}));
}

TEST(RegionTest, IntersectAndText) {
  Region a{{0, 2}, {4, 4}}, b{{2, 5}, {6, 4}};
  EXPECT_EQ(Intersect(a, b), (Region{{2, 5}, {2, 1}}));
  EXPECT_EQ(Intersect(a, b), Intersect(b, a));
  EXPECT_EQ(a.ToString(), "[0:4, 2:6]");
  Region missed = Intersect(a, {{4, 0}, {1, 6}});
  EXPECT_EQ(missed.size, Shape({0, 4}));
  EXPECT_TRUE(missed.empty());
  EXPECT_EQ(Intersect(a, {{7, 9}, {1, 1}}).size, Shape({0, 0}));
  EXPECT_FALSE(Region::Whole({}).empty());
}

TEST(RegionTest, OneRunIsWhatLiesTogether) {
  const Region whole{{10, 0, 0}, {4, 3, 5}};
  const auto is_one_run = [&](const Region& box) { return IsOneRun(box, whole); };
  EXPECT_TRUE(is_one_run(whole));
  EXPECT_TRUE(is_one_run({{11, 0, 0}, {2, 3, 5}}));   // rows
  EXPECT_TRUE(is_one_run({{11, 1, 0}, {1, 2, 5}}));   // a part of a row
  EXPECT_TRUE(is_one_run({{11, 1, 2}, {1, 1, 2}}));   // and of that
  EXPECT_TRUE(is_one_run({{11, 1, 2}, {0, 2, 2}}));   // nothing
  EXPECT_FALSE(is_one_run({{11, 1, 0}, {2, 2, 5}}));  // a part of each of two rows
  EXPECT_FALSE(is_one_run({{11, 1, 2}, {1, 2, 2}}));
  EXPECT_FALSE(is_one_run({{10, 0, 0}, {4, 3, 4}}));
  EXPECT_TRUE(IsOneRun({{}, {}}, {{}, {}}));  // a scalar
  EXPECT_TRUE(IsOneRun({{3}, {2}}, {{0}, {8}}));
}

TEST(SplitEvenlyTest, TheFirstPartsAreLonger) {
  for (int64_t n = 0; n <= 13; ++n) {
    for (int64_t parts = 1; parts <= 9; ++parts) {
      int64_t next = 0;
      for (int64_t index = 0; index < parts; ++index) {
        Interval part = SplitEvenly(n, parts, index);
        EXPECT_EQ(part.offset, next);
        EXPECT_EQ(part.size, n / parts + (index < n % parts ? 1 : 0));
        next += part.size;
      }
      EXPECT_EQ(next, n);
    }
  }
}

// The definition, element by element: cuts the list of indices along every axis, one placement
// dimension after another.
Region BruteForceRegion(const Shape& shape, const NdSbp& sbp, const std::vector<int64_t>& hierarchy,
                        const std::vector<int64_t>& coordinate) {
  Region region;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    int64_t first = 0;
    std::vector<int64_t> mine(shape[axis]);
    for (int64_t i = 0; i < shape[axis]; ++i) mine[i] = i;
    for (size_t dim = 0; dim < hierarchy.size(); ++dim) {
      if (sbp[dim] != S(axis)) continue;
      // Deals out sizes one by one, then cuts the list.
      std::vector<size_t> sizes(hierarchy[dim], 0);
      for (size_t i = 0; i < mine.size(); ++i) ++sizes[i % sizes.size()];
      size_t begin = 0;
      for (int64_t part = 0; part < coordinate[dim]; ++part) begin += sizes[part];
      first += static_cast<int64_t>(begin);
      mine = {mine.begin() + begin, mine.begin() + begin + sizes[coordinate[dim]]};
      if (!mine.empty()) {
        EXPECT_EQ(mine.front(), first);
      }
    }
    region.offset.push_back(first);
    region.size = [&] {
      std::vector<int64_t> dims = region.size.dims();
      dims.push_back(static_cast<int64_t>(mine.size()));
      return Shape(dims);
    }();
  }
  return region;
}

std::vector<std::vector<int64_t>> Coordinates(const std::vector<int64_t>& hierarchy) {
  std::vector<std::vector<int64_t>> all = {{}};
  for (int64_t size : hierarchy) {
    std::vector<std::vector<int64_t>> longer;
    for (const auto& prefix : all) {
      for (int64_t i = 0; i < size; ++i) {
        longer.push_back(prefix);
        longer.back().push_back(i);
      }
    }
    all = std::move(longer);
  }
  return all;
}

// Every NdSbp of the hierarchy, every shape: the regions are the brute force ones, and each element
// of the tensor is held exactly as often as the dimensions that do not split say.
TEST(RegionOfTest, PartsTileTheTensor) {
  const std::vector<Sbp> kinds = {S(0), S(1), B, P};
  int cases = 0;
  for (const std::vector<int64_t>& hierarchy : std::vector<std::vector<int64_t>>{
           {1}, {3}, {8}, {2, 2}, {2, 3}, {3, 1}, {4, 3}, {2, 2, 2}, {3, 2, 2}}) {
    std::vector<std::vector<Sbp>> sbps = {{}};
    for (size_t dim = 0; dim < hierarchy.size(); ++dim) {
      std::vector<std::vector<Sbp>> longer;
      for (const auto& prefix : sbps) {
        for (Sbp kind : kinds) {
          longer.push_back(prefix);
          longer.back().push_back(kind);
        }
      }
      sbps = std::move(longer);
    }
    for (const std::vector<Sbp>& dims : sbps) {
      NdSbp sbp{std::vector<Sbp>(dims)};
      for (const Shape& shape :
           std::vector<Shape>{{0, 3}, {1, 1}, {1, 7}, {2, 5}, {4, 4}, {5, 3}, {7, 8}, {13, 2}}) {
        int64_t copies = 1;
        for (size_t dim = 0; dim < hierarchy.size(); ++dim) {
          if (!sbp[dim].is_split()) copies *= hierarchy[dim];
        }
        std::vector<int64_t> held(shape.num_elements(), 0);
        for (const std::vector<int64_t>& coordinate : Coordinates(hierarchy)) {
          Region region = RegionOf(shape, sbp, hierarchy, coordinate);
          ASSERT_EQ(region, BruteForceRegion(shape, sbp, hierarchy, coordinate))
              << shape.ToString() << " " << sbp.ToString();
          for (int64_t i = 0; i < region.size[0]; ++i) {
            for (int64_t j = 0; j < region.size[1]; ++j) {
              ++held[(region.offset[0] + i) * shape[1] + region.offset[1] + j];
            }
          }
        }
        for (int64_t times : held) ASSERT_EQ(times, copies) << shape.ToString() << sbp.ToString();
        ++cases;
      }
    }
  }
  EXPECT_EQ(cases, 8 * (3 * 4 + 4 * 16 + 2 * 64));
}

TEST(RegionOfTest, NestedSplitCutsTheLocalPart) {
  // 10 over 2 is 5 + 5; 5 over 3 is 2 + 2 + 1.
  std::vector<int64_t> hierarchy = {2, 3};
  EXPECT_EQ(RegionOf({10}, NdSbp({S(0), S(0)}), hierarchy, std::vector<int64_t>{1, 1}),
            (Region{{7}, {2}}));
  EXPECT_EQ(RegionOf({10}, NdSbp({S(0), S(0)}), hierarchy, std::vector<int64_t>{1, 2}),
            (Region{{9}, {1}}));
}

TEST(RegionOfDeathTest, AxisOutOfRange) {
  std::vector<int64_t> hierarchy = {2}, coordinate = {0};
  EXPECT_DEATH(RegionOf({4}, S(1), hierarchy, coordinate), "S\\(1\\) of \\[4\\]");
}

}  // namespace
}  // namespace braid
