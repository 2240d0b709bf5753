// What `braid onnx` starts: says what is in an ONNX file and, on the devices that the flags name,
// runs it on arrays of .npy files, compares what comes out with others, and measures a step.
#include <braid/onnx.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "api/main.h"
#include "runtime/array_difference.h"
#include "runtime/base/reactor.h"
#include "runtime/base/status.h"
#include "runtime/files/npy.h"

ABSL_FLAG(std::string, model, "", "The file; `braid onnx FILE` needs no flag for it");
ABSL_FLAG(std::vector<std::string>, sizes, {},
          "Sizes that the file leaves open, by their names there or as INPUT.AXIS: batch=8,x.1=3; "
          "what is not named is 1");
ABSL_FLAG(
    std::string, inputs, "",
    "A folder with input_0.npy, input_1.npy, ... and perhaps with output_0.npy, ..., which "
    "the outputs are compared with: all of them, or none is there; without it inputs are made "
    "up");
ABSL_FLAG(std::vector<std::string>, known, {},
          "Inputs whose values the compiler may use, for models that compute shapes from them");
ABSL_FLAG(
    double, tolerance, 1e-5,
    "What an output of floating numbers may differ from the expected one, by the largest number "
    "in it; whole numbers and bools are the same");
ABSL_FLAG(double, bench, 0, "How many seconds to measure, after as many steps as take a tenth");

namespace braid {
namespace {

using onnx::Argument;
using onnx::Model;
using onnx::ValueInfo;

absl::StatusOr<std::map<std::string, int64_t>> SizesOfFlag() {
  std::map<std::string, int64_t> sizes;
  for (const std::string& text : absl::GetFlag(FLAGS_sizes)) {
    const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits('=', 1));
    int64_t size = 0;
    if (!absl::SimpleAtoi(parts.second, &size) || size < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("--sizes has '", text, "'; NAME=NUMBER is needed, as in batch=8"));
    }
    sizes[parts.first] = size;
  }
  return sizes;
}

// Of an input without an array: of the sizes that the file and --sizes say.
absl::StatusOr<TensorType> TypeOf(const ValueInfo& input,
                                  const std::map<std::string, int64_t>& sizes) {
  if (!input.dims || !input.dtype || input.is_sequence || input.is_optional) {
    return absl::UnimplementedError(
        absl::StrCat("the input ", input.ToString(),
                     " has no shape and element type in the file; give its array by "
                     "--inputs"));
  }
  std::vector<int64_t> dims;
  for (const onnx::Dim& dim : *input.dims) {
    int64_t size = dim.size.value_or(1);
    if (const auto named = sizes.find(dim.name); named != sizes.end() && !dim.size) {
      size = named->second;
    }
    const std::string place = absl::StrCat(input.name, ".", dims.size());
    if (const auto placed = sizes.find(place); placed != sizes.end()) size = placed->second;
    dims.push_back(size);
  }
  return TensorType{*input.dtype, Shape(std::move(dims))};
}

// Floating numbers in [-1, 1], whole ones and bools 1: masks that let all pass, indices that exist.
Array MadeUp(const TensorType& type) {
  Array wide(DType::kF64, type.shape);
  const bool is_floating = IsFloating(type.dtype);
  int64_t i = 0;
  for (double& value : wide.mutable_data<double>()) {
    value = is_floating ? std::sin(static_cast<double>(++i) * 12.9898) : 1;
  }
  return wide.As(type.dtype);
}

absl::StatusOr<std::vector<Array>> Inputs(const Model& model) {
  BRAID_ASSIGN_OR_RETURN(const auto sizes, SizesOfFlag());
  const std::filesystem::path folder = absl::GetFlag(FLAGS_inputs);
  std::vector<Array> arrays;
  for (const ValueInfo& input : model.inputs()) {
    if (!folder.empty()) {
      const std::string name = absl::StrCat("input_", arrays.size(), ".npy");
      BRAID_ASSIGN_OR_RETURN(Array array, Array::ReadNpy((folder / name).string()));
      arrays.push_back(std::move(array));
      continue;
    }
    BRAID_ASSIGN_OR_RETURN(const TensorType type, TypeOf(input, sizes));
    arrays.push_back(MadeUp(type));
  }
  return arrays;
}

void Describe(const Model& model) {
  std::cout << absl::GetFlag(FLAGS_model) << ": " << model.origin() << "\n";
  for (const ValueInfo& input : model.inputs()) {
    std::cout << "  input  " << input.ToString() << "\n";
  }
  for (const ValueInfo& output : model.outputs()) {
    std::cout << "  output " << output.ToString() << "\n";
  }
  int64_t elements = 0, bytes = 0;
  for (const auto& [name, numbers] : model.weights()) {
    elements += numbers->type().shape.num_elements();
    bytes += numbers->num_bytes();
  }
  std::cout << absl::StrFormat("  %d weights of %d numbers, %.1f MiB\n", model.weights().size(),
                               elements, static_cast<double>(bytes) / (1 << 20));
  std::vector<std::pair<int64_t, std::string>> by_count;
  for (const auto& [name, count] : model.operators()) by_count.emplace_back(-count, name);
  std::sort(by_count.begin(), by_count.end());
  std::cout << "  operators:";
  const char* separator = " ";
  for (const auto& [count, name] : by_count) {
    std::cout << separator << -count << " " << name;
    separator = ", ";
  }
  std::cout << "\n" << std::flush;
}

// The largest difference by the largest expected number; NaN agrees with NaN.
double Difference(const Array& actual, const Array& expected) {
  const Array a = actual.As(DType::kF64), e = expected.As(DType::kF64);
  double largest = 1e-30, difference = 0;
  for (int64_t i = 0; i < e.num_elements(); ++i) {
    const double x = a.data<double>()[i], y = e.data<double>()[i];
    if (std::isfinite(y)) largest = std::max(largest, std::abs(y));
    if (x == y || (std::isnan(x) && std::isnan(y))) continue;
    const double apart = std::abs(x - y);
    difference = std::isnan(apart) ? INFINITY : std::max(difference, apart);
  }
  return difference / largest;
}

std::string ExpectedFile(size_t index) {
  const std::filesystem::path folder = absl::GetFlag(FLAGS_inputs);
  return (folder / absl::StrCat("output_", index, ".npy")).string();
}

// What the file has, in the output's type if .npy files cannot have that one, or both are floating.
absl::StatusOr<Array> ReadExpected(const std::string& file, DType dtype) {
  BRAID_ASSIGN_OR_RETURN(Array expected, Array::ReadNpy(file));
  const bool is_same_kind = IsFloating(expected.dtype()) && IsFloating(dtype);
  return FormatNpyHeader(dtype, {}).ok() && !is_same_kind ? expected : expected.As(dtype);
}

absl::Status Compare(const std::string& name, const std::string& file, const Array& actual) {
  BRAID_ASSIGN_OR_RETURN(const Array expected, ReadExpected(file, actual.dtype()));
  const std::string exact = ExactDifference(actual, expected);
  const bool has_type = expected.dtype() == actual.dtype() && expected.shape() == actual.shape();
  const bool is_exact = IsWholeNumber(actual.dtype()) || actual.dtype() == DType::kBool;
  if (!exact.empty() && (is_exact || !has_type)) {
    std::cout << "\n";
    return absl::FailedPreconditionError(
        absl::StrCat("output '", name, "' is not as in ", file, ": ", exact));
  }
  const double difference = exact.empty() ? 0 : Difference(actual, expected);
  std::cout << absl::StrFormat(": differs by %.2g of the largest number\n", difference);
  if (difference <= absl::GetFlag(FLAGS_tolerance)) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrFormat(
      "output '%s' differs from %s by %.3g of the largest number; --tolerance is %g", name, file,
      difference, absl::GetFlag(FLAGS_tolerance)));
}

// Prints what the outputs are, and compares them if --inputs has arrays for them: none or all.
absl::Status CompareAll(const std::vector<std::string>& names, const std::vector<Array>& outputs) {
  std::string there, missing, missed;
  for (size_t i = 0; i < outputs.size() && !absl::GetFlag(FLAGS_inputs).empty(); ++i) {
    const std::string file = ExpectedFile(i);
    if (std::filesystem::exists(file)) {
      there = file;
    } else if (missing.empty()) {
      missing = file;
      missed = names[i];
    }
  }
  if (!there.empty() && !missing.empty()) {
    return absl::NotFoundError(absl::StrCat("output '", missed, "' has nothing to compare with: ",
                                            there, " is there, but ", missing, " is not"));
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    std::cout << "  " << names[i] << " " << ToString(outputs[i].dtype())
              << outputs[i].shape().ToString();
    if (there.empty()) {
      std::cout << "\n";
    } else {
      BRAID_RETURN_IF_ERROR(Compare(names[i], ExpectedFile(i), outputs[i]));
    }
  }
  return absl::OkStatus();
}

absl::Status Measure(CompiledJob& job, const RunOptions& step, double seconds) {
  const std::unique_ptr<Environment> clock = MakeRealEnvironment();
  const auto run = [&](int64_t steps) -> absl::StatusOr<double> {
    RunOptions options = step;
    options.steps = steps;
    options.keep = Keep::kLast;
    const Nanoseconds start = clock->Now();
    BRAID_RETURN_IF_ERROR(job.Run(options).status());
    return Seconds(clock->Now() - start);
  };
  double spent = 0;
  int64_t warm = 0;
  while (spent < seconds / 10 || warm == 0) {
    BRAID_ASSIGN_OR_RETURN(const double took, run(1));
    spent += took, ++warm;
  }
  // As a program that answers requests runs it, then as one that has many.
  std::vector<double> alone;
  spent = 0;
  while (spent < seconds / 2 || alone.empty()) {
    BRAID_ASSIGN_OR_RETURN(alone.emplace_back(), run(1));
    spent += alone.back();
  }
  std::sort(alone.begin(), alone.end());
  const double of_one = alone[alone.size() / 2];
  std::cout << absl::StrFormat("  %.4g ms a run of one step (median of %d; %.4g to %.4g)\n",
                               of_one * 1e3, alone.size(), alone.front() * 1e3, alone.back() * 1e3);
  constexpr int kParts = 10;
  const auto steps = std::max<int64_t>(1, static_cast<int64_t>(seconds / 2 / kParts / of_one));
  std::vector<double> parts;
  for (int i = 0; i < kParts; ++i) {
    BRAID_ASSIGN_OR_RETURN(const double took, run(steps));
    parts.push_back(took / static_cast<double>(steps));
  }
  std::sort(parts.begin(), parts.end());
  std::cout << absl::StrFormat("  %.4g ms a step (median of %d runs of %d steps; %.4g to %.4g)\n",
                               parts[kParts / 2] * 1e3, kParts, steps, parts.front() * 1e3,
                               parts.back() * 1e3);
  return absl::OkStatus();
}

absl::Status RunFile(Session& session) {
  if (absl::GetFlag(FLAGS_model).empty()) {
    return absl::InvalidArgumentError("no file is named: braid onnx FILE");
  }
  BRAID_ASSIGN_OR_RETURN(Model model, onnx::Load(absl::GetFlag(FLAGS_model)));
  Describe(model);
  BRAID_ASSIGN_OR_RETURN(const std::vector<Array> inputs, Inputs(model));
  const std::vector<std::string> known = absl::GetFlag(FLAGS_known);
  std::vector<std::string> names;
  BRAID_ASSIGN_OR_RETURN(CompiledJob job, session.Compile("onnx", [&](Job& job) -> absl::Status {
    std::vector<Argument> arguments;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const std::string& name = model.inputs()[i].name;
      const Tensor x = job.Input(absl::StrCat("input_", i), inputs[i].shape(), inputs[i].dtype());
      const bool is_known = std::find(known.begin(), known.end(), name) != known.end();
      arguments.push_back(is_known ? Argument(x, inputs[i]) : Argument(x));
    }
    BRAID_ASSIGN_OR_RETURN(const std::vector<Tensor> outputs,
                           model.Apply(job, arguments, {.is_trainable = false}));
    for (size_t i = 0; i < outputs.size(); ++i) {
      names.push_back(absl::StrCat("output_", i));
      job.Fetch(names.back(), outputs[i]);
    }
    return absl::OkStatus();
  }));
  BRAID_RETURN_IF_ERROR(model.LoadInto(session));
  RunOptions step;
  for (size_t i = 0; i < inputs.size(); ++i) {
    step.feeds.emplace_back(absl::StrCat("input_", i), inputs[i]);
  }
  BRAID_ASSIGN_OR_RETURN(const RunResult result, job.Run(step));
  std::vector<Array> outputs;
  for (std::string& name : names) {
    outputs.push_back(result.Last(name));
    const bool has_name = names.size() == model.outputs().size();
    if (has_name) name = model.outputs()[outputs.size() - 1].name;
  }
  BRAID_RETURN_IF_ERROR(CompareAll(names, outputs));
  const double seconds = absl::GetFlag(FLAGS_bench);
  return seconds > 0 ? Measure(job, step, seconds) : absl::OkStatus();
}

}  // namespace
}  // namespace braid

int main(int argc, char** argv) {
  return braid::Main(argc, argv,
                     {.about = "braid onnx FILE: what is in an ONNX file; runs it, "
                               "compares what comes out, and times it."},
                     braid::RunFile);
}
