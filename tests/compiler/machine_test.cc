// Machines: what the text says and what is wrong with one, links between places, and times.
#include "compiler/machine.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace braid::compiler {
namespace {

using ::testing::HasSubstr;

Placement Arranged(std::vector<DeviceId> devices, std::vector<int64_t> hierarchy) {
  return *Placement("cpu", std::move(devices)).WithHierarchy(std::move(hierarchy));
}

TEST(MachineText, IsReadBackExactly) {
  Machine machine;
  machine.devices["cpu"].flops = {
      {DType::kF32, 1.0 / 3 * 1e12}, {DType::kF64, 4.7e10}, {DType::kBF16, 2e12}};
  machine.devices["cpu"].memory = 12345678901;
  machine.devices["lagging"].memory = 7;
  machine.links[0] = {.latency = 1e-7, .bandwidth = 1.1e10};
  machine.links[2] = {.latency = 2.5e-5, .bandwidth = 1.25e9};
  machine.is_known = true;
  machine.origin = "rates.txt";
  const absl::StatusOr<Machine> read = Machine::Parse(machine.ToString(), "rates.txt");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, machine) << machine.ToString();
}

TEST(MachineText, HasCommentsAndLeavesDefaults) {
  const auto machine = Machine::Parse(
      "# our cluster\n\nlink network latency 3e-5 s  # measured\n\tdevice cpu bf16 1e12 flop/s\r\n",
      "cluster.txt");
  ASSERT_TRUE(machine.ok()) << machine.status();
  Machine want;
  want.links[2].latency = 3e-5;
  want.devices["cpu"].flops[DType::kBF16] = 1e12;
  want.is_known = true;
  want.origin = "cluster.txt";
  EXPECT_EQ(*machine, want);
}

TEST(MachineText, ErrorsNameFileLineAndBothValues) {
  const auto error = [](const std::string& line) {
    return std::string(
        Machine::Parse("link host latency 1e-5 s\n\n" + line + "\n", "m.txt").status().message());
  };
  EXPECT_THAT(error("link host latency 2e-5 s"),
              HasSubstr("m.txt:3: link host latency is 2e-5 here and 1e-05 in line 1"));
  EXPECT_THAT(error("link host bandwidth 3e9 s"),
              HasSubstr("m.txt:3: 'link host bandwidth 3e9 s' is in s; B/s was expected"));
  EXPECT_THAT(error("device cpu f32 -1 flop/s"),
              HasSubstr("m.txt:3: 'device cpu f32 -1 flop/s' gives '-1'; a number above 0"));
  EXPECT_THAT(error("device cpu f32 fast flop/s"), HasSubstr("gives 'fast'; a number above 0"));
  EXPECT_THAT(error("device cpu f32 inf flop/s"), HasSubstr("gives 'inf'; a number above 0"));
  for (const char* line : {"device cpu i32 1 flop/s", "link rack latency 1 s", "device cpu f32 1",
                           "link host width 1 s", "cpu"}) {
    EXPECT_THAT(error(line), HasSubstr(std::string("m.txt:3: '") + line + "'; one of these"));
  }
}

TEST(Machine, LinksAreAsFarAsTheirHosts) {
  const Machine machine{.hosts = {7, 7, 9}};
  EXPECT_EQ(machine.LinkOf(1, 1), LinkClass::kProcess);
  EXPECT_EQ(machine.LinkOf(0, 1), LinkClass::kHost);
  EXPECT_EQ(machine.LinkOf(1, 2), LinkClass::kNetwork);
  EXPECT_EQ(machine.LinkOf(3, 4), LinkClass::kNetwork) << "nodes without a host have one each";

  const Placement four = Arranged({{0, 0}, {0, 1}, {1, 0}, {1, 1}}, {2, 2});
  EXPECT_EQ(machine.LinkAlong(four, 1), LinkClass::kProcess);
  EXPECT_EQ(machine.LinkAlong(four, 0), LinkClass::kHost);
  const Placement crossed = Arranged({{0, 0}, {1, 0}, {0, 1}, {2, 0}}, {2, 2});
  EXPECT_EQ(machine.LinkAlong(crossed, 1), LinkClass::kNetwork);
  EXPECT_EQ(machine.LinkAlong(Arranged({{0, 0}, {0, 1}, {1, 0}, {1, 1}}, {4}), 0),
            LinkClass::kHost);

  const Placement one = Arranged({{0, 0}}, {1}), other = Arranged({{2, 1}}, {1});
  EXPECT_EQ(machine.LinkAcross(one, one), LinkClass::kProcess);
  EXPECT_EQ(machine.LinkAcross(one, four), LinkClass::kHost);
  EXPECT_EQ(machine.LinkAcross(other, four), LinkClass::kNetwork);
}

TEST(Machine, TimesAreThoseOfItsRates) {
  Machine machine;
  machine.devices["cpu"] = {.flops = {{DType::kF32, 100}, {DType::kBF16, 400}}, .memory = 10};
  machine.links[1] = {.latency = 2, .bandwidth = 5};
  EXPECT_DOUBLE_EQ(machine.WorkSeconds({.kind = "cpu", .flops = 1000, .bytes = 10}), 10);
  EXPECT_DOUBLE_EQ(machine.WorkSeconds({.kind = "cpu", .flops = 100, .bytes = 100}), 10);
  EXPECT_DOUBLE_EQ(
      machine.WorkSeconds({.kind = "cpu", .dtype = DType::kBF16, .flops = 1000, .bytes = 10}), 2.5);
  EXPECT_DOUBLE_EQ(
      machine.WorkSeconds({.kind = "cpu", .dtype = DType::kI32, .flops = 1000, .bytes = 10}), 10)
      << "as f32";
  EXPECT_DOUBLE_EQ(machine.WorkSeconds({.kind = "other", .flops = 1e11, .bytes = 0}), 1);
  EXPECT_DOUBLE_EQ(machine.TransferSeconds(LinkClass::kHost, 3, 10), 8);
  EXPECT_EQ(machine.TransferTicks(LinkClass::kHost, 3, 10), 80'000'000'000);
  // The unit is chosen so that the default's times are exact.
  EXPECT_EQ(Machine().TransferTicks(LinkClass::kNetwork, 3, 12345), 3 * 20'000 + 12'345);
}

TEST(Machine, TheSlowerOfTwo) {
  Machine a, b;
  a.devices["cpu"] = {.flops = {{DType::kF32, 5}, {DType::kF64, 2}}, .memory = 3};
  b.devices["cpu"] = {.flops = {{DType::kF32, 4}, {DType::kBF16, 9}}, .memory = 6};
  a.links[1] = {.latency = 1, .bandwidth = 8};
  b.links[1] = {.latency = 3, .bandwidth = 9};
  const Machine slower = SlowerOf(a, b);
  EXPECT_EQ(
      slower.devices.at("cpu"),
      (DeviceRates{.flops = {{DType::kF32, 4}, {DType::kF64, 2}, {DType::kBF16, 9}}, .memory = 3}));
  EXPECT_EQ(slower.links[1], (LinkRates{.latency = 3, .bandwidth = 8}));
  EXPECT_EQ(slower.links[2], LinkRates());
}

}  // namespace
}  // namespace braid::compiler
