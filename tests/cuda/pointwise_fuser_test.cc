// Which kernels in a row become one, and what of theirs is still stored.
#include "runtime/kernels/cuda/pointwise_fuser.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "runtime/kernels/kernel.h"
#include "tests/cuda/kernels_under_test.h"
#include "tests/cuda/program_texts.h"

namespace braid::cuda {
namespace {

// A tensor in an area; `offset` in elements of 4 bytes.
struct Operand {
  Shape shape;
  int32_t area = 0;
  uint64_t offset = 0;
  DType dtype = DType::kF32;
};

class PointwiseFuserTest : public testing::Test {
 protected:
  static constexpr int32_t kScratch = 0;  // and the others are ends of the task

  void Call(const std::string& op, const std::vector<Operand>& inputs, const Operand& output,
            Attrs attrs = {}) {
    KernelSpec spec = {.op = op, .name = op, .attrs = std::move(attrs)};
    PlacedCall call;
    const auto add = [](const Operand& operand, std::vector<OperandSpec>& specs,
                        std::vector<PlacedOperand>& places) {
      OperandSpec& made = specs.emplace_back();
      made.dtype = operand.dtype;
      made.logical = operand.shape;
      made.region = {.offset = std::vector<int64_t>(operand.shape.rank(), 0),
                     .size = operand.shape};
      places.push_back(
          {.area = operand.area,
           .offset = operand.offset * 4,
           .bytes = static_cast<uint64_t>(operand.shape.num_elements()) * SizeOf(operand.dtype),
           .is_scratch = operand.area == kScratch});
    };
    for (const Operand& input : inputs) add(input, spec.inputs, call.inputs);
    add(output, spec.outputs, call.outputs);
    auto kernel = KernelsUnderTest().Create(spec);
    ASSERT_TRUE(kernel.ok()) << kernel.status();
    call.kernel = *std::move(kernel);
    calls_.push_back(std::move(call));
  }

  // "0-2 5-6": the calls that became one.
  std::string Fused() {
    std::string text;
    for (FusedCalls& fused : PointwiseFuser(&programs_).Fuse(calls_)) {
      if (!text.empty()) text += " ";
      text += std::to_string(fused.begin) + "-" + std::to_string(fused.end);
      kernels_.push_back(std::move(fused.kernel));
    }
    return text;
  }
  int Writes(size_t program) const { return Count(programs_.texts[program], "StoreStored"); }

  const Shape shape_ = {6, 16};
  ProgramTexts programs_;

 private:
  static int Count(const std::string& text, const std::string& what) {
    int count = 0;
    for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) {
      ++count;
    }
    return count;
  }

  std::vector<PlacedCall> calls_;
  std::vector<std::unique_ptr<Kernel>> kernels_;
};

// x + row, rectified, times x: a row is read as often as there are rows, x once.
TEST_F(PointwiseFuserTest, KeepsInRegistersWhatNobodyElseReads) {
  Call("add", {{shape_, 1}, {{16}, 3}}, {shape_, kScratch, 0});
  Call("relu", {{shape_, kScratch, 0}}, {shape_, kScratch, 96});
  Call("mul", {{shape_, kScratch, 96}, {shape_, 1}}, {shape_, 2});
  EXPECT_EQ(Fused(), "0-3");
  ASSERT_EQ(programs_.texts.size(), 1u);
  const std::string& text = programs_.texts[0];
  EXPECT_TRUE(absl::StrContains(text, "LoadStored<float>(o.at[0], i, 8, x0)")) << text;
  EXPECT_TRUE(absl::StrContains(text, "LoadStored<float>(o.at[1], int64_t{i % 16} * 1, 8, x1)"))
      << text;
  EXPECT_TRUE(absl::StrContains(text, "fn::Add::F(x0[j], x1[j])")) << text;
  EXPECT_TRUE(absl::StrContains(text, "= Kept(fn::Mul::F(v1, x0[j]))")) << text;
  EXPECT_EQ(Writes(0), 1) << text;
  EXPECT_TRUE(absl::StrContains(text, "StoreStored<float>(o.at[2], i, 8, y0)")) << text;
}

TEST_F(PointwiseFuserTest, StoresWhatOthersRead) {
  Call("exp", {{shape_, 1}}, {shape_, kScratch, 0});
  Call("relu", {{shape_, kScratch, 0}}, {shape_, 2});  // an end of the task
  Call("reduce_sum", {{shape_, kScratch, 0}}, {{16}, 4},
       {{"axes", std::vector<int64_t>{0}}, {"keep_dims", false}});
  EXPECT_EQ(Fused(), "0-2");
  EXPECT_EQ(Writes(0), 2);
}

// Bytes that the next one takes over are no longer read.
TEST_F(PointwiseFuserTest, DoesNotStoreWhatIsOverwritten) {
  Call("exp", {{shape_, 1}}, {shape_, kScratch, 0});
  Call("relu", {{shape_, kScratch, 0}}, {shape_, kScratch, 0});
  Call("neg", {{shape_, kScratch, 0}}, {shape_, 2});
  Call("exp", {{{6, 32}, 1}}, {{6, 32}, kScratch, 0});
  Call("reduce_sum", {{shape_, kScratch, 0}}, {{16}, 4},
       {{"axes", std::vector<int64_t>{0}}, {"keep_dims", false}});
  EXPECT_EQ(Fused(), "0-3");
  EXPECT_EQ(Writes(0), 1);
}

TEST_F(PointwiseFuserTest, OthersStandBetween) {
  Call("exp", {{shape_, 1}}, {shape_, kScratch, 0});
  Call("relu", {{shape_, kScratch, 0}}, {shape_, kScratch, 96});
  Call("softmax", {{shape_, kScratch, 96}}, {shape_, kScratch, 0}, {{"axis", int64_t{1}}});
  Call("neg", {{shape_, kScratch, 0}}, {shape_, kScratch, 96});
  Call("cast", {{shape_, kScratch, 96}}, {shape_, 2, 0, DType::kBF16}, {{"dtype", DType::kBF16}});
  EXPECT_EQ(Fused(), "0-2 3-5");
  EXPECT_TRUE(absl::StrContains(programs_.texts[1],
                                "Widened(Rounded<braid::BFloat16>(Converted<float>(v0)))"))
      << programs_.texts[1];
}

// Of other sizes, of elements that another thread makes, and over what others still read. What has
// nothing to do with each other may be one.
TEST_F(PointwiseFuserTest, NotWhatHangsOnOtherPlaces) {
  Call("exp", {{shape_, 1}}, {shape_, kScratch, 0});
  Call("relu", {{{3, 16}, 1}}, {{3, 16}, kScratch, 96});  // fewer elements
  Call("exp", {{{16}, 1}}, {{16}, kScratch, 0});
  Call("add", {{{6, 16}, 1}, {{16}, kScratch, 0}}, {shape_, 2});  // it takes all of the row
  Call("neg", {{shape_, kScratch, 0}}, {shape_, kScratch, 96});
  Call("relu", {{shape_, kScratch, 100}}, {shape_, kScratch, 200});  // four elements on
  Call("add", {{shape_, 3}, {{6, 1}, kScratch, 300}}, {shape_, kScratch, 400});
  Call("neg", {{shape_, kScratch, 400}}, {shape_, kScratch, 298});  // over a column that is read
  EXPECT_EQ(Fused(), "3-5 5-7");
}

TEST_F(PointwiseFuserTest, InPlace) {
  Call("scale", {{shape_, kScratch, 0}}, {shape_, kScratch, 0}, {{"factor", 2.0}});
  Call("add", {{shape_, kScratch, 0}, {{}, 1}}, {shape_, kScratch, 0});
  Call("reduce_sum", {{shape_, kScratch, 0}}, {{16}, 2},
       {{"axes", std::vector<int64_t>{0}}, {"keep_dims", false}});
  EXPECT_EQ(Fused(), "0-2");
  EXPECT_EQ(Writes(0), 1);
  EXPECT_TRUE(absl::StrContains(programs_.texts[0],
                                "const float x1 = Load(static_cast<const float*>(o.at[1]) + (0));"))
      << programs_.texts[0];
}

// The same text is one program, wherever its operands lie.
TEST_F(PointwiseFuserTest, ATextDoesNotHangOnAddresses) {
  for (const int32_t area : {1, 2}) {
    Call("exp", {{shape_, area}}, {shape_, kScratch, static_cast<uint64_t>(area) * 1000});
    Call("relu", {{shape_, kScratch, static_cast<uint64_t>(area) * 1000}}, {shape_, area + 2});
    Call("reduce_sum", {{shape_, area + 2}}, {{16}, area + 4},
         {{"axes", std::vector<int64_t>{0}}, {"keep_dims", false}});
  }
  EXPECT_EQ(Fused(), "0-2 3-5");
  EXPECT_EQ(programs_.texts.at(0), programs_.texts.at(1));
}

}  // namespace
}  // namespace braid::cuda
