// Of KernelSpecs: matmul, matmul_add, matmul_integer and tensordot.
#include "runtime/kernels/cuda/matmul.h"

#include <memory>
#include <optional>
#include <vector>

#include "absl/strings/str_format.h"
#include "runtime/base/status.h"
#include "runtime/kernels/cuda/byte_product.h"
#include "runtime/kernels/cuda/families.h"
#include "runtime/kernels/cuda/make_kernel.h"

namespace braid::cuda {
namespace {

using PlanOr = absl::StatusOr<PlannedKernel>;

// With the operands' types.
absl::StatusOr<MatmulLaunch> LaunchOf(const KernelSpec& spec) {
  const DType dtype = spec.inputs[0].dtype, result = spec.outputs[0].dtype;
  const bool is_narrow = IsNarrow(dtype);
  const bool fits = result == dtype || (is_narrow && result == DType::kF32);
  if (!IsFloating(dtype) || !fits || spec.inputs[1].dtype != dtype) return UnsupportedTypes(spec);
  MatmulLaunch launch;
  launch.dtype = dtype;
  launch.wide_result = result != dtype;
  return launch;
}

absl::Status Disagree(const KernelSpec& spec) {
  return absl::InternalError(
      absl::StrFormat("%s '%s': the local shapes %s, %s and %s do not belong together", spec.op,
                      spec.name, spec.inputs[0].shape().ToString(),
                      spec.inputs[1].shape().ToString(), spec.outputs[0].shape().ToString()));
}

// Which inputs are added to the product.
struct Addends {
  std::optional<size_t> row, whole;
};

PlannedKernel PlanLaunch(const KernelSpec& spec, const MatmulTable& table, MatmulLaunch launch,
                         const Addends& addends = {}) {
  launch.shape.products = launch.batch.elements;
  launch.shape = WithSplits(launch.shape);
  const auto multiply = table.multiply;
  return PlanWithWork(spec, launch.WorkBytes(),
                      [=](const Queue& queue, const KernelRun& run, std::byte* work) {
                        MatmulLaunch now = launch;
                        now.a = run.inputs[0];
                        now.b = run.inputs[1];
                        if (addends.row) now.row = run.inputs[*addends.row];
                        if (addends.whole) now.addend = run.inputs[*addends.whole];
                        now.c = run.outputs[0];
                        now.work = work;
                        return multiply(queue, now);
                      });
}

// Of matrices over the leading dimensions of c: an operand with a leading size of 1, or without
// that dimension, repeats.
absl::StatusOr<Walk> BatchWalk(const Shape& a, const Shape& b, const Shape& c) {
  std::vector<int64_t> sizes;
  for (int i = 0; i < c.rank() - 2; ++i) sizes.push_back(c[i]);
  std::vector<std::vector<int64_t>> strides;
  for (const Shape* operand : {&a, &b, &c}) {
    const std::vector<int64_t> dense = DenseStrides(*operand);
    std::vector<int64_t>& repeated = strides.emplace_back(sizes.size(), 0);
    for (int i = 0; i < operand->rank() - 2; ++i) {
      if ((*operand)[i] != 1) repeated[c.rank() - operand->rank() + i] = dense[i];
    }
  }
  return WalkOf(sizes, strides);
}

PlanOr PlanMatmul(const KernelSpec& spec, const MatmulTable& table, const Addends& addends = {}) {
  BRAID_ASSIGN_OR_RETURN(MatmulLaunch launch, LaunchOf(spec));
  const Shape& a = spec.inputs[0].shape();
  const Shape& b = spec.inputs[1].shape();
  const Shape& c = spec.outputs[0].shape();
  launch.transpose_a = Flag(spec.attrs, "transpose_a");
  launch.transpose_b = Flag(spec.attrs, "transpose_b");
  ProductShape& shape = launch.shape;
  shape.rows = c[c.rank() - 2];
  shape.columns = c[c.rank() - 1];
  shape.depth = launch.transpose_a ? a[a.rank() - 2] : a[a.rank() - 1];
  const int64_t a_rows = launch.transpose_a ? a[a.rank() - 1] : a[a.rank() - 2];
  const int64_t b_depth = launch.transpose_b ? b[b.rank() - 1] : b[b.rank() - 2];
  const int64_t b_columns = launch.transpose_b ? b[b.rank() - 2] : b[b.rank() - 1];
  if (a_rows != shape.rows || b_depth != shape.depth || b_columns != shape.columns) {
    return Disagree(spec);
  }
  if (b.rank() == 2 && !launch.transpose_a) {
    // Leading dimensions of a are just more rows.
    for (int i = 0; i < c.rank() - 2; ++i) shape.rows *= c[i];
  } else {
    BRAID_ASSIGN_OR_RETURN(launch.batch, BatchWalk(a, b, c));
  }
  return PlanLaunch(spec, table, launch, addends);
}

PlanOr PlanMatmulAdd(const KernelSpec& spec, const MatmulTable& table) {
  Addends addends;
  for (size_t i = 2; i < spec.inputs.size(); ++i) {
    std::optional<size_t>& place = spec.inputs[i].shape().rank() == 1 ? addends.row : addends.whole;
    if (spec.inputs[i].dtype != spec.outputs[0].dtype) return UnsupportedTypes(spec);
    place = i;
  }
  return PlanMatmul(spec, table, addends);
}

PlanOr PlanTensordot(const KernelSpec& spec, const MatmulTable& table) {
  BRAID_ASSIGN_OR_RETURN(MatmulLaunch launch, LaunchOf(spec));
  const Shape& a = spec.inputs[0].shape();
  const Shape& b = spec.inputs[1].shape();
  const Shape& c = spec.outputs[0].shape();
  launch.transpose_a = true;
  ProductShape& shape = launch.shape;
  shape.rows = c[0];
  shape.columns = c[1];
  shape.depth = 1;
  for (int i = 0; i + 1 < a.rank(); ++i) shape.depth *= a[i];
  if (a.num_elements() != shape.depth * shape.rows ||
      b.num_elements() != shape.depth * shape.columns) {
    return Disagree(spec);
  }
  return PlanLaunch(spec, table, launch);
}

std::unique_ptr<Kernel> MakeIntegerMatmul(const KernelSpec& spec, const IntegerTable& table) {
  const Shape &a = spec.inputs[0].shape(), &c = spec.outputs[0].shape();
  ByteProductLaunch launch = ByteOperandsOf(spec);
  launch.batch = 1;
  for (int i = 0; i + 1 < c.rank(); ++i) launch.batch *= c[i];
  launch.in = a[a.rank() - 1];
  launch.out = c[c.rank() - 1];
  const bool is_transposed = Flag(spec.attrs, "transpose_b");
  launch.w_output = is_transposed ? launch.in : 1;
  launch.w_input = is_transposed ? 1 : launch.out;
  return MakeByteProduct(launch, table, spec.inputs.size());
}

}  // namespace

absl::Status RegisterMatmulKernels(const KernelTable& table, KernelRegistry& registry) {
  const MatmulTable* matmul = &table.matmul;
  BRAID_RETURN_IF_ERROR(registry.Register(
      "matmul", [=](const KernelSpec& spec) { return PlanMatmul(spec, *matmul); }));
  BRAID_RETURN_IF_ERROR(registry.Register(
      "matmul_add", [=](const KernelSpec& spec) { return PlanMatmulAdd(spec, *matmul); }));
  BRAID_RETURN_IF_ERROR(registry.Register("matmul_integer",
                                          [integers = &table.integers](const KernelSpec& spec)
                                              -> absl::StatusOr<std::unique_ptr<Kernel>> {
                                            return MakeIntegerMatmul(spec, *integers);
                                          }));
  return registry.Register("tensordot",
                           [=](const KernelSpec& spec) { return PlanTensordot(spec, *matmul); });
}

}  // namespace braid::cuda
