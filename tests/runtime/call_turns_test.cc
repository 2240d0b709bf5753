#include "runtime/actions/call_turns.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/actions/compute.h"
#include "runtime/device/host_stream.h"

namespace braid {
namespace {

constexpr int64_t kElements = 64 * 1024, kPart = 8 * 1024;

// The first of a task writes the number of each element, the others 1 more than their input.
class Count final : public Kernel {
 public:
  Count(bool is_first, OpParts parts) : is_first_(is_first), parts_(parts) {}
  absl::Status Run(const KernelRun& run) override {
    RunPart(run, 0, kElements);
    return absl::OkStatus();
  }
  OpParts parts() const override { return parts_; }
  void RunPart(const KernelRun& run, int64_t begin, int64_t size) override {
    const auto* const in = static_cast<const float*>(run.inputs[0]);
    auto* const out = static_cast<float*>(run.outputs[0]);
    for (int64_t i = begin; i < begin + size; ++i) {
      out[i] = is_first_ ? static_cast<float>(i) : in[i] + 1;
    }
  }

 private:
  bool is_first_;
  OpParts parts_;
};

// Calls of one input and one output, at places in an arena; what a plan would say of them.
class CallTurnsTest : public ::testing::Test {
 protected:
  CallTurnsTest() { layout_.type = {DType::kF32, {kElements}}; }

  // An operand: which scratch it is, -1: none, and where it lies, in operands of the arena.
  struct Place {
    int scratch;
    int64_t at;
  };
  static Place Scratch(int scratch, int64_t at) { return {scratch, at}; }
  static Place Slot(int64_t at) { return {-1, at}; }

  void Add(Place input, Place output, OpParts parts = {.elements = kElements}) {
    ComputeCall& call = calls_.emplace_back();
    call.kernel = std::make_unique<Count>(calls_.size() == 1, parts);
    kernels_.push_back(call.kernel.get());
    plan::Kernel& kernel = compute_.kernels.emplace_back();
    AddOperand(input, call.inputs, kernel.inputs);
    AddOperand(output, call.outputs, kernel.outputs);
  }
  std::vector<CallTurns> Follow(std::vector<compiler::Turns> turns) {
    planned_ = std::move(turns);
    compute_.turns = planned_;
    return TurnsOf(compute_, kernels_);
  }
  void Run(std::vector<compiler::Turns> turns) {
    const int64_t first_step = 0;
    auto followed = Follow(std::move(turns));
    HostStream stream;
    ComputeAction action({}, {.calls = std::move(calls_), .turns = std::move(followed)},
                         {.first_step = &first_step, .stream = &stream});
    for (int act = 0; act < 2; ++act) {
      std::fill(arena_.begin(), arena_.end(), kUntouched);
      struct Ended : ActDone::Receiver {
        bool is_ok = false;
      } ended{{[](ActDone::Receiver* self, int64_t, absl::Status status) {
        static_cast<Ended*>(self)->is_ok = status.ok();
      }}};
      action.Start(Act{}, ActDone(&ended, act));
      EXPECT_TRUE(ended.is_ok);
    }
  }
  // What the call at this distance from the first one makes.
  void ExpectMade(int64_t at, int distance) const {
    for (int64_t i = 0; i < kElements; ++i) {
      ASSERT_EQ(arena_[at * kElements + i], static_cast<float>(i + distance)) << i;
    }
  }
  bool HasStayed(int64_t at) const {
    const auto begin = arena_.begin() + at * kElements;
    return *begin != kUntouched && *(begin + kPart - 1) != kUntouched &&
           *(begin + kPart) == kUntouched;
  }

  compiler::TensorLayout layout_;
  plan::Compute compute_;

 private:
  static constexpr float kUntouched = -7;
  void AddOperand(Place place, std::vector<OperandAddress>& addresses,
                  std::vector<plan::Operand>& operands) {
    addresses.emplace_back().fixed =
        reinterpret_cast<std::byte*>(arena_.data() + place.at * kElements);
    plan::Operand& operand = operands.emplace_back();
    operand.shard = {&layout_, Region::Whole({kElements})};
    if (place.scratch < 0) return;
    operand.source = plan::Operand::Source::kScratch;
    operand.index = static_cast<uint32_t>(place.scratch);
  }

  std::vector<float> arena_ = std::vector<float>(4 * kElements);
  std::vector<ComputeCall> calls_;
  std::vector<Kernel*> kernels_;
  std::vector<compiler::Turns> planned_;
};

TEST_F(CallTurnsTest, WhatStaysHasOnePart) {
  Add(Slot(3), Scratch(0, 0));
  Add(Scratch(0, 0), Scratch(1, 1));
  Add(Scratch(1, 1), Scratch(2, 1));  // in place
  Add(Scratch(2, 1), Slot(2));
  Run({{0, 4, kPart, {0, 1, 2}}});
  ExpectMade(2, 3);
  EXPECT_TRUE(HasStayed(0));
  EXPECT_TRUE(HasStayed(1));
}

TEST_F(CallTurnsTest, OthersRunBeforeBetweenAndAfter) {
  const OpParts whole;
  Add(Slot(3), Scratch(0, 0), whole);
  Add(Scratch(0, 0), Scratch(1, 1));
  Add(Scratch(1, 1), Scratch(2, 0));
  Add(Scratch(2, 0), Scratch(3, 1), whole);
  Add(Scratch(3, 1), Scratch(4, 0));
  Add(Scratch(4, 0), Scratch(5, 1));
  Add(Scratch(5, 1), Slot(2), whole);
  Run({{1, 3, kPart, {1}}, {4, 6, kPart, {4}}});
  ExpectMade(2, 6);
}

TEST_F(CallTurnsTest, OperandsAreCountedOverAllCalls) {
  Add(Slot(3), Slot(0));
  Add(Slot(0), Scratch(7, 1));
  Add(Scratch(7, 1), Slot(2));
  const auto turns = Follow({{1, 3, kPart, {7}}});
  ASSERT_EQ(turns.size(), 1u);
  ASSERT_EQ(turns[0].staying.size(), 2u);
  EXPECT_EQ(turns[0].staying[0].operand, 3u);
  EXPECT_EQ(turns[0].staying[1].operand, 4u);
  EXPECT_EQ(turns[0].staying[1].element_bytes, 4);
}

// A plan may say what it will: a kernel is given the parts that it works in, and nothing moves out
// of its operand.
TEST_F(CallTurnsTest, WhatAKernelDoesNotKnowIsNotFollowed) {
  Add(Slot(3), Scratch(0, 0));
  Add(Scratch(0, 0), Slot(1));
  Add(Slot(1), Slot(2), {.elements = 0});
  Add(Slot(2), Slot(0), {.elements = kElements / 2});
  Add(Slot(0), Slot(1), {.elements = kElements, .step = 3000});
  Add(Slot(1), Slot(2));
  EXPECT_EQ(Follow({{0, 2, kPart, {0}}}).size(), 1u);
  EXPECT_EQ(Follow({{1, 3, kPart, {}}}).size(), 0u);
  EXPECT_EQ(Follow({{2, 4, kPart, {}}}).size(), 0u);
  EXPECT_EQ(Follow({{3, 5, kPart, {}}}).size(), 0u);
  EXPECT_EQ(Follow({{4, 6, kPart, {}}}).size(), 0u);
  EXPECT_EQ(Follow({{0, 2, 0, {}}}).size(), 0u);
  compute_.kernels[1].inputs[0].shard.region.size = Shape({kElements - 1});
  EXPECT_EQ(Follow({{0, 2, kPart, {0}}}).size(), 0u);
}

}  // namespace
}  // namespace braid
