#include "graph/shape.h"

#include "graph/dtype.h"
#include "gtest/gtest.h"

namespace braid {
namespace {

TEST(ShapeTest, Basics) {
  Shape shape = {64, 784};
  EXPECT_EQ(shape.rank(), 2);
  EXPECT_EQ(shape.num_elements(), 64 * 784);
  EXPECT_EQ(shape.ToString(), "[64, 784]");
  shape[1] = 0;
  EXPECT_EQ(shape.num_elements(), 0);
  EXPECT_NE(shape, Shape({64, 784}));
}

TEST(ShapeTest, ScalarHasOneElement) {
  EXPECT_EQ(Shape().num_elements(), 1);
  EXPECT_EQ(Shape().ToString(), "[]");
}

TEST(DTypeTest, NamesRoundTrip) {
  struct Case {
    DType dtype;
    const char* name;
    size_t size;
    bool is_floating;
  };
  for (const Case& c : std::initializer_list<Case>{{DType::kF32, "f32", 4, true},
                                                   {DType::kF64, "f64", 8, true},
                                                   {DType::kBF16, "bf16", 2, true},
                                                   {DType::kF16, "f16", 2, true},
                                                   {DType::kI32, "i32", 4, false},
                                                   {DType::kI64, "i64", 8, false},
                                                   {DType::kU8, "u8", 1, false},
                                                   {DType::kBool, "bool", 1, false}}) {
    EXPECT_EQ(ToString(c.dtype), c.name);
    EXPECT_EQ(ParseDType(c.name), c.dtype);
    EXPECT_EQ(SizeOf(c.dtype), c.size) << c.name;
    EXPECT_EQ(IsFloating(c.dtype), c.is_floating) << c.name;
  }
  EXPECT_EQ(ParseDType("f31"), std::nullopt);
}

}  // namespace
}  // namespace braid
