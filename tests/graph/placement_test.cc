#include "graph/placement.h"

#include "gtest/gtest.h"

namespace braid {
namespace {

Placement Grid() {
  return *Placement::Make("cpu", {{0, 0}, {0, 1}, {0, 2}, {1, 0}, {1, 1}, {1, 2}}, {2, 3});
}

TEST(PlacementTest, TextRoundTrip) {
  EXPECT_EQ(Grid().ToString(), "cpu[2, 3]{0.0 0.1 0.2 1.0 1.1 1.2}");
  for (const Placement& placement :
       {Grid(), Placement("cuda", {{3, 1}, {0, 0}}), Placement("cpu", {}), Grid().node(7)}) {
    auto parsed = Placement::Parse(placement.ToString());
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(*parsed, placement);
  }
}

TEST(PlacementTest, ErrorsNameBothCounts) {
  auto message = [](std::string_view text) {
    auto parsed = Placement::Parse(text);
    return parsed.ok() ? std::string("parsed") : std::string(parsed.status().message());
  };
  EXPECT_EQ(message("cpu[2, 2]{0.0 0.1 1.0}"),
            "the hierarchy [2, 2] does not hold 3 devices: its product must be their number");
  EXPECT_EQ(message("cpu[2]{0.0 0.0}"), "device 0.0 is listed twice");
  EXPECT_NE(message("cpu[]{}"), "parsed");
  EXPECT_NE(message("cpu[-1, -2]{0.0 0.1}"), "parsed");
  EXPECT_NE(message("cpu[4294967296, 4294967296]{}"), "parsed");
  EXPECT_NE(message("cpu[1]{0.x}"), "parsed");
  EXPECT_NE(message("[1]{0.0}"), "parsed");
  EXPECT_EQ(Grid().WithHierarchy({4}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Grid().WithHierarchy({2, 3, 0}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(PlacementTest, Coordinates) {
  Placement placement = *Grid().WithHierarchy({3, 1, 2});
  int rank = 0;
  for (int64_t i = 0; i < 3; ++i) {
    for (int64_t k = 0; k < 2; ++k) {
      std::vector<int64_t> coordinate = {i, 0, k};
      EXPECT_EQ(placement.CoordinateOf(rank), coordinate);
      EXPECT_EQ(placement.RankOf(coordinate), rank);
      ++rank;
    }
  }
}

TEST(PlacementTest, Parts) {
  Placement placement = Grid();
  EXPECT_EQ(placement.size(), 6);
  EXPECT_EQ(placement.num_nodes(), 2);
  EXPECT_EQ(placement.rank_of({1, 1}), 4);
  EXPECT_EQ(placement.rank_of({2, 0}), -1);
  EXPECT_EQ(placement.node(1), Placement("cpu", {{1, 0}, {1, 1}, {1, 2}}));
  EXPECT_EQ(placement.node(1).hierarchy(), std::vector<int64_t>{3});
  EXPECT_EQ(placement.node(5).size(), 0);
  EXPECT_EQ(placement.Slice(2, 2), Placement("cpu", {{0, 2}, {1, 0}}));
  EXPECT_NE(placement, *placement.WithHierarchy({6}));
}

TEST(PlacementTest, RegionOfRank) {
  // Split over nodes, copied inside; then split again inside.
  Placement placement = Grid();
  EXPECT_EQ(RegionOf({5, 4}, {sbp::S(0), sbp::B}, placement, 4), (Region{{3, 0}, {2, 4}}));
  EXPECT_EQ(RegionOf({5, 4}, {sbp::S(0), sbp::S(0)}, placement, 4), (Region{{4, 0}, {1, 4}}));
  EXPECT_TRUE(RegionOf({5, 4}, {sbp::S(0), sbp::S(0)}, placement, 5).empty());
  EXPECT_EQ(RegionOf({5, 4}, {sbp::P, sbp::S(1)}, placement, 2), (Region{{0, 3}, {5, 1}}));
}

}  // namespace
}  // namespace braid
