// The node tests of ONNX (inputs and outputs that others wrote) for the operators that we have: on
// one device, and every op of the model under every signature on two. They come with Debian's
// package libonnx-testdata.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "graph/op_registry.h"
#include "tests/conformance/onnx_model.h"
#include "tests/conformance/ops_run.h"
#include "tests/support/graph_interpreter.h"

namespace braid::conformance {
namespace {

constexpr char kDirectory[] = "/usr/share/libonnx-testdata/data/node";
// Of ONNX 1.12: fewer means that a translation was lost.
constexpr int kLeastCases = 346;

double ToleranceOf(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return 1e-7;  // some were computed in f32
    case DType::kF16:
      return 2e-3;
    case DType::kBF16:
      return 1.6e-2;
    default:
      return 1e-5;
  }
}

// Addends of bytes would wrap around, and of bools they mean nothing.
bool CanSplit(const SbpSignature& signature, const std::vector<TensorType>& inputs) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (signature.inputs[i].is_partial() && SizeOf(inputs[i].dtype) == 1) return false;
  }
  return true;
}

class OnnxTest : public testing::Test {
 protected:
  // Every op of the graph, on what it was given in the interpreter's run.
  void CheckSignatures(const LogicalGraph& graph, const GraphInterpreter& whole) {
    for (const Op& op : graph.ops()) {
      if (op.type == "input") continue;
      OpCase c = {.def = ops_.Find(op.type), .label = op.name, .attrs = op.attrs};
      std::vector<Array> inputs;
      double tolerance = 1e-12;
      for (TensorId input : op.inputs) {
        c.inputs.push_back(graph.type(input));
        inputs.push_back(whole.value(input));
        tolerance = std::max(tolerance, ToleranceOf(graph.type(input).dtype));
      }
      for (TensorId output : op.outputs) c.outputs.push_back(graph.type(output));
      for (const SbpSignature& signature : c.def->LegalSignatures(c.context(), 2)) {
        if (!CanSplit(signature, c.inputs)) continue;
        EXPECT_EQ(
            CheckAgainstWhole(kernels_, c, inputs,
                              {.layouts = ProductOf({signature}), .hierarchy = {2}}, tolerance),
            "");
        ++signatures_;
      }
    }
  }

  void Run(const std::string& directory) {
    const absl::StatusOr<OnnxCase> read = ReadOnnxCase(directory, ops_);
    if (absl::IsUnimplemented(read.status())) {
      ++lacking_[std::string(read.status().message())];
      return;
    }
    ASSERT_TRUE(read.ok()) << read.status();
    absl::StatusOr<GraphInterpreter> interpreter = GraphInterpreter::Make(read->graph, kernels_);
    ASSERT_TRUE(interpreter.ok()) << interpreter.status();
    for (const auto& [name, array] : read->feeds) interpreter->Set(name, array);
    const absl::Status status = interpreter->Run();
    ASSERT_TRUE(status.ok()) << status;
    for (const auto& [tensor, expected] : read->expected) {
      const Array& actual = interpreter->value(tensor);
      ASSERT_EQ(actual.dtype(), expected.dtype());
      ASSERT_EQ(actual.shape(), expected.shape());
      EXPECT_EQ(Compare(Numbers(actual), Numbers(expected), ToleranceOf(actual.dtype())), "");
    }
    CheckSignatures(read->graph, *interpreter);
    ++cases_;
  }

  const OpRegistry ops_ = BuiltinOps();
  const KernelRegistry kernels_ = CpuKernels();
  int cases_ = 0, signatures_ = 0;
  std::map<std::string, int> lacking_;  // reason -> cases
};

TEST_F(OnnxTest, NodeTestsAgree) {
  if (!std::filesystem::exists(kDirectory)) {
    GTEST_SKIP() << "NO ONNX NODE TESTS: install libonnx-testdata, which has " << kDirectory;
  }
  std::vector<std::string> directories;
  for (const auto& entry : std::filesystem::directory_iterator(kDirectory)) {
    directories.push_back(entry.path().string());
  }
  std::sort(directories.begin(), directories.end());
  for (const std::string& directory : directories) {
    SCOPED_TRACE(directory);
    Run(directory);
  }
  std::printf("%d of %zu cases, %d signatures on two devices; the others need:\n", cases_,
              directories.size(), signatures_);
  for (const auto& [reason, count] : lacking_) std::printf("  %4d %s\n", count, reason.c_str());
  EXPECT_GE(cases_, kLeastCases);
}

}  // namespace
}  // namespace braid::conformance
