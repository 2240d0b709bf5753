// The test cases of ONNX (models, inputs and outputs that others wrote) for the operators that we
// have: on one device, and every op of the model under every signature on two and on four. They
// come with Debian's package libonnx-testdata; those of a newer version are in $BRAID_ONNX_CASES if
// that is set (tests/conformance/write_onnx_cases.py writes them), as are whole models of other
// frameworks (tests/onnx/export_models.py). --gtest_filter=*node* runs one set.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "api/conformance/graph_interpreter.h"
#include "api/conformance/operator_run.h"
#include "graph/op_registry.h"
#include "runtime/array_difference.h"
#include "tests/conformance/onnx_model.h"

namespace braid::conformance {
namespace {

constexpr char kDirectory[] = "/usr/share/libonnx-testdata/data/";
constexpr char kNewerVariable[] = "BRAID_ONNX_CASES";

// Of ONNX 1.12, and as many of Debian's newer ones: fewer means that a translation was lost. Of
// other versions a share is wanted.
struct CaseSet {
  std::string name;
  int least_cases;
  double least_share = 0;
  std::string top = kDirectory;
  bool checks_signatures = true;  // whole models repeat the same operators often
  bool compares_each = false;     // an element by its own size, not by the largest
};
void PrintTo(const CaseSet& set, std::ostream* out) { *out << set.name; }
const std::vector<CaseSet> kSets = {
    {"node", 905}, {"pytorch-converted", 82}, {"pytorch-operator", 35}, {"simple", 15}};

std::vector<CaseSet> AllSets() {
  std::vector<CaseSet> sets = kSets;
  const char* newer = std::getenv(kNewerVariable);
  if (newer == nullptr) return sets;
  for (const CaseSet& set : kSets) {
    // Of the simple ones a third has strings or is for training.
    const double least_share = set.name == "simple" ? 0.65 : 0.97;
    sets.push_back({.name = set.name, .least_cases = 0, .least_share = least_share, .top = newer});
  }
  sets.push_back({.name = "real",
                  .least_cases = 0,
                  .least_share = 1,
                  .top = newer,
                  .checks_signatures = false,
                  .compares_each = true});
  sets.push_back({.name = "exported",
                  .least_cases = 0,
                  .least_share = 0.97,
                  .top = newer,
                  .checks_signatures = false});
  return sets;
}

// How the paths of cases end whose files contradict themselves. The outputs of adam_multiple were
// made with an epsilon of 1e-2, which its node does not carry (that of adam does); the standard's
// default is 1e-6. ONNX 1.12 has one element for castlike's second input of 3 x 4. ONNX 1.17
// divides the pools at the rim by windows that reach beyond the padding; in 1.20 the same case has
// what its node says.
const std::vector<std::string> kFaulty = {
    "/test_adam_multiple",
    "testdata/data/node/test_castlike_BFLOAT16_to_FLOAT",
    "testdata/data/node/test_castlike_BFLOAT16_to_FLOAT_expanded",
    "testdata/data/node/test_castlike_FLOAT_to_BFLOAT16",
    "testdata/data/node/test_castlike_FLOAT_to_BFLOAT16_expanded",
    "/test_averagepool_3d_dilations_large_count_include_pad_is_1_ceil_mode_is_True"};

double ToleranceOf(DType dtype) {
  if (!IsFloating(dtype)) return 0;  // nor do the codes of floats of 8 and 4 bits differ
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

// Of `dtype` and the floating types in the graph.
DType CoarsestOf(const LogicalGraph& graph, DType dtype) {
  for (const TensorInfo& tensor : graph.tensors()) {
    const DType other = tensor.type.dtype;
    if (IsFloating(other) && ToleranceOf(other) > ToleranceOf(dtype)) dtype = other;
  }
  return dtype;
}

// Addends of narrow whole numbers would wrap around, and of bools they mean nothing.
bool CanSplit(const SbpSignature& signature, const std::vector<TensorType>& inputs) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const DType dtype = inputs[i].dtype;
    const bool has_addends = IsFloating(dtype) || dtype == DType::kI32 || dtype == DType::kI64;
    if (signature.inputs[i].is_partial() && !has_addends) return false;
  }
  return true;
}

// The outputs of windows were made with a pi of 3.1415: hannwindow's are within 1e-7 of that, and
// 7e-5 from what its formula gives with the true one, which its expanded model has. Those of
// roialign_aligned_* have four decimals.
double ToleranceOf(const std::string& directory, DType dtype) {
  const bool is_rough = directory.find("window") != std::string::npos ||
                        directory.find("roialign_aligned") != std::string::npos;
  return std::max(ToleranceOf(dtype), is_rough ? 1e-4 : 0);
}

// "OneHot 'y': why" of "<file>: OneHot 'y': why" without the node's name.
std::string ReasonOf(const absl::Status& status) {
  constexpr std::string_view kFile = "model.onnx: ";
  std::string reason(status.message());
  if (const size_t file = reason.find(kFile); file != std::string::npos) {
    reason.erase(0, file + kFile.size());
  }
  const size_t end = reason.find("':");
  if (end == std::string::npos || end == 0) return reason;
  const size_t begin = reason.rfind(" '", end - 1);
  if (begin != std::string::npos) reason.erase(begin, end + 1 - begin);
  return reason;
}

// The same in f64 if it is in f32, bf16 or f16. Addends are larger than what they add up to: in
// these a comparison after sums of products of them would be one of roundings.
OpCase InF64(OpCase c) {
  const OpCase narrow = c;
  for (TensorType& input : c.inputs) {
    if (IsFloating(input.dtype)) input.dtype = DType::kF64;
  }
  absl::StatusOr<std::vector<TensorType>> outputs = c.def->InferTypes(c.context());
  if (!outputs.ok()) return narrow;
  c.outputs = *std::move(outputs);
  return c;
}

bool HasNan(const Array& array) {
  const std::vector<double> numbers = Numbers(array);
  return std::any_of(numbers.begin(), numbers.end(), [](double x) { return std::isnan(x); });
}

// As Compare, where NaN stands in the same places. Whole numbers and bools are the same.
std::string CompareWithNan(const Array& actual, const Array& expected, double tolerance) {
  const DType dtype = actual.dtype();
  if (IsWholeNumber(dtype) || dtype == DType::kBool) return ExactDifference(actual, expected);
  std::vector<double> a = Numbers(actual), e = Numbers(expected);
  for (size_t i = 0; i < e.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(e[i])) a[i] = e[i] = 0;
  }
  return Compare(a, e, tolerance);
}

// By the bounds that ONNX's own runner has: real models end in the probabilities of 1,000 classes.
std::string CompareEach(const Array& actual, const Array& expected) {
  const std::vector<double> a = Numbers(actual), e = Numbers(expected);
  for (size_t i = 0; i < e.size(); ++i) {
    if (std::abs(a[i] - e[i]) <= 1e-7 + 1e-3 * std::abs(e[i])) continue;
    return absl::StrCat("element ", i, " of ", e.size(), " is ", a[i], ", should be ", e[i]);
  }
  return "";
}

class OnnxTest : public testing::TestWithParam<CaseSet> {
 protected:
  // Every op of the graph, on what it was given in the interpreter's run.
  void CheckSignatures(const LogicalGraph& graph, const GraphInterpreter& whole) {
    for (const Op& op : graph.ops()) {
      if (op.type == "input" || op.type == "variable") continue;
      OpCase c = {.def = ops_.Find(op.type), .label = op.name, .attrs = op.attrs};
      std::vector<Array> inputs;
      double tolerance = 1e-12;
      for (TensorId input : op.inputs) {
        c.inputs.push_back(graph.type(input));
        inputs.push_back(whole.value(input));
        tolerance = std::max(tolerance, ToleranceOf(graph.type(input).dtype));
      }
      bool has_nan = false;
      for (TensorId output : op.outputs) {
        c.outputs.push_back(graph.type(output));
        has_nan |= HasNan(whole.value(output));
      }
      if (has_nan) continue;  // which have no sum to compare
      const OpCase wide = InF64(c);
      std::vector<Array> wide_inputs;
      for (size_t i = 0; i < inputs.size(); ++i) {
        wide_inputs.push_back(inputs[i].As(wide.inputs[i].dtype));
      }
      const auto check = [&](const std::vector<SbpSignature>& per_dimension,
                             const Hierarchy& hierarchy) {
        bool has_addends = false;
        for (const SbpSignature& signature : per_dimension) {
          if (!CanSplit(signature, c.inputs)) return;
          has_addends |= std::any_of(signature.inputs.begin(), signature.inputs.end(),
                                     [](const Sbp& sbp) { return sbp.is_partial(); });
        }
        const RunOptions options = {.layouts = ProductOf(per_dimension), .hierarchy = hierarchy};
        EXPECT_EQ(CheckAgainstWhole(kernels_, has_addends ? wide : c,
                                    has_addends ? wide_inputs : inputs, options, tolerance),
                  "");
        ++signatures_;
      };
      for (int parts : {2, 4}) {
        for (const SbpSignature& signature : c.def->LegalSignatures(c.context(), parts)) {
          check({signature}, {parts});
        }
      }
      const auto legal = c.def->LegalSignatures(c.context(), 4);
      for (const SbpSignature& outer : legal) {
        for (const SbpSignature& inner : legal) check({outer, inner}, {2, 2});
      }
    }
  }

  void Run(const std::string& directory) {
    const absl::StatusOr<OnnxCase> read = ReadOnnxCase(directory, ops_);
    if (absl::IsUnimplemented(read.status())) {
      ++lacking_[ReasonOf(read.status())];
      return;
    }
    ASSERT_TRUE(read.ok()) << read.status();
    for (const Op& op : read->graph.ops()) {
      if (!ops_.Find(op.type)->random()) continue;
      ++lacking_["the random numbers of another generator"];
      return;
    }
    absl::StatusOr<GraphInterpreter> interpreter = GraphInterpreter::Make(read->graph, kernels_);
    ASSERT_TRUE(interpreter.ok()) << interpreter.status();
    for (const auto& [name, array] : read->feeds) interpreter->Set(name, array);
    const absl::Status status = interpreter->Run();
    ASSERT_TRUE(status.ok()) << status;
    for (const auto& [tensor, expected] : read->expected) {
      const Array& actual = interpreter->value(tensor);
      // A whole model is as exact as its coarsest numbers.
      const DType dtype =
          GetParam().checks_signatures ? actual.dtype() : CoarsestOf(read->graph, actual.dtype());
      ASSERT_EQ(actual.dtype(), expected.dtype());
      ASSERT_EQ(actual.shape(), expected.shape());
      EXPECT_EQ(GetParam().compares_each
                    ? CompareEach(actual, expected)
                    : CompareWithNan(actual, expected, ToleranceOf(directory, dtype)),
                "");
    }
    if (GetParam().checks_signatures) CheckSignatures(read->graph, *interpreter);
    ++cases_;
  }

  const OpRegistry ops_ = BuiltinOps();
  const KernelRegistry kernels_ = CpuKernels();
  int cases_ = 0, signatures_ = 0;
  std::map<std::string, int> lacking_;  // reason -> cases
};

TEST_P(OnnxTest, CasesAgree) {
  const std::filesystem::path folder = std::filesystem::path(GetParam().top) / GetParam().name;
  if (!std::filesystem::exists(folder)) {
    GTEST_SKIP() << "NO ONNX CASES: install libonnx-testdata, which has " << kDirectory
                 << ", or set " << kNewerVariable << "; there is no " << folder;
  }
  std::vector<std::string> directories;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    directories.push_back(entry.path().string());
  }
  std::sort(directories.begin(), directories.end());
  for (const std::string& directory : directories) {
    SCOPED_TRACE(directory);
    const auto is_it = [&](const std::string& end) { return directory.ends_with(end); };
    if (std::any_of(kFaulty.begin(), kFaulty.end(), is_it)) {
      ++lacking_["files that do not contradict themselves"];
      continue;
    }
    Run(directory);
  }
  std::printf("%s: %d of %zu cases, %d signatures on 2, 4 and 2x2 devices; the others need:\n",
              GetParam().name.c_str(), cases_, directories.size(), signatures_);
  for (const auto& [reason, count] : lacking_) std::printf("  %4d %s\n", count, reason.c_str());
  EXPECT_GE(cases_, GetParam().least_cases);
  EXPECT_GE(cases_, GetParam().least_share * static_cast<double>(directories.size()));
}

INSTANTIATE_TEST_SUITE_P(Sets, OnnxTest, testing::ValuesIn(AllSets()), [](const auto& info) {
  std::string name = (info.param.top == kDirectory ? "" : "newer_") + info.param.name;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

}  // namespace
}  // namespace braid::conformance
