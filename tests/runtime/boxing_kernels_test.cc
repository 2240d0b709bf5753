#include "tests/runtime/kernel_case.h"

namespace braid {
namespace {

OperandSpec Box(DType dtype, const Shape& logical, Region region) {
  OperandSpec operand = KernelCase::Operand(dtype, logical);
  operand.region = std::move(region);
  return operand;
}

// Zeros, and in them what the boxes have in common; the old bytes of the output never show.
TEST(RelayoutTest, CopiesTheCommonBox) {
  const Shape logical = {5, 4};
  const Region boxes[] = {{{0, 0}, {5, 4}}, {{0, 0}, {3, 4}}, {{3, 0}, {2, 4}}, {{0, 1}, {5, 2}},
                          {{2, 2}, {3, 2}}, {{0, 0}, {0, 4}}, {{5, 0}, {0, 4}}};
  for (DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kI64, DType::kU8}) {
    Values whole(20);
    for (size_t i = 0; i < whole.size(); ++i) whole[i] = static_cast<double>(i + 1);
    for (const Region& from : boxes) {
      for (const Region& to : boxes) {
        for (const bool once : {false, true}) {
          for (const bool contributes : {false, true}) {
            Values held(whole.size(), 0);
            for (size_t i = 0; i < held.size(); ++i) {
              const std::vector<int64_t> index = IndexOf(logical, static_cast<int64_t>(i));
              bool inside = contributes || !once;
              for (int axis = 0; axis < 2; ++axis) {
                inside &= index[axis] >= from.offset[axis] &&
                          index[axis] < from.offset[axis] + from.size[axis];
              }
              if (inside) held[i] = whole[i];
            }
            KernelCase relayout("relayout", {{"once", once}});
            relayout.spec().contributes = contributes;
            relayout.In(Box(dtype, logical, from), Cut(whole, logical, from))
                .Out(Box(dtype, logical, to));
            ASSERT_TRUE(relayout.Run().ok());
            EXPECT_EQ(relayout.Output(), Cut(held, logical, to))
                << from.ToString() << " -> " << to.ToString();
          }
        }
      }
    }
  }
}

TEST(RelayoutTest, Scalars) {
  KernelCase relayout("relayout", {{"once", true}});
  relayout.In(DType::kF32, {}, {3}).Out(DType::kF32, {});
  ASSERT_TRUE(relayout.Run().ok());
  EXPECT_EQ(relayout.Output(), Values{3});
}

TEST(RelayoutTest, RefusesOtherTensors) {
  KernelCase types("relayout", {{"once", false}});
  types.In(DType::kF32, {2}, {1, 2}).Out(DType::kF64, {2});
  EXPECT_EQ(types.Create().code(), absl::StatusCode::kUnimplemented);
  KernelCase shapes("relayout", {{"once", false}});
  shapes.In(DType::kF32, {2}, {1, 2}).Out(DType::kF32, {3});
  EXPECT_EQ(shapes.Create().code(), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace braid
