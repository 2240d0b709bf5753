// The texts of kernels that were made of several, by the real NVRTC, which needs no card.
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "api/conformance/operator_case.h"
#include "graph/op_registry.h"
#include "runtime/cuda/program_compiler.h"
#include "runtime/kernels/cuda/pointwise_fuser.h"
#include "runtime/kernels/cuda/pointwise_piece.h"
#include "tests/cuda/kernels_under_test.h"
#include "tests/cuda/program_texts.h"

namespace braid::cuda {
namespace {

using conformance::CasesOf;
using conformance::OpCase;
using conformance::Sizes;

// The case's kernel, where it is a pointwise one, and another one that takes what it makes.
void AddTexts(const OpCase& c, ProgramTexts& texts, std::set<std::string>& operators) {
  KernelSpec spec = {.op = c.def->name(), .name = "x", .attrs = c.attrs};
  const auto operands = [](const std::vector<TensorType>& types) {
    std::vector<OperandSpec> made;
    for (const TensorType& type : types) {
      OperandSpec& operand = made.emplace_back();
      operand.dtype = type.dtype;
      operand.logical = type.shape;
      operand.region = {.offset = std::vector<int64_t>(type.shape.rank(), 0), .size = type.shape};
    }
    return made;
  };
  spec.inputs = operands(c.inputs);
  spec.outputs = operands(c.outputs);
  std::vector<PlacedCall> calls(2);
  for (int i = 0; i < 2; ++i) {
    auto kernel = KernelsUnderTest().Create(spec);
    if (!kernel.ok() || dynamic_cast<const PointwiseKernel*>(kernel->get()) == nullptr) return;
    calls[i].kernel = *std::move(kernel);
    for (size_t k = 0; k < c.inputs.size(); ++k) {
      calls[i].inputs.push_back({.area = static_cast<int32_t>(k), .bytes = uint64_t{1} << 20});
    }
    calls[i].outputs.push_back({.area = 100 + i, .bytes = uint64_t{1} << 20});
  }
  if (!PointwiseFuser(&texts).Fuse(calls).empty()) operators.insert(c.def->name());
}

// Every pointwise operator, in every type that such kernels compute with.
TEST(NvrtcTest, CompilesWhatIsWritten) {
  const CompilerTable table = MakeCompilerTable();
  char why[1024] = {};
  const char* const folders = std::getenv("BRAID_CUDA_LIBRARIES");
  const void* const compiler =
      table.open(folders == nullptr ? BRAID_CUDA_LIBRARY_FOLDERS : folders, why, sizeof why);
  if (compiler == nullptr) GTEST_SKIP() << why;
  EXPECT_GE(table.version(compiler), 12000);
  ProgramTexts texts;
  std::set<std::string> operators;
  const OpRegistry ops = BuiltinOps();
  for (const auto& [name, def] : ops.ops()) {
    if (!KernelsUnderTest().Has(name)) continue;
    for (const DType type : {DType::kF32, DType::kF64, DType::kBF16}) {
      for (const OpCase& c : CasesOf(def, type, Sizes::kEven)) AddTexts(c, texts, operators);
    }
  }
  EXPECT_GE(operators.size(), 80u);
  std::string source = "#include \"runtime/kernels/cuda/fused_prelude.h\"\n";
  int number = 0;
  for (const std::string& text : std::set(texts.texts.begin(), texts.texts.end())) {
    absl::StrAppend(&source, "extern \"C\" __global__ void __launch_bounds__(256) fused_", number++,
                    text);
  }
  ProgramCompiler programs({.table = table, .compiler = compiler});
  const std::string code = programs.Code(9, 0, source);
  EXPECT_TRUE(absl::StartsWith(code,
                               "\x7f"
                               "ELF"));
  for (const int i : {0, number - 1}) {
    EXPECT_TRUE(absl::StrContains(code, absl::StrCat("fused_", i))) << i;
  }
  // An error is the compiler's, and ends nothing.
  EXPECT_EQ(programs.Code(9, 0, "int x = y;"), "");
}

}  // namespace
}  // namespace braid::cuda
