#include "api/conformance/operator_run.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/status.h"

namespace braid::conformance {
namespace {

constexpr int64_t kStep = 3;

bool AnyPartial(const std::vector<NdSbp>& operands, int dim) {
  return std::any_of(operands.begin(), operands.end(),
                     [dim](const NdSbp& sbp) { return sbp[dim].is_partial(); });
}

OperandSpec OperandAt(const TensorType& type, const NdSbp& sbp, const RunOptions& options,
                      std::vector<int64_t> coordinate) {
  OperandSpec operand = {.dtype = type.dtype, .logical = type.shape};
  const int first_device_dim = options.outermost_is_micro_batches ? 1 : 0;
  if (options.outermost_is_micro_batches) {
    coordinate[0] = 0;
    if (sbp[0].is_split()) {
      operand.micro_batch_axis = sbp[0].axis;
      operand.micro_batch_stride = type.shape[sbp[0].axis] / options.hierarchy[0];
    }
  }
  operand.region = RegionOf(type.shape, sbp, options.hierarchy, coordinate);
  for (int dim = first_device_dim; dim < sbp.rank(); ++dim) {
    operand.partial = operand.partial || sbp[dim].is_partial();
  }
  return operand;
}

KernelSpec SpecAt(const OpCase& c, const RunOptions& options,
                  const std::vector<int64_t>& coordinate) {
  KernelSpec spec = {
      .op = c.def->name(), .name = "conformance." + c.def->name(), .attrs = c.attrs, .seed = 7};
  const Layouts& layouts = options.layouts;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    spec.inputs.push_back(OperandAt(c.inputs[i], layouts.inputs[i], options, coordinate));
  }
  for (size_t i = 0; i < c.outputs.size(); ++i) {
    spec.outputs.push_back(OperandAt(c.outputs[i], layouts.outputs[i], options, coordinate));
  }
  // As plans say it: rank 0 of every dimension where addends are made of what is none.
  for (size_t dim = options.outermost_is_micro_batches ? 1 : 0; dim < coordinate.size(); ++dim) {
    const int d = static_cast<int>(dim);
    if (coordinate[dim] != 0 && AnyPartial(layouts.outputs, d) && !AnyPartial(layouts.inputs, d)) {
      spec.contributes = false;
    }
  }
  return spec;
}

bool SameBytes(const Array& a, const Array& b) {
  return a.num_bytes() == b.num_bytes() &&
         (a.num_bytes() == 0 || std::memcmp(a.bytes(), b.bytes(), a.num_bytes()) == 0);
}

// With `inplace`, output inplace.second takes the bytes of input inplace.first.
absl::StatusOr<Operands> RunOnce(Kernel& kernel, const KernelSpec& spec, std::vector<Array> inputs,
                                 int64_t act, std::pair<int, int> inplace = {-1, -1}) {
  Operands operands = {.inputs = std::move(inputs)};
  std::vector<void*> in, out;
  for (Array& input : operands.inputs) in.push_back(input.mutable_bytes());
  for (const OperandSpec& output : spec.outputs) {
    operands.outputs.emplace_back(output.dtype, output.shape());
    Array& array = operands.outputs.back();
    // What was there before must not matter; all ones are NaNs.
    if (array.num_bytes() > 0) std::memset(array.mutable_bytes(), 0xff, array.num_bytes());
    out.push_back(array.mutable_bytes());
  }
  if (inplace.first >= 0) out[inplace.second] = in[inplace.first];
  BRAID_RETURN_IF_ERROR(
      kernel.Run({.step = kStep, .micro_batch = act, .inputs = in.data(), .outputs = out.data()}));
  if (inplace.first >= 0) operands.outputs[inplace.second] = operands.inputs[inplace.first];
  return operands;
}

absl::Status CheckUnwritten(const OpCase& c, const std::vector<Array>& before,
                            const std::vector<Array>& after) {
  for (size_t i = 0; i < before.size(); ++i) {
    const std::vector<int>& mutates = c.def->mutates();
    if (std::count(mutates.begin(), mutates.end(), static_cast<int>(i)) > 0) continue;
    if (!SameBytes(before[i], after[i])) {
      return absl::InternalError(absl::StrCat("input ", i, " was written"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckInplace(Kernel& kernel, const KernelSpec& spec, const OpDef& def,
                          const std::vector<Array>& inputs, int64_t act, const Operands& expected) {
  for (const auto& [from, to] : def.inplace()) {
    if (from >= static_cast<int>(inputs.size())) continue;
    const OperandSpec &in = spec.inputs[from], &out = spec.outputs[to];
    if (in.dtype != out.dtype || in.num_elements() != out.num_elements()) continue;
    BRAID_ASSIGN_OR_RETURN(const Operands got, RunOnce(kernel, spec, inputs, act, {from, to}));
    for (size_t i = 0; i < expected.outputs.size(); ++i) {
      if (!SameBytes(got.outputs[i], expected.outputs[i])) {
        return absl::InternalError(absl::StrCat("output ", i, " differs when input ", from,
                                                " gives its bytes to output ", to));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::string Layouts::ToString() const {
  const auto text = [](std::string* out, const NdSbp& sbp) { out->append(sbp.ToString()); };
  return absl::StrCat("(", absl::StrJoin(inputs, ", ", text), ")->(",
                      absl::StrJoin(outputs, ", ", text), ")");
}

Layouts ProductOf(const std::vector<SbpSignature>& per_dimension) {
  const auto product = [&](size_t operand, auto operands_of) {
    std::vector<Sbp> dims;
    for (const SbpSignature& signature : per_dimension) {
      dims.push_back(operands_of(signature)[operand]);
    }
    return NdSbp(std::move(dims));
  };
  Layouts layouts;
  for (size_t i = 0; i < per_dimension[0].inputs.size(); ++i) {
    layouts.inputs.push_back(
        product(i, [](const SbpSignature& s) -> const std::vector<Sbp>& { return s.inputs; }));
  }
  for (size_t i = 0; i < per_dimension[0].outputs.size(); ++i) {
    layouts.outputs.push_back(
        product(i, [](const SbpSignature& s) -> const std::vector<Sbp>& { return s.outputs; }));
  }
  return layouts;
}

Layouts AllBroadcast(const OpCase& c) {
  return {std::vector<NdSbp>(c.inputs.size(), NdSbp(sbp::B)),
          std::vector<NdSbp>(c.outputs.size(), NdSbp(sbp::B))};
}

absl::StatusOr<std::vector<Operands>> RunRanks(const KernelRegistry& kernels, const OpCase& c,
                                               const std::vector<Array>& inputs,
                                               const RunOptions& options) {
  std::vector<std::vector<Array>> shards;  // [input][rank]
  for (size_t i = 0; i < inputs.size(); ++i) {
    shards.push_back(Shard(inputs[i], options.layouts.inputs[i], options.hierarchy, 99 + i));
  }
  std::vector<Operands> results;
  std::vector<std::unique_ptr<Kernel>> made;  // by device
  const int devices = options.outermost_is_micro_batches
                          ? NumRanks(options.hierarchy) / static_cast<int>(options.hierarchy[0])
                          : NumRanks(options.hierarchy);
  for (int rank = 0; rank < NumRanks(options.hierarchy); ++rank) {
    const KernelSpec spec = SpecAt(c, options, CoordinateOf(options.hierarchy, rank));
    if (rank < devices) {
      BRAID_ASSIGN_OR_RETURN(std::unique_ptr<Kernel> kernel, kernels.Create(spec));
      made.push_back(std::move(kernel));
    }
    const int64_t act = rank / devices;
    Kernel& kernel = *made[rank % devices];
    std::vector<Array> local;
    for (const std::vector<Array>& shard : shards) local.push_back(shard[rank]);
    BRAID_ASSIGN_OR_RETURN(Operands operands, RunOnce(kernel, spec, local, act));
    BRAID_RETURN_IF_ERROR(CheckUnwritten(c, local, operands.inputs));
    BRAID_RETURN_IF_ERROR(CheckInplace(kernel, spec, *c.def, local, act, operands));
    results.push_back(std::move(operands));
  }
  return results;
}

absl::StatusOr<std::vector<std::vector<double>>> RunWhole(const KernelRegistry& kernels,
                                                          const OpCase& c,
                                                          const std::vector<Array>& inputs) {
  BRAID_ASSIGN_OR_RETURN(const std::vector<Operands> ranks,
                         RunRanks(kernels, c, inputs, {.layouts = AllBroadcast(c)}));
  std::vector<std::vector<double>> results;
  for (const Array& output : ranks[0].outputs) results.push_back(Numbers(output));
  for (int input : c.def->mutates()) results.push_back(Numbers(ranks[0].inputs[input]));
  return results;
}

std::string CheckAgainstWhole(const KernelRegistry& kernels, const OpCase& c,
                              const std::vector<Array>& inputs, const RunOptions& options,
                              double tolerance) {
  const std::string what = absl::StrCat(
      c.label, ": ", options.layouts.ToString(), " over [", absl::StrJoin(options.hierarchy, ", "),
      "]", options.outermost_is_micro_batches ? ", the first is micro-batches" : "", ": ");
  const auto whole = RunWhole(kernels, c, inputs);
  if (!whole.ok()) return absl::StrCat(what, whole.status().ToString());
  const auto ranks = RunRanks(kernels, c, inputs, options);
  if (!ranks.ok()) return absl::StrCat(what, ranks.status().ToString());

  // Addends are rounded one by one before they cancel.
  double scale = 1;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (options.layouts.inputs[i].has_partial()) {
      scale = std::max(scale, LargestOf(Numbers(inputs[i])));
    }
  }
  struct Result {
    std::string name;
    const NdSbp* sbp;
    const Shape* shape;
    std::vector<Array> parts;
  };
  std::vector<Result> results;
  for (size_t i = 0; i < c.outputs.size(); ++i) {
    results.push_back(
        {absl::StrCat("output ", i), &options.layouts.outputs[i], &c.outputs[i].shape, {}});
    for (const Operands& operands : *ranks) results.back().parts.push_back(operands.outputs[i]);
  }
  for (int input : c.def->mutates()) {
    results.push_back({absl::StrCat("mutated input ", input),
                       &options.layouts.inputs[input],
                       &c.inputs[input].shape,
                       {}});
    for (const Operands& operands : *ranks) {
      results.back().parts.push_back(operands.inputs[input]);
    }
  }
  for (size_t i = 0; i < results.size(); ++i) {
    const Result& result = results[i];
    const auto joined = Join(result.parts, *result.shape, *result.sbp, options.hierarchy);
    if (!joined.ok()) return absl::StrCat(what, result.name, ": ", joined.status().ToString());
    const std::string difference = Compare(*joined, (*whole)[i], tolerance, scale);
    if (!difference.empty()) return absl::StrCat(what, result.name, ": ", difference);
  }
  return "";
}

}  // namespace braid::conformance
