#include "graph/attrs.h"

#include <cmath>
#include <limits>

#include "gtest/gtest.h"

namespace braid {
namespace {

TEST(AttrsTest, TypedAccess) {
  Attrs attrs = {{"axis", int64_t{1}},   {"exact", true},
                 {"scale", 0.5},         {"name", "fc1"},
                 {"dtype", DType::kF32}, {"dims", std::vector<int64_t>{0, 2}}};
  EXPECT_EQ(attrs.Int("axis"), 1);
  EXPECT_TRUE(attrs.Bool("exact"));
  EXPECT_EQ(attrs.Double("scale"), 0.5);
  EXPECT_EQ(attrs.String("name"), "fc1");
  EXPECT_EQ(attrs.Type("dtype"), DType::kF32);
  EXPECT_EQ(attrs.Ints("dims"), (std::vector<int64_t>{0, 2}));
  EXPECT_TRUE(attrs.Has("axis"));
  EXPECT_FALSE(attrs.Has("other"));
  EXPECT_EQ(attrs.ToString(), "axis=1 dims=[0, 2] dtype=f32 exact=true name=\"fc1\" scale=0.5");
}

TEST(AttrsDeathTest, AbsentOrOfAnotherTypeIsOurBug) {
  Attrs attrs = {{"axis", int64_t{1}}};
  EXPECT_DEATH(attrs.Int("dims"), "no attribute dims in axis=1");
  EXPECT_DEATH(attrs.Double("axis"), "axis has another type");
}

TEST(AttrsTest, RoundTripKeepsTypesAndValues) {
  for (double value :
       {0.0, -0.0, 1.0, -3.0, 0.1, 1e300, 1e-300, 123456789012345680.0,
        std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity(),
        std::numeric_limits<double>::denorm_min()}) {
    Attrs attrs = {{"x", value}};
    auto parsed = Attrs::Parse(attrs.ToString());
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(*parsed, attrs) << attrs.ToString();
    EXPECT_EQ(std::signbit(parsed->Double("x")), std::signbit(value));
  }
  Attrs attrs = {{"a", std::numeric_limits<int64_t>::min()},
                 {"b", false},
                 {"c", std::string("a \"quoted\"\n\\ } text")},
                 {"d", std::vector<int64_t>{}},
                 {"e", std::vector<int64_t>{-1}},
                 {"f", DType::kBF16},
                 {"g", std::string()}};
  auto parsed = Attrs::Parse(attrs.ToString());
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(*parsed, attrs);
  auto nan = Attrs::Parse(Attrs{{"x", std::nan("")}}.ToString());
  ASSERT_TRUE(nan.ok()) << nan.status();
  EXPECT_TRUE(std::isnan(nan->Double("x")));
  auto empty = Attrs::Parse("");
  ASSERT_TRUE(empty.ok());
  EXPECT_EQ(*empty, Attrs());
}

TEST(AttrsTest, ErrorsSayWhatIsWrong) {
  auto message = [](std::string_view text) {
    auto parsed = Attrs::Parse(text);
    return parsed.ok() ? std::string("parsed") : std::string(parsed.status().message());
  };
  EXPECT_EQ(message("axis"), "expected '=', found the end");
  EXPECT_EQ(message("axis=one"), "'one' is no bool, number or element type");
  EXPECT_EQ(message("a=1 a=2"), "attribute 'a' comes twice");
  EXPECT_EQ(message("a=[1 2]"), "expected ',', found '2]'");
  EXPECT_EQ(message("a=\"x"), "expected a closing quote, found '\"x'");
  EXPECT_EQ(message("a=1 }"), "expected the end of the text, found '}'");
}

}  // namespace
}  // namespace braid
