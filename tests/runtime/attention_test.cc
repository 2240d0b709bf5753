// attention and its gradients against a plain evaluation in double, over several tiles; and that
// neither needs memory for all scores.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <new>
#include <string>
#include <vector>

#include "tests/runtime/kernel_case.h"

namespace {
// Of the whole program, since the start. The libraries' own malloc does not pass here.
std::atomic<int64_t> allocations = 0, allocated_bytes = 0;
}  // namespace

// Out of line, so that compilers do not take free for the wrong partner of new.
__attribute__((noinline)) void* operator new(size_t size) {
  ++allocations;
  allocated_bytes += static_cast<int64_t>(size);
  if (void* memory = std::malloc(size); memory != nullptr) return memory;
  std::abort();
}
__attribute__((noinline)) void operator delete(void* memory) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace braid {
namespace {

struct Case {
  std::string name;
  int64_t batch = 1, heads = 1, kv_heads = 1, queries = 1, keys = 1, depth = 1, value_depth = 1;
  bool causal = false, time_first = false;
  double scale = 0.5;
  DType mask = DType::kI32;  // none; else bool or the floating type
  Shape mask_shape = {};
  bool narrow = false;  // products in bf16, where the machine has tiles for them

  bool has_mask() const { return mask != DType::kI32; }
  Shape Of(int64_t all_heads, int64_t time, int64_t size) const {
    return time_first ? Shape{batch, time, all_heads, size} : Shape{batch, all_heads, time, size};
  }
  Shape q() const { return Of(heads, queries, depth); }
  Shape k() const { return Of(kv_heads, keys, depth); }
  Shape v() const { return Of(kv_heads, keys, value_depth); }
  Shape o() const { return Of(heads, queries, value_depth); }
  Shape rows() const { return {batch, heads, queries}; }
  int64_t At(const Shape& shape, int64_t b, int64_t h, int64_t i, int64_t x) const {
    const int64_t first = time_first ? i : h, second = time_first ? h : i;
    return ((b * shape[1] + first) * shape[2] + second) * shape[3] + x;
  }
  int64_t MaskAt(int64_t b, int64_t h, int64_t i, int64_t j) const {
    const int64_t index[] = {b, h, i, j};
    int64_t flat = 0;
    for (int axis = 0; axis < mask_shape.rank(); ++axis) {
      const int64_t at = index[4 - mask_shape.rank() + axis];
      flat = flat * mask_shape[axis] + (mask_shape[axis] == 1 ? 0 : at);
    }
    return flat;
  }
  Attrs attrs() const {
    Attrs result = {{"causal", causal}, {"time_first", time_first}, {"scale", scale}};
    if (narrow) result.Set("compute", DType::kBF16);
    return result;
  }
  Attrs gradient_attrs() const {
    Attrs result = attrs();
    result.Set("masked", has_mask());
    return result;
  }
};

struct Operands {
  Values q, k, v, mask, flow, rows_flow;

  Operands(const Case& c, DType dtype)
      : q(RandomValues(c.q(), dtype, 1)),
        k(RandomValues(c.k(), dtype, 2)),
        v(RandomValues(c.v(), dtype, 3)),
        flow(RandomValues(c.o(), dtype, 4)),
        rows_flow(RandomValues(c.rows(), dtype == DType::kF64 ? dtype : DType::kF32, 5)) {
    if (!c.has_mask()) return;
    mask = RandomValues(c.mask_shape, c.mask == DType::kBool ? DType::kF32 : dtype, 6);
    if (c.mask != DType::kBool) return;
    for (double& value : mask) value = value > 0 ? 1 : 0;
  }
};

struct Results {
  Values o, lse, dq, dk, dv, dmask;
};

// With weights as a matrix. A query that sees nothing has zeros.
Results Expected(const Case& c, const Operands& in) {
  const Shape q = c.q(), k = c.k(), v = c.v(), o = c.o();
  Results out = {Values(o.num_elements()), Values(c.rows().num_elements()),
                 Values(in.q.size()),      Values(in.k.size()),
                 Values(in.v.size()),      Values(in.mask.size())};
  for (int64_t row = 0; row < c.rows().num_elements(); ++row) {
    const std::vector<int64_t> at = IndexOf(c.rows(), row);
    const int64_t b = at[0], h = at[1], i = at[2], g = h / (c.heads / c.kv_heads);
    Values p(c.keys);
    double sum = 0;
    for (int64_t j = 0; j < c.keys; ++j) {
      if (c.causal && j > i + c.keys - c.queries) continue;
      double score = 0;
      for (int64_t x = 0; x < c.depth; ++x) {
        score += in.q[c.At(q, b, h, i, x)] * in.k[c.At(k, b, g, j, x)];
      }
      score *= c.scale;
      if (c.has_mask()) {
        const double mask = in.mask[c.MaskAt(b, h, i, j)];
        if (c.mask == DType::kBool && mask == 0) continue;
        if (c.mask != DType::kBool) score += mask;
      }
      p[j] = std::exp(score);
      sum += p[j];
    }
    out.lse[row] = std::log(sum);
    if (sum == 0) continue;
    double delta = -in.rows_flow[row];
    for (int64_t j = 0; j < c.keys; ++j) {
      p[j] /= sum;
      for (int64_t x = 0; x < c.value_depth; ++x) {
        const double flow = in.flow[c.At(o, b, h, i, x)];
        const int64_t v_at = c.At(v, b, g, j, x);
        out.o[c.At(o, b, h, i, x)] += p[j] * in.v[v_at];
        out.dv[v_at] += p[j] * flow;
        delta += p[j] * in.v[v_at] * flow;
      }
    }
    for (int64_t j = 0; j < c.keys; ++j) {
      double ds = -delta;
      for (int64_t x = 0; x < c.value_depth; ++x) {
        ds += in.flow[c.At(o, b, h, i, x)] * in.v[c.At(v, b, g, j, x)];
      }
      ds *= p[j];
      if (c.has_mask()) out.dmask[c.MaskAt(b, h, i, j)] += ds;
      for (int64_t x = 0; x < c.depth; ++x) {
        const int64_t q_at = c.At(q, b, h, i, x), k_at = c.At(k, b, g, j, x);
        out.dq[q_at] += c.scale * ds * in.k[k_at];
        out.dk[k_at] += c.scale * ds * in.q[q_at];
      }
    }
  }
  return out;
}

KernelCase Forward(const Case& c, const Operands& in, DType dtype) {
  const DType rows = dtype == DType::kF64 ? dtype : DType::kF32;
  KernelCase kernel("attention", c.attrs());
  kernel.In(dtype, c.q(), in.q).In(dtype, c.k(), in.k).In(dtype, c.v(), in.v);
  if (c.has_mask()) kernel.In(c.mask == DType::kBool ? c.mask : dtype, c.mask_shape, in.mask);
  kernel.Out(dtype, c.o()).Out(rows, c.rows());
  return kernel;
}

KernelCase Backward(const std::string& op, const Case& c, const Operands& in, DType dtype,
                    const Values& o, const Values& lse) {
  const DType rows = dtype == DType::kF64 ? dtype : DType::kF32;
  KernelCase kernel(op, c.gradient_attrs());
  kernel.In(dtype, c.q(), in.q).In(dtype, c.k(), in.k).In(dtype, c.v(), in.v);
  if (c.has_mask()) kernel.In(c.mask == DType::kBool ? c.mask : dtype, c.mask_shape, in.mask);
  kernel.In(dtype, c.o(), o).In(rows, c.rows(), lse).In(dtype, c.o(), in.flow);
  kernel.In(rows, c.rows(), in.rows_flow);
  if (op == "attention_mask_grad") {
    kernel.Out(dtype, c.mask_shape);
  } else {
    kernel.Out(dtype, c.q()).Out(dtype, c.k()).Out(dtype, c.v());
  }
  return kernel;
}

void ExpectNear(const std::string& what, const Values& actual, const Values& expected,
                double tolerance) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  double largest = 1;
  for (double value : expected) {
    if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
  }
  for (size_t i = 0; i < expected.size(); ++i) {
    const bool agrees = std::isfinite(expected[i])
                            ? std::abs(actual[i] - expected[i]) <= tolerance * largest
                            : actual[i] == expected[i];
    ASSERT_TRUE(agrees) << what << " " << i << ": " << actual[i] << ", expected " << expected[i];
  }
}

void Check(const Case& c, DType dtype, int threads = 1) {
  SCOPED_TRACE(c.name + " " + std::string(ToString(dtype)));
  const Operands in(c, dtype);
  const Results expected = Expected(c, in);
  // Rounding grows with the number of terms.
  const double tolerance =
      c.narrow ? 0.03 : (40 + 0.1 * static_cast<double>(c.keys + c.queries)) * Epsilon(dtype);
  KernelCase forward = Forward(c, in, dtype);
  forward.spec().threads = threads;
  ASSERT_TRUE(forward.Run().ok());
  ExpectNear("o", forward.Output(0), expected.o, tolerance);
  ExpectNear("lse", forward.Output(1), expected.lse, tolerance);
  KernelCase backward =
      Backward("attention_grad", c, in, dtype, forward.Output(0), forward.Output(1));
  backward.spec().threads = threads;
  ASSERT_TRUE(backward.Run().ok());
  ExpectNear("dq", backward.Output(0), expected.dq, tolerance);
  ExpectNear("dk", backward.Output(1), expected.dk, tolerance);
  ExpectNear("dv", backward.Output(2), expected.dv, tolerance);
  if (!c.has_mask() || c.mask == DType::kBool) return;
  KernelCase mask =
      Backward("attention_mask_grad", c, in, dtype, forward.Output(0), forward.Output(1));
  ASSERT_TRUE(mask.Run().ok());
  ExpectNear("dmask", mask.Output(0), expected.dmask, tolerance);
}

const Case kCases[] = {
    {.name = "one tile",
     .batch = 2,
     .heads = 3,
     .kv_heads = 3,
     .queries = 5,
     .keys = 5,
     .depth = 4,
     .value_depth = 4,
     .causal = true},
    {.name = "many tiles, grouped",
     .heads = 4,
     .kv_heads = 2,
     .queries = 150,
     .keys = 1100,
     .depth = 8,
     .value_depth = 5},
    {.name = "many tiles, causal, more keys than queries",
     .heads = 2,
     .kv_heads = 1,
     .queries = 200,
     .keys = 900,
     .depth = 16,
     .value_depth = 12,
     .causal = true,
     .time_first = true,
     .scale = 1.5},
    {.name = "more queries than keys",
     .heads = 2,
     .kv_heads = 2,
     .queries = 200,
     .keys = 60,
     .depth = 8,
     .value_depth = 8,
     .causal = true},
    {.name = "one query of a cache",
     .batch = 2,
     .heads = 4,
     .kv_heads = 2,
     .queries = 1,
     .keys = 700,
     .depth = 8,
     .value_depth = 8,
     .causal = true,
     .time_first = true},
    {.name = "negative scale",
     .heads = 1,
     .kv_heads = 1,
     .queries = 70,
     .keys = 600,
     .depth = 4,
     .value_depth = 4,
     .scale = -3},
    {.name = "additive mask",
     .batch = 2,
     .heads = 4,
     .kv_heads = 2,
     .queries = 130,
     .keys = 600,
     .depth = 8,
     .value_depth = 8,
     .mask = DType::kF32,
     .mask_shape = {4, 1, 600}},
    {.name = "additive mask of whole rows",
     .batch = 2,
     .heads = 2,
     .kv_heads = 2,
     .queries = 70,
     .keys = 80,
     .depth = 8,
     .value_depth = 8,
     .causal = true,
     .mask = DType::kF32,
     .mask_shape = {2, 1, 70, 1}},
    {.name = "bool mask",
     .batch = 2,
     .heads = 2,
     .kv_heads = 2,
     .queries = 66,
     .keys = 600,
     .depth = 8,
     .value_depth = 8,
     .causal = true,
     .mask = DType::kBool,
     .mask_shape = {2, 1, 66, 600}},
    {.name = "bool mask of whole rows",
     .heads = 1,
     .kv_heads = 1,
     .queries = 66,
     .keys = 70,
     .depth = 8,
     .value_depth = 8,
     .mask = DType::kBool,
     .mask_shape = {66, 1}},
    {.name = "no keys",
     .heads = 2,
     .kv_heads = 2,
     .queries = 3,
     .keys = 0,
     .depth = 4,
     .value_depth = 4},
};

TEST(AttentionTest, AgreesWithWeightsAsAMatrix) {
  for (const Case& c : kCases) {
    for (DType dtype : {DType::kF32, DType::kF64, DType::kBF16}) Check(c, dtype);
  }
}

TEST(AttentionTest, ThreadsShareHeads) {
  for (const Case& c : kCases) Check(c, DType::kF32, /*threads=*/2);
}

// Without such tiles products are as wide as without the attribute.
TEST(AttentionTest, MultipliesInNarrowTiles) {
  for (Case c : kCases) {
    c.narrow = true;
    for (int threads : {1, 2}) Check(c, DType::kF32, threads);
  }
}

TEST(AttentionTest, LargeScoresDoNotOverflow) {
  KernelCase kernel("attention", {{"causal", false}, {"time_first", false}, {"scale", 1.0}});
  kernel.In(DType::kF32, {1, 1, 1, 1}, {100}).In(DType::kF32, {1, 1, 2, 1}, {100, 99});
  kernel.In(DType::kF32, {1, 1, 2, 1}, {2, 3});
  kernel.Out(DType::kF32, {1, 1, 1, 1}).Out(DType::kF32, {1, 1, 1});
  ASSERT_TRUE(kernel.Run().ok());
  EXPECT_EQ(kernel.Output(0), Values{2});
  EXPECT_EQ(kernel.Output(1), Values{10000});
}

// One head, whose keys are elsewhere.
TEST(AttentionTest, SaysThatKeyHeadsAreElsewhere) {
  const auto part = [](int64_t heads, int64_t offset) {
    OperandSpec operand = KernelCase::Operand(DType::kF32, {1, heads, 1, 1});
    operand.region.offset[1] = offset;
    operand.region.size[1] = 1;
    return operand;
  };
  KernelCase kernel("attention", {{"causal", false}, {"time_first", false}, {"scale", 1.0}});
  kernel.In(part(4, 3), {1}).In(part(2, 0), {1}).In(part(2, 0), {1});
  OperandSpec rows = KernelCase::Operand(DType::kF32, {1, 4, 1});
  rows.region = {{0, 3, 0}, {1, 1, 1}};
  kernel.Out(part(4, 3)).Out(rows);
  EXPECT_TRUE(absl::IsInternal(kernel.Run()));
}

struct Memory {
  int64_t bytes_to_create = 0, allocations_to_run = 0;
};

// `kernel` says what to run; a KernelCase itself allocates.
Memory MemoryOf(KernelCase kernel) {
  const KernelSpec& spec = kernel.spec();
  const KernelRegistry registry = CpuKernels();
  std::vector<std::vector<char>> bytes;
  std::vector<void*> inputs, outputs;
  for (const auto* operands : {&spec.inputs, &spec.outputs}) {
    for (const OperandSpec& operand : *operands) {
      bytes.emplace_back(operand.num_elements() * SizeOf(operand.dtype));
      (operands == &spec.inputs ? inputs : outputs).push_back(bytes.back().data());
    }
  }
  Memory memory;
  const int64_t bytes_before = allocated_bytes;
  const auto made = registry.Create(spec);
  EXPECT_TRUE(made.ok());
  memory.bytes_to_create = allocated_bytes - bytes_before;
  const KernelRun run = {.inputs = inputs.data(), .outputs = outputs.data()};
  const int64_t allocations_before = allocations;
  const bool ran = (*made)->Run(run).ok() && (*made)->Run(run).ok();
  memory.allocations_to_run = allocations - allocations_before;
  EXPECT_TRUE(ran);
  return memory;
}

TEST(AttentionTest, AllocatesNothingToRunAndScratchIsLinear) {
  const auto memory_at = [](int64_t time, bool backward) {
    const Case c = {.heads = 2,
                    .kv_heads = 1,
                    .queries = time,
                    .keys = time,
                    .depth = 8,
                    .value_depth = 8,
                    .causal = true};
    const Operands in(c, DType::kF32);
    if (!backward) return MemoryOf(Forward(c, in, DType::kF32));
    return MemoryOf(Backward("attention_grad", c, in, DType::kF32, in.flow,
                             Values(c.rows().num_elements(), std::log(time))));
  };
  for (bool backward : {false, true}) {
    const Memory one = memory_at(1024, backward), four = memory_at(4096, backward);
    // Of the queries of a group one number each.
    EXPECT_LE(four.bytes_to_create - one.bytes_to_create,
              (4096 - 1024) * 2 * static_cast<int64_t>(sizeof(float)));
    EXPECT_LT(four.bytes_to_create, 512 * 1024);
    EXPECT_EQ(one.allocations_to_run, 0);
    EXPECT_EQ(four.allocations_to_run, 0);
  }
}

}  // namespace
}  // namespace braid
