// Of KernelSpecs: reductions.
#include "runtime/kernels/cuda/reduce.h"

#include <algorithm>
#include <bit>
#include <memory>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/kernels/cuda/block_shapes.h"
#include "runtime/kernels/cuda/families.h"
#include "runtime/kernels/cuda/make_kernel.h"
#include "runtime/kernels/cuda/register_scan.h"

namespace braid::cuda {
namespace {

using PlanOr = absl::StatusOr<PlannedKernel>;

constexpr int64_t kNarrow = 32;     // rows of up to so many elements are one thread's each
constexpr int64_t kRowPart = 4096;  // elements of a row's part, at least
constexpr int64_t kThreadPart = 8;  // elements that a thread joins of a column's part, at least

// A warp's threads take neighbouring columns, if there are so many; then long columns come first.
// Where that leaves a card idle, as joining parts does, a thread takes no more elements than it
// reads at a time, and fewer threads neighbouring columns.
ColumnBlocks BlocksOf(int64_t columns, int64_t size) {
  constexpr int64_t kWarp = 32, kFewLanes = 8, kAtATime = 4;
  const bool is_idle = DivideUp(columns, kWarp) < kManyBlocks / 8 && size <= kRowPart;
  const int64_t part = is_idle ? kAtATime : kThreadPart;
  ColumnBlocks blocks;
  blocks.lanes = PowerOfTwo(columns, is_idle ? kFewLanes : kWarp);
  blocks.rows = PowerOfTwo(DivideUp(size, part), kBlockThreads / blocks.lanes);
  blocks.lanes = PowerOfTwo(columns, kBlockThreads / blocks.rows);
  return blocks;
}

// Neighbouring elements that a thread has of [outer, inner].
int64_t PacksOf(const ReduceLaunch& pass) {
  const int64_t bytes = static_cast<int64_t>(SizeOf(pass.in_type));
  const bool is_packed = IsFloating(pass.in_type) && bytes < 8 && pass.inner * bytes % 16 == 0;
  return is_packed ? pass.outer * (pass.inner * bytes / 16) : pass.outer * pass.inner;
}

// Cuts the reduced axis where the outputs alone do not keep a card busy.
void Cut(ReduceLaunch& pass) {
  int64_t most = pass.reduced / kRowPart, blocks = pass.outer;
  if (!pass.by_rows) {
    most = pass.reduced / (kThreadPart * pass.columns.rows);
    blocks = DivideUp(PacksOf(pass), pass.columns.lanes);
  }
  const int64_t wanted = kManyBlocks / std::max<int64_t>(1, blocks);
  const int64_t parts = std::clamp<int64_t>(wanted, 1, std::max<int64_t>(1, most));
  // Whole packs.
  pass.part_size = std::max<int64_t>(1, DivideUp(DivideUp(pass.reduced, parts), 16)) * 16;
  pass.parts = std::max<int64_t>(1, DivideUp(pass.reduced, pass.part_size));
}

ReduceLaunch PassOf(DType type, const AxisView& view) {
  ReduceLaunch pass = {.in_type = type,
                       .out_type = type,
                       .outer = view.outer,
                       .reduced = view.size,
                       .inner = view.inner,
                       .part_size = view.size};
  pass.by_rows = view.inner == 1 && view.size > kNarrow;
  // Neighbouring threads' rows are apart: a thread has a whole one.
  if (!pass.by_rows) pass.columns = BlocksOf(PacksOf(pass), view.inner == 1 ? 1 : view.size);
  return pass;
}

// What lies between passes.
DType WideType(DType type) { return IsNarrow(type) ? DType::kF32 : type; }

// Neighbouring axes of one kind are merged; then each pass takes the last reduced group, a second
// one what the parts of the first gave.
std::vector<ReduceLaunch> PassesOf(DType type, const Shape& shape,
                                   const std::vector<int64_t>& axes) {
  struct Group {
    int64_t size;
    bool is_reduced;
  };
  std::vector<Group> groups;
  for (int i = 0; i < shape.rank(); ++i) {
    const bool is_reduced = std::ranges::find(axes, i) != axes.end();
    if (!groups.empty() && groups.back().is_reduced == is_reduced) {
      groups.back().size *= shape[i];
    } else {
      groups.push_back({shape[i], is_reduced});
    }
  }
  std::vector<ReduceLaunch> passes;
  int64_t inner = 1;
  for (size_t i = groups.size(); i-- > 0;) {
    if (!groups[i].is_reduced) {
      inner *= groups[i].size;
      continue;
    }
    int64_t outer = 1;
    for (size_t j = 0; j < i; ++j) outer *= groups[j].size;
    passes.push_back(PassOf(passes.empty() ? type : WideType(type),
                            {.outer = outer, .size = groups[i].size, .inner = inner}));
    Cut(passes.back());
    const int64_t parts = passes.back().parts;
    if (parts == 1) continue;
    passes.push_back(PassOf(WideType(type), {.outer = outer, .size = parts, .inner = inner}));
  }
  // Nothing to reduce: element by element.
  if (passes.empty()) passes.push_back(PassOf(type, {.outer = shape.num_elements()}));
  return passes;
}

int64_t BytesOf(const ReduceLaunch& pass) {
  const int64_t bytes =
      pass.outer * pass.parts * pass.inner * static_cast<int64_t>(SizeOf(pass.out_type));
  return DivideUp(bytes, 256) * 256;
}

PlanOr PlanReduce(const ReduceTable& table, const KernelSpec& spec, Reduction kind, bool is_mean) {
  const OperandSpec& in = spec.inputs[0];
  const DType type = in.dtype;
  const bool is_byte = type == DType::kU8 || type == DType::kBool;
  const bool is_extreme = kind == Reduction::kMax || kind == Reduction::kMin;
  const DType result = spec.outputs[0].dtype;
  const bool may_be_wide = kind == Reduction::kSum || is_extreme;
  const bool has_result = result == type || (may_be_wide && result == WideType(type));
  if (!has_result || (is_mean && !IsFloating(type)) || (is_byte && !is_extreme)) {
    return UnsupportedTypes(spec);
  }
  const std::vector<int64_t>& axes = spec.attrs.Ints("axes");
  std::vector<ReduceLaunch> passes = PassesOf(type, in.shape(), axes);
  for (ReduceLaunch& pass : passes) {
    pass.kind = kind;
    pass.out_type = WideType(type);
    pass.is_bool = type == DType::kBool;
    // What the first pass leaves is summed.
    if (kind == Reduction::kSumSquare || kind == Reduction::kSumAbs) kind = Reduction::kSum;
  }
  passes.back().out_type = result;
  if (is_mean) {
    for (const int64_t axis : axes) {
      passes.back().factor /= static_cast<double>(in.logical[static_cast<int>(axis)]);
    }
  }
  // Results between passes, in turns.
  int64_t bytes[2] = {0, 0};
  for (size_t i = 0; i + 1 < passes.size(); ++i) {
    bytes[i % 2] = std::max(bytes[i % 2], BytesOf(passes[i]));
  }
  return PlanWithWork(
      spec, bytes[0] + bytes[1],
      [passes, odd = bytes[0], &table](const Queue& queue, const KernelRun& run, std::byte* work) {
        const void* from = run.inputs[0];
        for (size_t i = 0; i < passes.size(); ++i) {
          ReduceLaunch pass = passes[i];
          pass.in = from;
          pass.out = work + (i % 2 == 0 ? 0 : odd);
          if (i + 1 == passes.size()) pass.out = run.outputs[0];
          from = pass.out;
          const Error error = table.reduce(queue, pass);
          if (error != kDone) return error;
        }
        return kDone;
      });
}

PlanOr PlanArgExtreme(const ReduceTable& table, const KernelSpec& spec, bool is_min) {
  const OperandSpec& in = spec.inputs[0];
  if (spec.outputs[0].dtype != DType::kI32 || in.dtype == DType::kBool) {
    return UnsupportedTypes(spec);
  }
  const AxisView view = ViewAround(in.shape(), static_cast<int>(spec.attrs.Int("axis")));
  ArgExtremeLaunch launch = {.type = in.dtype,
                             .outer = view.outer,
                             .size = view.size,
                             .inner = view.inner,
                             .is_min = is_min,
                             .is_last = Flag(spec.attrs, "last")};
  const int64_t columns = view.outer * view.inner;
  if (view.inner > 1) {
    launch.columns = BlocksOf(columns, view.size);
  } else if (view.size > kNarrow) {
    launch.columns.rows = PowerOfTwo(DivideUp(view.size, 4), kBlockThreads);
  } else {
    launch.columns = BlocksOf(columns, 1);
  }
  return PlanWithWork(spec, 0, [=, &table](const Queue& queue, const KernelRun& run, std::byte*) {
    ArgExtremeLaunch now = launch;
    now.x = run.inputs[0];
    now.out = static_cast<int32_t*>(run.outputs[0]);
    return table.arg_extreme(queue, now);
  });
}

}  // namespace

absl::Status RegisterReduceKernels(const KernelTable& all, KernelRegistry& registry) {
  const ReduceTable& table = all.reduce;
  struct Named {
    const char* name;
    Reduction kind;
    bool is_mean = false;
  };
  for (const Named& named : {Named{"reduce_sum", Reduction::kSum},
                             {"reduce_mean", Reduction::kSum, true},
                             {"reduce_max", Reduction::kMax},
                             {"reduce_min", Reduction::kMin},
                             {"reduce_prod", Reduction::kProd},
                             {"reduce_sum_square", Reduction::kSumSquare},
                             {"reduce_l1", Reduction::kSumAbs}}) {
    BRAID_RETURN_IF_ERROR(registry.Register(named.name, [named, &table](const KernelSpec& spec) {
      return PlanReduce(table, spec, named.kind, named.is_mean);
    }));
  }
  for (const bool is_min : {false, true}) {
    BRAID_RETURN_IF_ERROR(registry.Register(
        is_min ? "argmin" : "argmax",
        [is_min, &table](const KernelSpec& spec) { return PlanArgExtreme(table, spec, is_min); }));
  }
  return RegisterScanKernels(table.scan, registry);
}

}  // namespace braid::cuda
