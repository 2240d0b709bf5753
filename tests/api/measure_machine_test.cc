// What a machine is measured to do, and the file that keeps it.
#include "api/measure_machine.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>

#include "gtest/gtest.h"

namespace braid {
namespace {

namespace fs = std::filesystem;
using compiler::Machine;

class MachineCacheTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(::testing::TempDir()) / ("machine_cache." + std::to_string(getpid()));
    fs::remove_all(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string file() const { return folder_ / "a" / "machine.txt"; }
  // A measurement that can be told from others.
  Machine Get(const std::string& key, double rate) {
    is_measured_ = false;
    return CachedMachine({.file = file(), .key = key}, [&] {
      is_measured_ = true;
      Machine machine{.is_known = true, .origin = "measured"};
      machine.devices["cpu"].memory = rate;
      return machine;
    });
  }
  void Write(const std::string& text) { std::ofstream(file()) << text; }

  fs::path folder_;
  bool is_measured_ = false;
};

TEST_F(MachineCacheTest, KeepsWhatWasMeasured) {
  const Machine first = Get("build 1", 3e9);
  EXPECT_TRUE(is_measured_);
  EXPECT_EQ(Get("build 1", 4e9), first);
  EXPECT_FALSE(is_measured_);
  // Only the file itself is there: it was renamed when it was whole.
  EXPECT_EQ(std::distance(fs::directory_iterator(fs::path(file()).parent_path()), {}), 1);
}

TEST_F(MachineCacheTest, MeasuresAnewWhatIsStaleOrBroken) {
  Get("build 1", 3e9);
  EXPECT_EQ(Get("build 2", 4e9).devices.at("cpu").memory, 4e9);
  EXPECT_TRUE(is_measured_);
  for (const char* text : {"", "# build 2\ndevice cpu memory", "# build 2\nlink", "\xff\n"}) {
    Write(text);
    EXPECT_EQ(Get("build 2", 5e9).devices.at("cpu").memory, 5e9) << text;
    EXPECT_TRUE(is_measured_) << text;
    Get("build 2", 6e9);
    EXPECT_FALSE(is_measured_) << text;
  }
}

TEST_F(MachineCacheTest, AFolderThatCannotBeWrittenIsNoError) {
  std::ofstream(folder_) << "a file where a folder should be";
  EXPECT_EQ(Get("build 1", 3e9).devices.at("cpu").memory, 3e9);
  EXPECT_EQ(Get("build 1", 4e9).devices.at("cpu").memory, 4e9);
}

TEST(MeasureMachine, MeasuresDevicesAndLinks) {
  const KernelRegistry kernels = CpuKernels();
  const auto begin = std::chrono::steady_clock::now();
  const Machine machine = MeasureMachine({.kernels = &kernels});
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  std::cout << "measured in " << took.count() << " s:\n" << machine.ToString();
  EXPECT_TRUE(machine.is_known);
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    EXPECT_TRUE(machine.devices.at("cpu").flops.contains(dtype)) << ToString(dtype);
    EXPECT_GT(machine.FlopsPerSecond("cpu", dtype), 1e7);
  }
  EXPECT_GT(machine.MemoryBytesPerSecond("cpu"), 1e7);
  const auto& process = machine.link(compiler::LinkClass::kProcess);
  const auto& host = machine.link(compiler::LinkClass::kHost);
  EXPECT_NE(host, compiler::LinkRates()) << "it was measured";
  EXPECT_NE(process, compiler::LinkRates()) << "it was measured";
  const auto& network = machine.link(compiler::LinkClass::kNetwork);
  EXPECT_GE(network.latency, host.latency);
  EXPECT_LE(network.bandwidth, host.bandwidth);
  EXPECT_EQ(*Machine::Parse(machine.ToString(), "measured"), machine);
}

}  // namespace
}  // namespace braid
