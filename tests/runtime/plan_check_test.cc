#include "runtime/plan_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

namespace braid {
namespace {

using ::testing::HasSubstr;

constexpr size_t kDevices = 1;

// f32[4, 6]: the columns [2, 6).
void SetShard(plan::Shard& shard) {
  shard.set_dtype(0);
  for (int64_t dim : {4, 6}) shard.add_logical(dim);
  for (int64_t offset : {0, 2}) shard.add_offset(offset);
  for (int64_t size : {4, 4}) shard.add_size(size);
}

// A task that copies its input to its output, each a slot of 64 bytes.
plan::NodePlan CopyPlan() {
  plan::NodePlan plan;
  plan.set_job("job");
  plan.set_num_nodes(1);
  plan.add_arenas()->set_bytes(192);
  plan::Task& task = *plan.add_tasks();
  task.set_name("copy");
  task.set_acts_per_step(1);
  plan::Input& input = *task.add_inputs();
  input.set_register_(1);
  input.set_slots(1);
  input.mutable_memory()->set_stride(64);
  plan::Output& output = *task.add_outputs();
  output.set_register_(2);
  output.set_slots(2);
  output.mutable_memory()->set_offset(64);
  output.mutable_memory()->set_stride(64);
  plan::Copy& copy = *task.mutable_copy();
  copy.mutable_destination()->set_source(plan::Operand::OUTPUT);
  SetShard(*copy.mutable_destination()->mutable_shard());
  plan::Copy::Move& move = *copy.add_moves();
  SetShard(*move.mutable_source()->mutable_shard());
  for (int64_t offset : {0, 2}) move.add_offset(offset);
  for (int64_t size : {4, 4}) move.add_size(size);
  return plan;
}

std::string Refusal(const std::function<void(plan::NodePlan&, plan::Task&, plan::Copy&)>& change) {
  plan::NodePlan plan = CopyPlan();
  change(plan, *plan.mutable_tasks(0), *plan.mutable_tasks(0)->mutable_copy());
  return std::string(CheckPlan(plan, kDevices).message());
}

TEST(PlanCheckTest, APlanThatFitsPasses) {
  EXPECT_EQ(CheckPlan(CopyPlan(), kDevices), absl::OkStatus());
}

TEST(PlanCheckTest, MemoryLiesInTheArena) {
  EXPECT_EQ(Refusal([](plan::NodePlan&, plan::Task& task, plan::Copy&) {
              task.mutable_outputs(0)->set_slots(3);
            }),
            "job 'job', node 0: task 'copy': 3 slots of 64 bytes at byte 64 of device 0's arena, "
            "which has 192 bytes and takes multiples of 64");
  EXPECT_THAT(Refusal([](plan::NodePlan&, plan::Task& task, plan::Copy&) {
                task.mutable_inputs(0)->mutable_memory()->set_stride(UINT64_MAX / 64 * 64);
              }),
              HasSubstr("1 slots of 18446744073709551552 bytes at byte 0"));
  EXPECT_THAT(Refusal([](plan::NodePlan& plan, plan::Task&, plan::Copy&) {
                plan.mutable_arenas(0)->set_bytes(UINT64_MAX / 64 * 64);
              }),
              HasSubstr("device 0's arena needs 0 and 18446744073709551552 bytes by plan"));
  EXPECT_THAT(Refusal([](plan::NodePlan&, plan::Task& task, plan::Copy&) {
                task.mutable_inputs(0)->mutable_memory()->set_device(7);
              }),
              HasSubstr("device 7 of node 0, which has 1"));
}

TEST(PlanCheckTest, OperandsLieInTheirSlots) {
  EXPECT_THAT(Refusal([](plan::NodePlan&, plan::Task&, plan::Copy& copy) {
                copy.mutable_destination()->set_offset(4);
              }),
              HasSubstr("an operand of 64 bytes at byte 4 of 64 (elements of 4 bytes)"));
  EXPECT_THAT(Refusal([](plan::NodePlan&, plan::Task& task, plan::Copy&) {
                task.mutable_inputs(0)->clear_memory();
              }),
              HasSubstr("an operand in input 0, which has no memory here"));
  EXPECT_THAT(Refusal([](plan::NodePlan&, plan::Task&, plan::Copy& copy) {
                copy.mutable_destination()->set_index(1);
              }),
              HasSubstr("an operand of output 1, it has 1"));
}

TEST(PlanCheckTest, BoxesLieInTheirTensors) {
  EXPECT_THAT(Refusal([](plan::NodePlan&, plan::Task&, plan::Copy& copy) {
                copy.mutable_moves(0)->set_offset(1, 1);
              }),
              HasSubstr("the box of size [4, 4] at [0, 1] is not inside that of size [4, 4] at "
                        "[0, 2]"));
  EXPECT_THAT(Refusal([](plan::NodePlan&, plan::Task&, plan::Copy& copy) {
                copy.mutable_destination()->mutable_shard()->set_time_axis(1);
                copy.mutable_destination()->mutable_shard()->set_time_stride(1);
                copy.mutable_destination()->mutable_shard()->set_logical(1, 5);
              }),
              HasSubstr("is not inside the tensor [4, 5]"));
  EXPECT_THAT(Refusal([](plan::NodePlan&, plan::Task&, plan::Copy& copy) {
                copy.mutable_destination()->mutable_shard()->set_dtype(8);
              }),
              HasSubstr("element type 8; 0 to 7 are known"));
  EXPECT_THAT(Refusal([](plan::NodePlan&, plan::Task&, plan::Copy& copy) {
                copy.set_reduction(1);
                copy.mutable_moves(0)->set_add(true);
              }),
              HasSubstr("elements of type 0 cannot be added by reduction 1"));
}

TEST(PlanCheckTest, RegistersHaveOneWriter) {
  EXPECT_THAT(Refusal([](plan::NodePlan& plan, plan::Task& task, plan::Copy&) {
                *plan.add_tasks() = task;
              }),
              HasSubstr("register 2 is written by two tasks"));
}

}  // namespace
}  // namespace braid
