#include "runtime/actions/call_groups.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <vector>

namespace braid {
namespace {

constexpr int64_t kElements = 64 * 1024;
constexpr int64_t kFloats = kElements * static_cast<int64_t>(sizeof(float));

class Pointwise final : public Kernel {
 public:
  Pointwise(int64_t size, int64_t step) : size_(size), step_(step) {}
  absl::Status Run(const KernelRun&) override { return absl::OkStatus(); }
  int64_t pointwise_size() const override { return size_; }
  int64_t pointwise_step() const override { return step_; }

 private:
  int64_t size_, step_;
};

// Calls of one input and one output, at places in an arena.
class CallGroupsTest : public ::testing::Test {
 protected:
  void Add(int64_t input, int64_t output, int64_t size = kElements, int64_t step = 1) {
    const OperandSize operand = {kFloats, kElements};
    AddOf(std::make_unique<Pointwise>(size, step), {{operand}, {operand}}, {input, output});
  }
  // Operands' sizes as of the call: its inputs, then its outputs.
  void AddOf(std::unique_ptr<Kernel> kernel, std::vector<std::vector<OperandSize>> sizes,
             const std::vector<int64_t>& places) {
    kernels_.push_back(std::move(kernel));
    calls_.push_back({kernels_.back().get(), sizes[0], sizes[1]});
    for (const int64_t place : places) pointers_.push_back(arena_.data() + place);
  }

  // The first calls of groups.
  std::vector<size_t> Groups() {
    CallGroups groups(calls_);
    groups.Place(pointers_.data());
    std::vector<size_t> begins;
    for (size_t call = 0; call < calls_.size(); call = groups.end(call)) {
      begins.push_back(call);
      const int64_t part = groups.part(call);
      if (groups.end(call) == call + 1) continue;
      EXPECT_GT(part, 0);
      for (size_t i = call; i < groups.end(call); ++i) {
        EXPECT_EQ(part % calls_[i].kernel->pointwise_step(), 0) << "call " << i;
      }
    }
    return begins;
  }

  std::vector<std::byte> arena_ = std::vector<std::byte>(8 * kFloats);
  std::vector<std::unique_ptr<Kernel>> kernels_;
  std::vector<GroupedCall> calls_;
  std::vector<void*> pointers_;
};

using Begins = std::vector<size_t>;

TEST_F(CallGroupsTest, ChainsOfOneSizeRunTogether) {
  Add(0, kFloats);
  Add(kFloats, kFloats);  // in place
  Add(kFloats, 2 * kFloats, kElements, /*step=*/768);
  Add(2 * kFloats, 0, kElements, /*step=*/512);  // over what the first read: element by element
  EXPECT_EQ(Groups(), (Begins{0}));
}

TEST_F(CallGroupsTest, OthersDoNot) {
  Add(0, kFloats);
  Add(kFloats, 2 * kFloats, /*size=*/0);  // works as a whole
  Add(2 * kFloats, 3 * kFloats);
  Add(3 * kFloats, 4 * kFloats, kElements / 2);
  Add(4 * kFloats, 5 * kFloats, kElements / 2, /*step=*/kElements / 2);  // no part is small enough
  EXPECT_EQ(Groups(), (Begins{0, 1, 2, 3, 4}));
  calls_.clear();
  pointers_.clear();
  Add(0, kFloats, 1024);
  Add(kFloats, 0, 1024);  // in the cache anyway
  EXPECT_EQ(Groups(), (Begins{0, 1}));
}

// Memory is used again as the order of whole calls allows it.
TEST_F(CallGroupsTest, WhatOverwritesUnreadElementsComesLater) {
  Add(0, 2 * kFloats);
  Add(2 * kFloats, 64);  // over the first one's input, but not in step with it
  EXPECT_EQ(Groups(), (Begins{0, 1}));
  pointers_[3] = arena_.data();
  EXPECT_EQ(Groups(), (Begins{0}));
  pointers_[3] = arena_.data() + 2 * kFloats + 64;  // over the first one's output
  EXPECT_EQ(Groups(), (Begins{0, 1}));
}

TEST_F(CallGroupsTest, ElementsOfOtherSizesAreNotInStep) {
  Add(0, kFloats);
  const OperandSize wide = {kFloats, kElements}, narrow = {kFloats / 2, kElements};
  AddOf(std::make_unique<Pointwise>(kElements, 1), {{wide}, {narrow}}, {kFloats, 0});
  EXPECT_EQ(Groups(), (Begins{0, 1}));
  pointers_[3] = arena_.data() + 2 * kFloats;
  EXPECT_EQ(Groups(), (Begins{0}));
}

// A smaller operand is read whole in every part.
TEST_F(CallGroupsTest, SmallOperandsAreThereBefore) {
  const OperandSize all = {kFloats, kElements}, rows = {1024, 256};
  AddOf(std::make_unique<Pointwise>(kElements, 256), {{all}, {all, rows}},
        {0, kFloats, 2 * kFloats});
  AddOf(std::make_unique<Pointwise>(kElements, 1), {{all, rows}, {all}},
        {kFloats, 2 * kFloats, 3 * kFloats});
  EXPECT_EQ(Groups(), (Begins{0, 1}));
  pointers_[4] = arena_.data() + 4 * kFloats;
  EXPECT_EQ(Groups(), (Begins{0}));
}

}  // namespace
}  // namespace braid
