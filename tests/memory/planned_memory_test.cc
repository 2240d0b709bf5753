// What a plan says of a device's memory, against what the process takes.
#include <malloc.h>
#include <sys/stat.h>

#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <map>
#include <string>
#include <system_error>

#include "glog/logging.h"
#include "gtest/gtest.h"
#include "tests/memory/counting_allocator.h"
#include "tests/memory/jobs.h"

namespace braid {
namespace {

// Pages of all arenas that were touched. An arena is one or more mappings that may be written (some
// with huge pages), followed by the address space that it reserves. Memory with a protection key is
// a lagging device's, which counts it itself.
int64_t ResidentArenaBytes() {
  constexpr uint64_t kReserved = uint64_t{1} << 30;
  std::FILE* file = std::fopen("/proc/self/smaps", "r");
  CHECK(file != nullptr);
  struct Mapping {
    uint64_t begin = 0, end = 0;
    bool is_writable = false;
    int64_t resident = 0;
  };
  Mapping run, now;  // `run`: adjacent mappings that may be written, as one
  int64_t resident = 0;
  const auto finish = [&] {
    const bool is_adjacent = run.is_writable && run.end == now.begin;
    const bool is_reserved = !now.is_writable && now.end - now.begin >= kReserved;
    if (is_reserved && is_adjacent) resident += run.resident;
    if (is_adjacent && now.is_writable) {
      run.end = now.end;
      run.resident += now.resident;
    } else {
      run = now;
    }
  };
  char line[512];
  while (std::fgets(line, sizeof(line), file) != nullptr) {
    uint64_t begin = 0, end = 0;
    char rights[5] = {};
    int64_t kilobytes = 0;
    int key = 0;
    if (std::sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s", &begin, &end, rights) == 3) {
      finish();
      now = {begin, end, rights[1] == 'w', 0};
    } else if (std::sscanf(line, "Rss: %" SCNd64 " kB", &kilobytes) == 1) {
      now.resident = kilobytes * 1024;
    } else if (std::sscanf(line, "ProtectionKey: %d", &key) == 1 && key != 0) {
      now.is_writable = false;
    }
  }
  finish();
  std::fclose(file);
  return resident;
}

// What is filled of the memory that this process lets peers map. Arenas that lie there are no
// private mappings, which the above sees.
int64_t SharedHeapBytes() {
  std::map<ino_t, int64_t> bytes;  // by file: a peer in this process may have another descriptor
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string name = std::filesystem::read_symlink(entry.path(), gone).string();
    if (gone || !name.starts_with("/memfd:braid heap")) continue;
    struct stat file = {};
    if (stat(entry.path().c_str(), &file) == 0) bytes[file.st_ino] = int64_t{file.st_blocks} * 512;
  }
  int64_t all = 0;
  for (const auto& [inode, of_file] : bytes) all += of_file;
  return all;
}

int64_t UsedBytes() { return AllocatedBytes() + ResidentArenaBytes() + SharedHeapBytes(); }

struct PlannedCluster {
  std::vector<int> devices;
  std::string transport = {};  // as of MemoryCluster
  DeviceMix mix = DeviceMix::kCpu;
};

void ExpectAsPlanned(const MemoryJob& job, const PlannedCluster& options) {
  MemoryCluster cluster(options.devices, options.transport, options.mix);
  const int64_t before = UsedBytes();
  auto train = cluster.Compile(job);
  ASSERT_TRUE(train.ok()) << train.status();
  const auto result = train->Run({.steps = 3});
  ASSERT_TRUE(result.ok()) << result.status();
  const int64_t used = UsedBytes() + cluster.device_bytes() - before;
  DeviceMemory all;
  for (const DeviceMemory& device : train->memory()) {
    all.activations += device.activations;
    all.variables += device.variables;
    all.kernels += device.kernels;
    all.collectives += device.collectives;
    all.data += device.data;
  }
  std::cout << job.name << ": planned " << all.total() << " (activations " << all.activations
            << ", variables " << all.variables << ", kernels " << all.kernels << ", collectives "
            << all.collectives << ", data " << all.data << "), used " << used << ", "
            << 100.0 * static_cast<double>(used - all.total()) / static_cast<double>(all.total())
            << " %\n";
  EXPECT_EQ(SharedHeapBytes() > 0, options.transport == "shm");
  EXPECT_NEAR(static_cast<double>(used), static_cast<double>(all.total()),
              0.05 * static_cast<double>(all.total()));
}

void ExpectAllAsPlanned(const PlannedCluster& options) {
  // So large that what no plan counts, about half a megabyte a node (the plan, actors), is little.
  for (const MemoryJob& job : {MlpJob(16), CnnJob(16), GptJob(12), GptJob(12, 0.1)}) {
    SCOPED_TRACE(job.name);
    ExpectAsPlanned(job, options);
  }
}

TEST(PlannedMemoryTest, OneDevice) { ExpectAllAsPlanned({.devices = {1}}); }
TEST(PlannedMemoryTest, ThreeDevicesOfAProcess) { ExpectAllAsPlanned({.devices = {3}}); }
TEST(PlannedMemoryTest, TwoNodesOfTwoDevices) { ExpectAllAsPlanned({.devices = {2, 2}}); }
TEST(PlannedMemoryTest, TwoNodesOverTcp) {
  ExpectAllAsPlanned({.devices = {1, 1}, .transport = "tcp"});
}
TEST(PlannedMemoryTest, TwoNodesOverShm) {
  ExpectAllAsPlanned({.devices = {1, 1}, .transport = "shm"});
}
// Fewer jobs: without protection keys each piece of a lagging device's work opens and closes all of
// its memory.
TEST(PlannedMemoryTest, ALaggingDevice) {
  for (const MemoryJob& job : {MlpJob(16), GptJob(12)}) {
    ExpectAsPlanned(job, {.devices = {1}, .mix = DeviceMix::kLagging});
  }
}
TEST(PlannedMemoryTest, ALaggingNodeBesideACpu) {
  for (const MemoryJob& job : {MlpJob(16), GptJob(12)}) {
    ExpectAsPlanned(job, {.devices = {1, 1}, .mix = DeviceMix::kMixed});
  }
}

}  // namespace
}  // namespace braid
