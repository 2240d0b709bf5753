// What kernels say of their memory before they are made, against what making them takes: over all
// samples of all operators in every floating type, and in shapes for which it is much.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "compiler/plan/channel_blocks.h"
#include "compiler/plan/channel_layouts.h"
#include "graph/op_registry.h"
#include "graph/ops/window.h"
#include "gtest/gtest.h"
#include "runtime/device/host_memory.h"
#include "runtime/kernels/kernel.h"
#include "tests/memory/counting_allocator.h"

namespace braid {
namespace {

// What nobody counts: objects, tables of windows and rows, what oneDNN keeps with a primitive. So
// much, and a hundredth.
constexpr int64_t kLittle = 64 << 10;

OperandSpec Whole(const TensorType& type) {
  OperandSpec operand;
  operand.dtype = type.dtype;
  operand.logical = type.shape;
  operand.region = Region::Whole(type.shape);
  return operand;
}

class KernelMemoryTest : public testing::Test {
 protected:
  // Returns what is said; nothing where there is no such kernel.
  KernelMemory Compare(const std::string& op, const std::vector<TensorType>& inputs,
                       const Attrs& attrs, int threads = 1) {
    const auto outputs = ops_.Find(op)->InferTypes({attrs, inputs});
    if (!outputs.ok()) return {};
    KernelSpec spec = {.op = op, .name = "k", .attrs = attrs, .threads = threads};
    for (const TensorType& type : inputs) spec.inputs.push_back(Whole(type));
    for (const TensorType& type : *outputs) spec.outputs.push_back(Whole(type));
    int64_t shared = 0;
    spec.work = std::make_shared<WorkMemory>([&shared](uint64_t bytes) {
      shared = static_cast<int64_t>(bytes);
      return AllocateHostMemory(bytes);
    });
    // Libraries keep what they have made once. The second kernel finds its work memory there.
    if (!kernels_.Create(spec).ok()) return {};
    const int64_t before = AllocatedBytes();
    ResetPeakAllocatedBytes();
    const auto planned = kernels_.Plan(spec);
    EXPECT_TRUE(planned.ok()) << planned.status();
    EXPECT_LE(PeakAllocatedBytes() - before, kLittle) << "to plan " << Name(spec);
    const auto made = planned->make();
    const int64_t own = AllocatedBytes() - before;
    EXPECT_TRUE(made.ok()) << made.status();
    const KernelMemory said = planned->memory;
    EXPECT_EQ(shared, said.shared) << Name(spec);
    EXPECT_GE(own, said.own) << Name(spec);
    EXPECT_LE(own, said.own + said.own / 100 + kLittle) << Name(spec);
    ++compared_;
    return said;
  }

  static std::string Name(const KernelSpec& spec) {
    std::string name = spec.op + " " + spec.attrs.ToString();
    for (const OperandSpec& input : spec.inputs) {
      name += " " + std::string(ToString(input.dtype)) + input.shape().ToString();
    }
    return name + ", " + std::to_string(spec.threads) + " threads";
  }

  // As its definition has it, of blocked channels; what is returned is of wide blocks.
  KernelMemory CompareBlocked(const std::string& op, const std::vector<TensorType>& inputs,
                              const Attrs& attrs) {
    for (const compiler::ChannelLayout& layout : compiler::ChannelLayouts()) {
      if (layout.op != op) continue;
      const auto compare = [&](int64_t block) {
        const OpSample blocked = compiler::BlockedSample(*plain_.Find(op), layout.blocks, block,
                                                         {.inputs = inputs, .attrs = attrs});
        return Compare(op, blocked.inputs, blocked.attrs);
      };
      compare(compiler::kNarrowBlock);
      compare(compiler::kWholeBlock);
      return compare(compiler::kWideBlock);
    }
    ADD_FAILURE() << op << " takes no blocks";
    return {};
  }

  const OpRegistry plain_ = BuiltinOps();
  const OpRegistry ops_ = compiler::WithChannelLayouts(plain_);
  const KernelRegistry kernels_ = CpuKernels();
  int compared_ = 0;
};

constexpr DType kFloating[] = {DType::kF32, DType::kF64, DType::kBF16, DType::kF16};

TEST_F(KernelMemoryTest, OfEverySample) {
  int with_memory = 0;
  for (const auto& [name, def] : ops_.ops()) {
    for (const OpSample& sample : def.samples()) {
      for (DType dtype : kFloating) {
        std::vector<TensorType> inputs = sample.inputs;
        for (TensorType& input : inputs) {
          if (IsFloating(input.dtype)) input.dtype = dtype;
        }
        for (int threads : {1, 2}) {
          const KernelMemory said = Compare(name, inputs, sample.attrs, threads);
          if (said.own + said.shared > 0) ++with_memory;
        }
      }
    }
  }
  EXPECT_GT(compared_, 1000);
  EXPECT_GT(with_memory, 400);
}

TEST_F(KernelMemoryTest, OfProducts) {
  for (DType dtype : kFloating) {
    for (bool transposes : {false, true}) {
      const Attrs attrs = {{"transpose_a", transposes}, {"transpose_b", transposes}};
      for (int64_t rows : {2, 24, 512}) {
        const Shape a = transposes ? Shape{600, rows} : Shape{rows, 600};
        const Shape b = transposes ? Shape{700, 600} : Shape{600, 700};
        for (int threads : {1, 2}) Compare("matmul", {{dtype, a}, {dtype, b}}, attrs, threads);
      }
    }
    Compare("matmul", {{dtype, {8, 64, 96}}, {dtype, {8, 96, 64}}},
            {{"transpose_a", false}, {"transpose_b", false}});
  }
  // f16 is multiplied in f32: copies of all operands.
  const KernelMemory said =
      Compare("matmul", {{DType::kF16, {512, 600}}, {DType::kF16, {600, 700}}},
              {{"transpose_a", false}, {"transpose_b", false}});
  EXPECT_EQ(said.own, 4 * (512 * 600 + 600 * 700 + 512 * 700));
}

TEST_F(KernelMemoryTest, OfConvolutions) {
  struct Side {
    const char* op;
    Shape a, b;
    Attrs attrs;
  };
  const Shape x = {8, 64, 14, 14}, w = {128, 64, 3, 3}, y = {8, 128, 14, 14};
  const std::vector<int64_t> kernel = {3, 3}, space = {14, 14};
  Attrs window;
  SetWindows(window, std::vector<WindowAxis>(2, {.pad_begin = 1, .pad_end = 1}));
  window.Set("groups", int64_t{1});
  const auto with = [](Attrs attrs, const char* name, std::vector<int64_t> value) {
    attrs.Set(name, std::move(value));
    return attrs;
  };
  const Side sides[] = {{"conv", x, w, window},
                        {"conv_input_grad", y, w, with(window, "space", space)},
                        {"conv_weight_grad", x, y, with(window, "kernel", kernel)}};
  for (Side side : sides) {
    int64_t of_blocked = 0;
    for (DType dtype : kFloating) {
      for (int threads : {1, 2}) {
        const KernelMemory said =
            Compare(side.op, {{dtype, side.a}, {dtype, side.b}}, side.attrs, threads);
        EXPECT_GT(said.own, 0) << side.op;
      }
      const KernelMemory said =
          CompareBlocked(side.op, {{dtype, side.a}, {dtype, side.b}}, side.attrs);
      of_blocked += said.own + said.shared;
    }
    EXPECT_GT(of_blocked, 0);
    side.attrs.Set(compiler::kWinograd, true);
    CompareBlocked(side.op, {{DType::kF32, side.a}, {DType::kF32, side.b}}, side.attrs);
    side.attrs.Set("dtype", DType::kF32);
    CompareBlocked(side.op, {{DType::kBF16, side.a}, {DType::kBF16, side.b}}, side.attrs);
  }
}

TEST_F(KernelMemoryTest, OfAttention) {
  const Shape q = {2, 4, 300, 64}, rows = {2, 4, 300}, mask = {4, 300, 300};
  for (DType dtype : kFloating) {
    for (bool is_narrow : {false, true}) {
      Attrs attrs = {{"causal", true}, {"time_first", false}, {"scale", 0.125}};
      if (is_narrow) attrs.Set("compute", DType::kBF16);
      for (int threads : {1, 2}) {
        const TensorType x = {dtype, q}, sums = {dtype, rows}, masked = {dtype, mask};
        EXPECT_GT(Compare("attention", {x, x, x}, attrs, threads).own, threads * 1000);
        attrs.Set("masked", false);
        Compare("attention_grad", {x, x, x, x, sums, x}, attrs, threads);
        attrs.Set("masked", true);
        Compare("attention_mask_grad", {x, x, x, masked, x, sums, x}, attrs, threads);
      }
    }
  }
  EXPECT_GT(compared_, 32);
}

TEST_F(KernelMemoryTest, OfSumsOfRows) {
  constexpr int64_t kRows = 3, kColumns = 50'000;
  for (DType dtype : {DType::kF32, DType::kF64}) {
    const auto size = static_cast<int64_t>(SizeOf(dtype));
    const TensorType x = {dtype, {kRows, kColumns}}, row = {dtype, {kColumns}};
    const TensorType statistic = {dtype, {kRows}};
    EXPECT_EQ(Compare("layer_norm_grad", {x, row, statistic, statistic, x}, {}).own,
              2 * kColumns * size);
    EXPECT_EQ(
        Compare("reduce_sum", {x}, {{"axes", std::vector<int64_t>{0}}, {"keep_dims", false}}).own,
        kColumns * (size + static_cast<int64_t>(sizeof(double))));
  }
}

TEST_F(KernelMemoryTest, OfCopies) {
  constexpr int64_t kElements = 70'000, kWide = sizeof(float);
  const TensorType narrow = {DType::kBF16, {kElements}}, scalar = {DType::kF32, {}};
  EXPECT_EQ(Compare("exp", {narrow}, {}).own, 2 * kElements * kWide);
  // A condition is no operand of the update that is widened.
  const Attrs attrs = {{"momentum", 0.9}, {"nesterov", false}, {"weight_decay", 0.01}};
  for (bool is_conditional : {false, true}) {
    std::vector<TensorType> inputs = {narrow, narrow, narrow, scalar};
    if (is_conditional) inputs.push_back({DType::kBool, {}});
    EXPECT_EQ(Compare("momentum_update", inputs, attrs).own, 3 * kElements * kWide);
  }
}

}  // namespace
}  // namespace braid
