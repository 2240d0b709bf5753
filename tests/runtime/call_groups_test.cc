#include "runtime/actions/call_groups.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/actions/compute.h"
#include "runtime/device/host_stream.h"

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
    const GroupedOperand operand = {kFloats, kElements};
    AddOf(std::make_unique<Pointwise>(size, step), {{operand}, {operand}}, {input, output});
  }
  // Operands' sizes as of the call: its inputs, then its outputs.
  void AddOf(std::unique_ptr<Kernel> kernel, std::vector<std::vector<GroupedOperand>> sizes,
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
  const GroupedOperand wide = {kFloats, kElements}, narrow = {kFloats / 2, kElements};
  AddOf(std::make_unique<Pointwise>(kElements, 1), {{wide}, {narrow}}, {kFloats, 0});
  EXPECT_EQ(Groups(), (Begins{0, 1}));
  pointers_[3] = arena_.data() + 2 * kFloats;
  EXPECT_EQ(Groups(), (Begins{0}));
}

// A smaller operand is read whole in every part.
TEST_F(CallGroupsTest, SmallOperandsAreThereBefore) {
  const GroupedOperand all = {kFloats, kElements}, rows = {1024, 256};
  AddOf(std::make_unique<Pointwise>(kElements, 256), {{all}, {all, rows}},
        {0, kFloats, 2 * kFloats});
  AddOf(std::make_unique<Pointwise>(kElements, 1), {{all, rows}, {all}},
        {kFloats, 2 * kFloats, 3 * kFloats});
  EXPECT_EQ(Groups(), (Begins{0, 1}));
  pointers_[4] = arena_.data() + 4 * kFloats;
  EXPECT_EQ(Groups(), (Begins{0}));
}

// The first of a task writes the number of each element, the others 1 more than their input.
class Count final : public Kernel {
 public:
  Count(bool is_first, bool is_pointwise) : is_first_(is_first), is_pointwise_(is_pointwise) {}
  absl::Status Run(const KernelRun& run) override {
    RunPart(run, 0, kElements);
    return absl::OkStatus();
  }
  int64_t pointwise_size() const override { return is_pointwise_ ? kElements : 0; }
  void RunPart(const KernelRun& run, int64_t begin, int64_t size) override {
    const auto* const in = static_cast<const float*>(run.inputs[0]);
    auto* const out = static_cast<float*>(run.outputs[0]);
    for (int64_t i = begin; i < begin + size; ++i) {
      out[i] = is_first_ ? static_cast<float>(i) : in[i] + 1;
    }
  }

 private:
  bool is_first_, is_pointwise_;
};

class StayingTest : public ::testing::Test {
 protected:
  // An operand: which scratch it is, if it is one, and where it lies, in operands of the arena.
  struct Place {
    std::optional<uint32_t> scratch;
    int64_t at;
  };
  static Place Scratch(uint32_t scratch, int64_t at) { return {scratch, at}; }
  static Place Slot(int64_t at) { return {std::nullopt, at}; }

  void Add(Place input, Place output, bool is_pointwise = true) {
    ComputeCall& call = calls_.emplace_back();
    call.kernel = std::make_unique<Count>(calls_.size() == 1, is_pointwise);
    AddOperand(input, call.inputs, call.grouped_inputs);
    AddOperand(output, call.outputs, call.grouped_outputs);
  }
  void Run() {
    const int64_t first_step = 0;
    HostStream stream;
    ComputeAction action({}, std::move(calls_), {.first_step = &first_step, .stream = &stream});
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
    return *begin != kUntouched && *(begin + kElements - 1) == kUntouched;
  }

 private:
  static constexpr float kUntouched = -7;
  void AddOperand(Place place, std::vector<OperandAddress>& addresses,
                  std::vector<GroupedOperand>& grouped) {
    addresses.emplace_back().fixed =
        reinterpret_cast<std::byte*>(arena_.data() + place.at * kElements);
    grouped.push_back({kFloats, kElements, place.scratch});
  }

  std::vector<float> arena_ = std::vector<float>(4 * kElements);
  std::vector<ComputeCall> calls_;
};

TEST_F(StayingTest, WhatNobodyReadsLaterHasOnePart) {
  Add(Slot(3), Scratch(0, 0));
  Add(Scratch(0, 0), Scratch(1, 1));
  Add(Scratch(1, 1), Scratch(2, 1));  // in place
  Add(Scratch(2, 1), Slot(2));
  Run();
  ExpectMade(2, 3);
  EXPECT_TRUE(HasStayed(0));
  EXPECT_TRUE(HasStayed(1));
}

TEST_F(StayingTest, WhatIsReadAfterTheGroupIsThere) {
  Add(Slot(3), Scratch(0, 0));
  Add(Scratch(0, 0), Scratch(1, 1));
  Add(Scratch(1, 1), Slot(2), /*is_pointwise=*/false);
  Run();
  ExpectMade(2, 2);
  EXPECT_TRUE(HasStayed(0));
}

TEST_F(StayingTest, SlotsAreThereForOthers) {
  Add(Slot(3), Slot(0));
  Add(Slot(0), Slot(1));
  Run();
  ExpectMade(0, 0);
  ExpectMade(1, 1);
}

TEST_F(StayingTest, WhatIsReplacedInPlaceDoesNotOverwriteIt) {
  Add(Slot(3), Scratch(0, 0));
  Add(Scratch(0, 0), Scratch(1, 0));
  Add(Scratch(1, 0), Slot(2), /*is_pointwise=*/false);
  Run();
  ExpectMade(2, 2);
}

TEST_F(StayingTest, WhatReplacesOlderScratchDoesNotOverwriteItUnread) {
  Add(Slot(3), Scratch(0, 0), /*is_pointwise=*/false);
  Add(Scratch(0, 0), Scratch(1, 0));
  Add(Scratch(1, 0), Slot(2));
  Run();
  ExpectMade(2, 2);
}

}  // namespace
}  // namespace braid
