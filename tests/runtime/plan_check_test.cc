#include "runtime/plan_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "runtime/base/reactor.h"
#include "runtime/device/cpu_device.h"
#include "runtime/device/device_kinds.h"
#include "runtime/kernels/kernel.h"
#include "tests/support/lagging_device.h"

namespace braid {
namespace {

using ::testing::HasSubstr;

const Devices& OneCpu() {
  static const KernelRegistry& kernels = *new KernelRegistry(CpuKernels());
  static const Devices& devices = *[] {
    auto* made = new Devices();
    made->push_back(MakeCpuDevice({.cpu_kernels = &kernels}));
    return made;
  }();
  return devices;
}

// f32[4, 6], of which a device holds the columns [2, 6).
const compiler::TensorLayout kLayout = {.type = {DType::kF32, {4, 6}}};
const Region kBox = {.offset = {0, 2}, .size = {4, 4}};

// A task that copies its input to its output, each a slot of 64 bytes.
plan::NodePlan CopyPlan() {
  plan::NodePlan plan;
  plan.job = "job";
  plan::Arena& arena = plan.arenas.emplace_back();
  arena.device_type = "cpu";
  arena.bytes = 192;
  plan::Task& task = plan.tasks.emplace_back();
  task.name = "copy";
  task.acts_per_step = 1;
  plan::Input& input = task.inputs.emplace_back();
  input.reg = 1;
  input.slots = 1;
  input.memory = {.bytes = 64, .stride = 64};
  plan::Output& output = task.outputs.emplace_back();
  output.reg = 2;
  output.slots = 2;
  output.memory = {.offset = 64, .bytes = 64, .stride = 64};
  auto& copy = task.work.emplace<plan::Copy>();
  copy.destination.source = plan::Operand::Source::kOutput;
  copy.destination.shard = {&kLayout, kBox};
  plan::Copy::Move& move = copy.moves.emplace_back();
  move.source.shard = {&kLayout, kBox};
  move.box = kBox;
  return plan;
}

std::string Refusal(const std::function<void(plan::NodePlan&, plan::Task&, plan::Copy&)>& change) {
  plan::NodePlan plan = CopyPlan();
  change(plan, plan.tasks[0], std::get<plan::Copy>(plan.tasks[0].work));
  return std::string(CheckPlan(plan, OneCpu()).message());
}

TEST(PlanCheckTest, APlanThatFitsPasses) {
  EXPECT_EQ(CheckPlan(CopyPlan(), OneCpu()), absl::OkStatus());
}

TEST(PlanCheckTest, MemoryLiesInTheArena) {
  EXPECT_EQ(
      Refusal([](plan::NodePlan&, plan::Task& task, plan::Copy&) { task.outputs[0].slots = 3; }),
      "job 'job', node 0: task 'copy': 3 slots of 64 bytes, each 64 bytes after the other, from "
      "byte 64 of device 0's arena on, which has 192 bytes and takes multiples of 64");
  EXPECT_THAT(Refusal([](plan::NodePlan&, plan::Task& task, plan::Copy&) {
                task.inputs[0].memory->bytes = UINT64_MAX / 64 * 64;
                task.inputs[0].memory->stride = UINT64_MAX / 64 * 64;
              }),
              HasSubstr("1 slots of 18446744073709551552 bytes, each"));
  EXPECT_THAT(Refusal([](plan::NodePlan&, plan::Task& task, plan::Copy&) {
                task.outputs[0].memory->stride = UINT64_MAX / 64 * 64;
              }),
              HasSubstr("2 slots of 64 bytes, each 18446744073709551552 bytes after the other"));
  EXPECT_THAT(Refusal([](plan::NodePlan&, plan::Task& task, plan::Copy&) {
                task.outputs[0].memory->stride = 0;
              }),
              HasSubstr("2 slots of 64 bytes, each 0 bytes after the other"));
  EXPECT_THAT(Refusal([](plan::NodePlan&, plan::Task& task, plan::Copy&) {
                task.inputs[0].producer.node = 1;
                task.inputs[0].memory->stride = 128;
              }),
              HasSubstr("landing slots of 64 bytes, each 128 bytes after the other, have gaps"));
  EXPECT_THAT(Refusal([](plan::NodePlan& plan, plan::Task&, plan::Copy&) {
                plan.arenas[0].bytes = UINT64_MAX / 64 * 64;
              }),
              HasSubstr("device 0's arena needs 0 and 18446744073709551552 bytes by plan"));
  EXPECT_THAT(Refusal([](plan::NodePlan&, plan::Task& task, plan::Copy&) {
                task.inputs[0].memory->device = 7;
              }),
              HasSubstr("device 7 of node 0, which has 1"));
}

TEST(PlanCheckTest, OperandsLieInTheirSlots) {
  EXPECT_THAT(
      Refusal([](plan::NodePlan&, plan::Task&, plan::Copy& copy) { copy.destination.offset = 4; }),
      HasSubstr("an operand of 64 bytes at byte 4 of 64 (elements of 4 bytes)"));
  EXPECT_THAT(Refusal([](plan::NodePlan&, plan::Task& task, plan::Copy&) {
                task.inputs[0].memory.reset();
              }),
              HasSubstr("an operand in input 0, which has no memory here"));
  EXPECT_THAT(
      Refusal([](plan::NodePlan&, plan::Task&, plan::Copy& copy) { copy.destination.index = 1; }),
      HasSubstr("an operand of output 1, it has 1"));
}

TEST(PlanCheckTest, BoxesLieInTheirTensors) {
  EXPECT_THAT(Refusal([](plan::NodePlan&, plan::Task&, plan::Copy& copy) {
                copy.moves[0].box.offset[1] = 1;
              }),
              HasSubstr("the box of size [4, 4] at [0, 1] is not inside that of size [4, 4] at "
                        "[0, 2]"));
  const compiler::TensorLayout narrow = {.type = {DType::kF32, {4, 5}}};
  EXPECT_THAT(Refusal([&](plan::NodePlan&, plan::Task&, plan::Copy& copy) {
                copy.destination.shard.layout = &narrow;
              }),
              HasSubstr("is not inside the tensor f32[4, 5]"));
  // Its second act would read the columns [5, 9).
  const compiler::TensorLayout halves = {
      .type = {DType::kF32, {4, 6}}, .micro_batch_sbp = sbp::S(1), .micro_batches = 2};
  EXPECT_THAT(Refusal([&](plan::NodePlan&, plan::Task& task, plan::Copy& copy) {
                task.acts_per_step = 2;
                copy.destination.shard.layout = &halves;
              }),
              HasSubstr("is not inside the tensor f32[4, 6]"));
  constexpr int kLast = static_cast<int>(kLastDType);
  const compiler::TensorLayout unknown = {.type = {static_cast<DType>(kLast + 1), {4, 6}}};
  EXPECT_THAT(Refusal([&](plan::NodePlan&, plan::Task&, plan::Copy& copy) {
                copy.destination.shard.layout = &unknown;
              }),
              HasSubstr(absl::StrCat("element type ", kLast + 1, "; 0 to ", kLast, " are known")));
  EXPECT_THAT(Refusal([](plan::NodePlan&, plan::Task&, plan::Copy& copy) {
                copy.reduction = Sbp::Kind::kBroadcast;
                copy.moves[0].add = true;
              }),
              HasSubstr("elements of type 0 cannot be added by reduction 1"));
}

TEST(PlanCheckTest, EachSideWorksInItsOwnMemory) {
  const std::unique_ptr<Environment> environment = MakeSimulatedEnvironment(1);
  const KernelRegistry kernels = CpuKernels();
  Devices devices;
  devices.push_back(
      LaggingKind().make({.environment = environment.get(), .cpu_kernels = &kernels}));
  plan::NodePlan plan = CopyPlan();
  plan.arenas[0].pinned_bytes = 192;
  EXPECT_THAT(std::string(CheckPlan(plan, devices).message()),
              HasSubstr("device 0 is a 'cpu' device by plan and a 'lagging' device here"));
  plan.arenas[0].device_type = "lagging";
  plan::Task& task = plan.tasks[0];
  EXPECT_EQ(CheckPlan(plan, devices), absl::OkStatus());
  task.stream = StreamKind::kTransfer;
  task.id.thread = ThreadOf(0, task.stream);
  EXPECT_THAT(std::string(CheckPlan(plan, devices).message()),
              HasSubstr("on stream 2 of a lagging device it uses memory of kind 0; 1 is what it"));
  task.inputs[0].memory->kind = task.outputs[0].memory->kind = MemoryKind::kPinned;
  EXPECT_EQ(CheckPlan(plan, devices), absl::OkStatus());
  auto& copy = std::get<plan::Copy>(task.work);
  // Its scratch lies on the host, too; variables do not.
  copy.moves[0].source.source = plan::Operand::Source::kScratch;
  plan.arenas[0].scratch_bytes[static_cast<size_t>(task.stream)] = 192;
  EXPECT_EQ(CheckPlan(plan, devices), absl::OkStatus());
  copy.moves[0].source.source = plan::Operand::Source::kVariable;
  copy.moves[0].source.variable = "w";
  EXPECT_THAT(std::string(CheckPlan(plan, devices).message()),
              HasSubstr("it works on the host and uses 'w' in the memory of a lagging"));
}

// What devices do among themselves has a stream and an algorithm of its own.
TEST(PlanCheckTest, DevicesDoCollectivesOnTheStreamForThem) {
  plan::NodePlan plan = CopyPlan();
  plan::Task& task = plan.tasks[0];
  const auto copy = std::get<plan::Copy>(task.work);
  plan.members = {{.nodes = {0}, .devices = {0}}};
  auto& collective = task.work.emplace<plan::Collective>();
  collective.input = copy.moves[0].source;
  collective.output = copy.destination;
  collective.counts = {1};
  collective.chunk_bytes = 4096;
  EXPECT_EQ(CheckPlan(plan, OneCpu()), absl::OkStatus());
  collective.algorithm = CollectiveAlgorithm::kDevice;
  EXPECT_THAT(std::string(CheckPlan(plan, OneCpu()).message()),
              HasSubstr("a collective by algorithm 'device' on stream 0"));
  task.stream = StreamKind::kCollective;
  task.id.thread = ThreadOf(0, task.stream);
  EXPECT_EQ(CheckPlan(plan, OneCpu()), absl::OkStatus());
  plan.members[0].devices = {1};
  EXPECT_THAT(std::string(CheckPlan(plan, OneCpu()).message()),
              HasSubstr("device 1 of node 0, which has 1"));
  plan.members[0] = {.nodes = {3}, .devices = {0}};
  EXPECT_THAT(std::string(CheckPlan(plan, OneCpu()).message()),
              HasSubstr("device 0 of node 0 does the part of device 0 of node 3 in a collective"));
}

TEST(PlanCheckTest, ThreadsAreThoseOfTheirStreams) {
  EXPECT_THAT(Refusal([](plan::NodePlan&, plan::Task& task, plan::Copy&) { task.id.thread = 1; }),
              HasSubstr("thread 1 for stream 0 of device 0"));
}

TEST(PlanCheckTest, RegistersHaveOneWriter) {
  EXPECT_THAT(Refusal([](plan::NodePlan& plan, plan::Task& task, plan::Copy&) {
                plan.tasks.push_back(plan::Task(task));
              }),
              HasSubstr("register 2 is written by two tasks"));
}

}  // namespace
}  // namespace braid
