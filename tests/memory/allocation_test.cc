// A step takes no memory after the first few: all of the process's threads are watched, from the
// middle of a run to nearly its end.
#include <atomic>
#include <iostream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/memory/counting_allocator.h"
#include "tests/memory/jobs.h"

namespace braid {
namespace {

// Longer than an epoch of any of the jobs' readers, and than a second, in which connections say
// that they are alive.
constexpr int64_t kFirst = 20, kLast = 120, kSteps = 130;

// oneDNN 2.6 keeps the arguments of a primitive in a hash table that it makes for every execution,
// and its plain gemm the memory into which it packs; OpenBLAS takes 1 KiB for some small products.
// They are freed before the call returns, and the interfaces know no way around them: counted, and
// told apart by who asks.
bool IsOfMathLibrary(const AllocationSite& site) {
  return site.library.find("libdnnl") != std::string::npos ||
         site.library.find("libopenblas") != std::string::npos;
}

void ExpectNoAllocations(const MemoryJob& job, const std::vector<int>& devices,
                         const std::string& transport) {
  MemoryCluster cluster(devices, transport);
  std::atomic<int64_t> before{0}, after{0};
  auto train = cluster.Compile(job, [&](int64_t step) {
    if (step == kFirst && before.exchange(AllocatedBytes()) == 0) BeginWatchingAllocations();
    if (step == kLast && after.exchange(AllocatedBytes()) == 0) EndWatchingAllocations();
  });
  ASSERT_TRUE(train.ok()) << train.status();
  const auto result = train->Run({.steps = kSteps});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_GT(before, 0);
  EXPECT_GT(after, 0);
  int64_t calls_of_libraries = 0;
  for (const AllocationSite& site : WatchedAllocations()) {
    if (IsOfMathLibrary(site)) {
      calls_of_libraries += site.calls;
      continue;
    }
    ADD_FAILURE() << site.calls << " allocations of " << site.bytes << " bytes in all from\n"
                  << site.stack;
  }
  std::cout << job.name << ": " << static_cast<double>(calls_of_libraries) / (kLast - kFirst)
            << " allocations a step inside oneDNN and OpenBLAS, " << after - before
            << " bytes more\n";
}

std::vector<MemoryJob> Jobs() { return {MlpJob(4), CnnJob(2), GptJob(4), GptJob(1, 0.1)}; }

void ExpectNoAllocationsOn(const std::vector<int>& devices, const std::string& transport,
                           int micro_batches = 1) {
  for (MemoryJob& job : Jobs()) {
    SCOPED_TRACE(job.name);
    job.micro_batches = micro_batches;
    ExpectNoAllocations(job, devices, transport);
  }
}

TEST(AllocationTest, OneDevice) { ExpectNoAllocationsOn({1}, /*transport=*/""); }

TEST(AllocationTest, ThreeDevicesOfAProcess) { ExpectNoAllocationsOn({3}, /*transport=*/""); }

TEST(AllocationTest, TwoNodesOfAProcess) { ExpectNoAllocationsOn({1, 2}, /*transport=*/""); }

TEST(AllocationTest, TwoNodesOverTcp) { ExpectNoAllocationsOn({1, 1}, "tcp"); }

TEST(AllocationTest, TwoNodesOfTwoDevicesOverTcp) { ExpectNoAllocationsOn({2, 2}, "tcp"); }

TEST(AllocationTest, TwoNodesOfTwoDevicesOverShm) { ExpectNoAllocationsOn({2, 2}, "shm"); }

TEST(AllocationTest, MicroBatches) {
  ExpectNoAllocationsOn({1}, /*transport=*/"", /*micro_batches=*/2);
  ExpectNoAllocationsOn({2, 2}, "tcp", /*micro_batches=*/2);
}

// The watch sees what is there to be seen.
TEST(AllocationTest, TheAllocatorCounts) {
  BeginWatchingAllocations();
  auto memory = std::make_unique<std::vector<double>>(1000);
  EndWatchingAllocations();
  int64_t calls = 0, bytes = 0;
  for (const AllocationSite& site : WatchedAllocations()) {
    calls += site.calls;
    bytes += site.bytes;
    EXPECT_FALSE(IsOfMathLibrary(site)) << site.library;
  }
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(bytes, static_cast<int64_t>(sizeof(*memory) + 1000 * sizeof(double)));
}

}  // namespace
}  // namespace braid
