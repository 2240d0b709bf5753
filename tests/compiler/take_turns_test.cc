#include "compiler/physical/take_turns.h"

#include <algorithm>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "compiler/plan/expand.h"
#include "compiler/plan/invariants.h"
#include "compiler/plan/plan.pb.h"
#include "compiler/plan/plan_codec.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/compiler/group_graph.h"
#include "tests/compiler/physical_jobs.h"

namespace braid::compiler {
namespace {

using testing::HasSubstr;

constexpr int64_t kRows = 64, kColumns = 1024;
constexpr int64_t kElements = kRows * kColumns, kBytes = 4 * kElements;
constexpr OperandRef::Source kScratch = OperandRef::Source::kScratch;

TensorLayout Layout(Shape shape, DType dtype = DType::kF32) {
  TensorLayout layout = Floats(1);
  layout.type = {dtype, std::move(shape)};
  return layout;
}
TensorLayout Matrix() { return Layout({kRows, kColumns}); }

// One group, whose kernels are added one after another; operands lie where the test says.
class TakeTurnsTest : public ::testing::Test {
 protected:
  TakeTurnsTest() {
    TaskGroup group;
    group.name = "chain";
    group.placement = Cpu(0, 1);
    graph_.AddGroup(std::move(group));
    graph_.job = "turns";
  }

  OperandRef Scratch(int64_t offset, TensorLayout layout = Matrix()) {
    work().scratch.push_back({.layout = std::move(layout), .offset = offset});
    return {kScratch, static_cast<int>(work().scratch.size()) - 1, 0};
  }
  OperandRef Output(int64_t offset, int slots = 1, TensorLayout layout = Matrix()) {
    Register reg;
    reg.name = "out";
    reg.placement = group().placement;
    reg.producer = 0;
    reg.slots = slots;
    reg.parts.emplace_back().layout = layout;
    reg.slot_bytes = reg.stride = AlignInArena(MaxBytesOf(layout, reg.placement));
    reg.offset = offset;
    group().outputs.push_back(graph_.AddRegister(std::move(reg)).id);
    return {OperandRef::Source::kOutput, static_cast<int>(group().outputs.size()) - 1, 0};
  }
  void Add(const std::string& op, std::vector<OperandRef> inputs, std::vector<OperandRef> outputs,
           Attrs attrs = {}) {
    KernelCall& call = work().kernels.emplace_back();
    call.op = op;
    call.name = op + std::to_string(work().kernels.size());
    call.attrs = std::move(attrs);
    call.inputs = std::move(inputs);
    call.outputs = std::move(outputs);
    for (const OperandRef& ref : call.inputs) call.input_layouts.push_back(LayoutOf(ref));
    for (const OperandRef& ref : call.outputs) call.output_layouts.push_back(LayoutOf(ref));
  }

  std::vector<Turns> Found() {
    PhysicalGraph graph = TakeTurns(graph_, JobRegistry());
    EXPECT_EQ(VerifyInvariants(graph), absl::OkStatus());
    return std::get<Compute>(graph.group(0).work).turns;
  }
  TaskGroup& group() { return graph_.group(0); }
  Compute& work() { return std::get<Compute>(group().work); }

  PhysicalGraph graph_;

 private:
  TensorLayout LayoutOf(const OperandRef& ref) {
    if (ref.source == kScratch) return work().scratch[ref.index].layout;
    return graph_.reg(group().outputs[ref.index]).parts[0].layout;
  }
};

using AllTurns = std::vector<Turns>;

TEST_F(TakeTurnsTest, KernelsOfOneSize) {
  const OperandRef x = Scratch(0), a = Scratch(kBytes), b = Scratch(kBytes), c = Scratch(0);
  const OperandRef row = Scratch(4 * kBytes, Layout({kColumns}));
  const OperandRef mean = Scratch(5 * kBytes, Layout({kRows})),
                   rstd = Scratch(6 * kBytes, Layout({kRows}));
  Add("relu", {x}, {a});
  Add("tanh", {a}, {b});                                                   // in place
  Add("layer_norm", {b, row, row}, {c, mean, rstd}, {{"epsilon", 1e-5}});  // over the first's input
  Add("add", {c, row}, {Output(0)});
  EXPECT_EQ(Found(), (AllTurns{{0, 4, 8 * kColumns, {a.index, b.index, c.index}}}));
}

TEST_F(TakeTurnsTest, OthersRunOneAfterAnother) {
  const TensorLayout wide = Layout({2, 32 * 1024}), small = Layout({1024});
  const OperandRef x = Scratch(0), y = Scratch(kBytes), z = Scratch(2 * kBytes);
  Add("relu", {x}, {y});
  Add("softmax", {y}, {z}, {{"axis", 1}});  // works as a whole
  Add("relu", {z}, {x});
  const OperandRef w = Scratch(3 * kBytes, wide), v = Scratch(4 * kBytes, wide);
  const OperandRef row = Scratch(5 * kBytes, Layout({32 * 1024}));
  Add("add", {w, row}, {v});  // its rows are longer than a part
  const OperandRef s = Scratch(0, small), t = Scratch(8192, small), u = Scratch(16384, small);
  Add("relu", {s}, {t});
  Add("relu", {t}, {u});  // in the cache anyway
  EXPECT_EQ(Found(), AllTurns{});
}

// Memory is used again as the order of whole kernels allows it.
TEST_F(TakeTurnsTest, WhatOverwritesUnreadElementsComesLater) {
  const auto turns = [&](int64_t at) {
    work().kernels.clear();
    const OperandRef x = Scratch(0), y = Scratch(2 * kBytes);
    Add("relu", {x}, {y});
    Add("tanh", {y}, {Scratch(at)});
    return Found().size();
  };
  EXPECT_EQ(turns(64), 0u);  // over the first one's input, but not in step with it
  EXPECT_EQ(turns(0), 1u);
  EXPECT_EQ(turns(2 * kBytes + 64), 0u);  // over the first one's output
}

TEST_F(TakeTurnsTest, ElementsOfOtherSizesAreNotInStep) {
  const auto turns = [&](int64_t at) {
    work().kernels.clear();
    const OperandRef x = Scratch(0), y = Scratch(kBytes);
    Add("relu", {x}, {y});
    Add("cast", {y}, {Scratch(at, Layout({kRows, kColumns}, DType::kBF16))},
        {{"dtype", DType::kBF16}});
    return Found().size();
  };
  EXPECT_EQ(turns(0), 0u);
  EXPECT_EQ(turns(2 * kBytes), 1u);
}

// A smaller operand is read whole in every part.
TEST_F(TakeTurnsTest, SmallOperandsAreThereBefore) {
  const auto turns = [&](bool reads_the_mean) {
    work().kernels.clear();
    const OperandRef x = Scratch(0), y = Scratch(kBytes);
    const OperandRef row = Scratch(4 * kBytes, Layout({kColumns}));
    const OperandRef mean = Scratch(5 * kBytes, Layout({kRows, 1})),
                     rstd = Scratch(6 * kBytes, Layout({kRows, 1}));
    Add("layer_norm", {x, row, row}, {y, mean, rstd}, {{"epsilon", 1e-5}});
    Add("sub", {y, reads_the_mean ? mean : Scratch(7 * kBytes, Layout({kRows, 1}))},
        {Scratch(2 * kBytes)});
    return Found().size();
  };
  EXPECT_EQ(turns(true), 0u);
  EXPECT_EQ(turns(false), 1u);
}

TEST_F(TakeTurnsTest, SlotsAreApartOrNotKnownToBe) {
  const auto turns = [&](int64_t offset, int slots) {
    work().kernels.clear();
    const OperandRef y = Output(0, 2);
    Add("relu", {Scratch(0)}, {y});
    Add("tanh", {y}, {Output(offset, slots)});
    return Found().size();
  };
  EXPECT_EQ(turns(2 * kBytes, 2), 1u);
  EXPECT_EQ(turns(kBytes, 1), 0u);
}

TEST_F(TakeTurnsTest, RanksThatHoldOtherSharesRunOneAfterAnother) {
  group().placement = Cpu(0, 4);
  const auto turns = [&](int64_t rows_before, int64_t rows) {
    work().kernels.clear();
    const auto split = [](int64_t n) {
      TensorLayout layout = Layout({n, 32 * 1024});
      layout.sbp = NdSbp(std::vector<Sbp>{sbp::S(0)});
      return layout;
    };
    const OperandRef x = Scratch(0, split(rows_before)), y = Scratch(4 * kBytes, split(rows));
    Add("identity", {x}, {y});
    Add("relu", {y}, {Scratch(8 * kBytes, split(rows))});
    return Found().size();
  };
  EXPECT_EQ(turns(7, 7), 1u);
  EXPECT_EQ(turns(5, 7), 0u);  // rank 1 of 4 holds one row of the five
  EXPECT_EQ(turns(8, 8), 1u);
}

TEST_F(TakeTurnsTest, WhatIsReadLaterStaysWhole) {
  const OperandRef x = Scratch(0), a = Scratch(kBytes), b = Scratch(2 * kBytes);
  Add("relu", {x}, {a});
  Add("tanh", {a}, {b});
  Add("softmax", {b}, {Output(0)}, {{"axis", 1}});
  EXPECT_EQ(Found(), (AllTurns{{0, 2, 8 * kColumns, {a.index}}}));
}

TEST_F(TakeTurnsTest, WhatIsReplacedInPlaceDoesNotOverwriteIt) {
  const OperandRef x = Scratch(0), a = Scratch(kBytes), b = Scratch(kBytes);
  Add("relu", {x}, {a});
  Add("tanh", {a}, {b});
  Add("softmax", {b}, {Output(0)}, {{"axis", 1}});
  EXPECT_EQ(Found(), (AllTurns{{0, 2, 8 * kColumns, {}}}));
}

TEST_F(TakeTurnsTest, TextAndPlanHaveThem) {
  const OperandRef x = Scratch(0), a = Scratch(kBytes);
  Add("relu", {x}, {a});
  Add("tanh", {a}, {Output(0)});
  const PhysicalGraph graph = TakeTurns(graph_, JobRegistry());
  EXPECT_THAT(graph.ToString(), HasSubstr("\n  turns of relu1 to tanh2, part=8192, staying s1\n"));
  const auto decoded = DecodePlan(EncodePlan(graph));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  const std::vector<Turns>& found = std::get<Compute>(graph.group(0).work).turns;
  EXPECT_EQ(std::get<Compute>(decoded->group(0).work).turns, found);
  const auto part = ExpandPlan(*decoded, 0);
  ASSERT_TRUE(part.ok()) << part.status();
  const auto turns = std::get<plan::Compute>(part->tasks[0].work).turns;
  EXPECT_TRUE(std::equal(turns.begin(), turns.end(), found.begin(), found.end()));
}

TEST_F(TakeTurnsTest, WrongOnesAreRefused) {
  const OperandRef x = Scratch(0), a = Scratch(kBytes);
  Add("relu", {x}, {a});
  Add("tanh", {a}, {Output(0)});
  const std::string bytes = EncodePlan(TakeTurns(graph_, JobRegistry()));
  const auto refusal = [&](auto change) {
    plan::Plan plan;
    EXPECT_TRUE(plan.ParseFromString(bytes));
    change(*plan.mutable_groups(0)->mutable_turns(0));
    return std::string(DecodePlan(plan.SerializeAsString()).status().message());
  };
  EXPECT_EQ(refusal([](plan::Turns&) {}), "");
  EXPECT_THAT(refusal([](plan::Turns& turns) { turns.set_count(3); }),
              HasSubstr("turns of 3 kernels from 0 on in group 'chain', which has 2"));
  EXPECT_THAT(refusal([](plan::Turns& turns) { turns.set_begin(4294967295); }),
              HasSubstr("turns of 2 kernels from 4294967295 on"));
  EXPECT_THAT(refusal([](plan::Turns& turns) { turns.set_count(1); }),
              HasSubstr("the turns of kernels 0 to 1 on parts of 8192 elements"));
  EXPECT_THAT(refusal([](plan::Turns& turns) { turns.set_part(0); }),
              HasSubstr("the turns of kernels 0 to 2 on parts of 0 elements"));
  EXPECT_THAT(refusal([](plan::Turns& turns) { turns.add_staying(2); }),
              HasSubstr("scratch 2 stays in group 'chain', which has 2"));
  plan::Plan twice;
  ASSERT_TRUE(twice.ParseFromString(bytes));
  *twice.mutable_groups(0)->add_turns() = twice.groups(0).turns(0);
  EXPECT_THAT(std::string(DecodePlan(twice.SerializeAsString()).status().message()),
              HasSubstr("after those before 2"));
}

}  // namespace
}  // namespace braid::compiler
