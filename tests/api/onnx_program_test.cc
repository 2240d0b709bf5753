// `braid onnx`: what a file makes of the arrays of a folder, compared with the arrays there.

#include <algorithm>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/array.h"
#include "tests/api/onnx_writer.h"
#include "tests/multiprocess/program_run.h"
#include "tests/runtime/temp_dir.h"

namespace braid::onnx {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// The place of the largest of 200,000 numbers, and whether each is more than a half.
class OnnxProgramTest : public testing::Test {
 protected:
  OnnxProgramTest() {
    ModelWriter writer;
    writer.Input("x", {200'000});
    writer.Output("place", {1});
    writer.Output("is_more", {200'000});
    IntAttribute(writer.Add("ArgMax", {"x"}, {"place"}), "axis", 0);
    writer.Initializer("half", Floats({1}, {0.5f}));
    writer.Add("Greater", {"x", "half"}, {"is_more"});
    PutFile(folder_ / "model.onnx", writer.model().SerializeAsString());
    std::vector<float> x(200'000);
    x[199'999] = 1;
    Put("input_0", Floats({200'000}, x));
    is_more_ = Array(DType::kBool, {200'000});
    is_more_.mutable_bytes()[199'999] = std::byte{1};
  }
  void Put(const std::string& name, const Array& array) {
    ASSERT_TRUE(array.WriteNpy(folder_ / (name + ".npy")).ok());
  }
  // What it says at last, if that is an error.
  std::string Error() {
    ProgramRun run({BRAID_ONNX_RUN, "--model=" + folder_ / "model.onnx",
                    "--inputs=" + folder_.path(), "--devices=cpu:1"});
    const ExitStatus status = run.Wait();
    EXPECT_EQ(status.signal, 0);
    return status.code == 0 ? "" : run.LastErrorLine();
  }

  const TempDir folder_;
  Array is_more_;
};

TEST_F(OnnxProgramTest, WholeNumbersAndBoolsAreTheSame) {
  EXPECT_EQ(Error(), "") << "of nothing to compare with";
  Put("output_0", Array::FromVector<int64_t>({1}, {199'999}));
  EXPECT_THAT(Error(), AllOf(HasSubstr("output 'is_more' has nothing to compare with"),
                             HasSubstr("output_1.npy is not")));
  Put("output_1", is_more_);
  EXPECT_EQ(Error(), "");
  // Closer than --tolerance by the largest number.
  Put("output_0", Array::FromVector<int64_t>({1}, {200'000}));
  EXPECT_THAT(Error(), HasSubstr("element 0 of 1 is 199999, should be 200000"));
  Put("output_0", Array::FromVector<int32_t>({1}, {199'999}));
  EXPECT_THAT(Error(), HasSubstr("it is i64[1], should be i32[1]"));
}

}  // namespace
}  // namespace braid::onnx
