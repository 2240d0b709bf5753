// How much memory a process may use, and arenas where address space is limited.
#include "runtime/device/host_memory.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <deque>
#include <filesystem>
#include <fstream>
#include <optional>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/shared_heap.h"
#include "runtime/device/host_arena.h"
#include "tests/runtime/temp_dir.h"

namespace braid {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr uint64_t kMiB = 1 << 20;

// A machine of which only what says its control groups is there.
class ControlGroups {
 public:
  void Put(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_.path() + path;
    std::filesystem::create_directories(file.parent_path());
    PutFile(file.string(), text);
  }
  uint64_t limit() const { return ReadMemoryLimits(root_.path()).shared; }

 private:
  TempDir root_;
};

TEST(MemoryLimitsTest, TheMachineHasWhatNoGroupLimits) {
  ControlGroups groups;
  EXPECT_EQ(groups.limit(), SystemMemory());
  groups.Put("/proc/self/cgroup", "0::/user.slice\n");
  groups.Put("/sys/fs/cgroup/user.slice/memory.max", "max\n");
  EXPECT_EQ(groups.limit(), SystemMemory());
}

TEST(MemoryLimitsTest, OfNestedGroupsTheLeastCounts) {
  ControlGroups groups;
  groups.Put("/proc/self/cgroup", "0::/slurm/job_7/step_0\n");
  groups.Put("/sys/fs/cgroup/slurm/memory.max", "max\n");
  groups.Put("/sys/fs/cgroup/slurm/job_7/memory.max", "314572800\n");
  groups.Put("/sys/fs/cgroup/slurm/job_7/step_0/memory.max", "629145600\n");
  EXPECT_EQ(groups.limit(), 300 * kMiB);
}

TEST(MemoryLimitsTest, AContainerSeesItsOwnGroupAsTheTopmost) {
  ControlGroups groups;
  groups.Put("/proc/self/cgroup", "0::/../../docker/4f2a\n");
  groups.Put("/sys/fs/cgroup/memory.max", "104857600\n");
  EXPECT_EQ(groups.limit(), 100 * kMiB);
}

TEST(MemoryLimitsTest, GroupsOfVersionOne) {
  ControlGroups groups;
  groups.Put("/proc/self/cgroup", "5:cpu,cpuacct:/a\n4:memory,hugetlb:/slurm/job_7\n");
  groups.Put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  groups.Put("/sys/fs/cgroup/memory/slurm/job_7/memory.limit_in_bytes", "209715200\n");
  EXPECT_EQ(groups.limit(), 200 * kMiB);
}

// Lets this process have so many bytes of address space more.
class AddressSpace {
 public:
  explicit AddressSpace(uint64_t more) {
    getrlimit(RLIMIT_AS, &before_);
    uint64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    rlimit limit = before_;
    limit.rlim_cur = pages * static_cast<uint64_t>(sysconf(_SC_PAGE_SIZE)) + more;
    EXPECT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
  }
  ~AddressSpace() { setrlimit(RLIMIT_AS, &before_); }

 private:
  rlimit before_ = {};
};

TEST(HostArenaTest, ALimitOfAddressSpaceIsAnErrorThatNamesIt) {
  const AddressSpace limit(256 * kMiB);
  EXPECT_GT(ReadMemoryLimits().process, 256 * kMiB);
  HostArena arena(/*devices=*/1);
  ASSERT_TRUE(arena.Grow(64 * kMiB).ok());
  arena.bytes().back() = std::byte{1};
  const absl::Status status = arena.Grow(1024 * kMiB);
  EXPECT_TRUE(absl::IsResourceExhausted(status));
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("1073741824"), HasSubstr("ulimit -v")));
  EXPECT_EQ(arena.bytes().size(), 64 * kMiB);
}

TEST(HostArenaTest, ManyDevicesShareALimitedAddressSpace) {
  const AddressSpace limit(1024 * kMiB);
  std::deque<HostArena> arenas;
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(arenas.emplace_back(8).Grow(32 * kMiB).ok()) << i;
}

// As of a library that reserves address space, or a sanitizer.
TEST(HostArenaTest, WhatIsMappedAlreadyIsNotShared) {
  constexpr uint64_t kMapped = 16 * 1024 * kMiB;
  void* const mapped =
      mmap(nullptr, kMapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  {
    const AddressSpace limit(1024 * kMiB);
    std::deque<HostArena> arenas;
    for (int i = 0; i < 8; ++i) EXPECT_TRUE(arenas.emplace_back(8).Grow(32 * kMiB).ok()) << i;
  }
  munmap(mapped, kMapped);
}

TEST(HostArenaTest, APlanMayTakeMostOfALimitedAddressSpace) {
  const AddressSpace limit(1024 * kMiB);
  HostArena arena(/*devices=*/1);
  ASSERT_TRUE(arena.Grow(700 * kMiB + 1).ok());
  EXPECT_EQ(arena.bytes().size(), 700 * kMiB + 1);
}

TEST(HostMemoryTest, PeersWriteToPrivateMemoryIfTheHeapHasNoRoom) {
  const auto heap = SharedHeap::Make(kMiB);
  ASSERT_TRUE(heap.ok()) << heap.status();
  const AllocateMemory allocate = MemoryForPeers(heap->get());
  const auto fits = allocate(kMiB / 2), other = allocate(kMiB);
  ASSERT_TRUE(fits.ok() && other.ok());
  EXPECT_TRUE((*heap)->OffsetOf({fits->data(), fits->size()}).has_value());
  EXPECT_FALSE((*heap)->OffsetOf({other->data(), other->size()}).has_value());
}

// Devices know memory by such runs.
TEST(HostArenaTest, AHeapSaysWhatWasFilledAtOneGo) {
  auto heap = SharedHeap::Make(SystemMemory() + 4 * kMiB);
  ASSERT_TRUE(heap.ok()) << heap.status();
  HostArena arena(/*devices=*/1, heap->get());
  ASSERT_TRUE(arena.Grow(3 * kMiB + 5).ok());
  std::byte* const begin = arena.bytes().data();
  const size_t first = (*heap)->RunOf({begin, 1}).size();
  EXPECT_GE(first, 3 * kMiB + 5);
  ASSERT_TRUE(arena.Grow(9 * kMiB).ok());
  EXPECT_EQ((*heap)->RunOf({begin + 5, 3 * kMiB}).data(), begin);
  const std::span<std::byte> later = (*heap)->RunOf({begin + 4 * kMiB, 5 * kMiB});
  EXPECT_GT(later.data(), begin);
  EXPECT_GE(later.data() + later.size(), begin + 9 * kMiB);
  EXPECT_TRUE((*heap)->RunOf(arena.bytes()).empty()) << "of two runs";
  const std::vector<std::byte> foreign(10);
  EXPECT_TRUE((*heap)->RunOf(foreign).empty());
}

// What lies there never moves, and peers have all of it.
TEST(HostArenaTest, GrowsWithinAHeapIfThereIsRoom) {
  auto heap = SharedHeap::Make(SystemMemory() + 4 * kMiB);
  ASSERT_TRUE(heap.ok()) << heap.status();
  const auto block = (*heap)->Allocate(5);
  ASSERT_TRUE(block.ok());
  HostArena first(/*devices=*/2, heap->get()), second(/*devices=*/2, heap->get());
  ASSERT_TRUE(first.Grow(3 * kMiB + 5).ok());
  std::byte* const begin = first.bytes().data();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(begin) % kLargePage, 0u);
  begin[3 * kMiB] = std::byte{7};
  ASSERT_TRUE(first.Grow(9 * kMiB).ok());
  EXPECT_EQ(first.bytes().data(), begin);
  EXPECT_EQ(first.bytes().size(), 9 * kMiB);
  EXPECT_EQ(begin[3 * kMiB], std::byte{7});
  EXPECT_EQ(begin[9 * kMiB - 1], std::byte{0});
  const std::optional<uint64_t> offset = (*heap)->OffsetOf(first.bytes());
  ASSERT_TRUE(offset.has_value());
  EXPECT_EQ(*offset % kLargePage, 0u) << "else no page of it can be a large one";
  // There is none for a second one.
  ASSERT_TRUE(second.Grow(kMiB).ok());
  second.bytes().back() = std::byte{1};
  EXPECT_FALSE((*heap)->OffsetOf(second.bytes()).has_value());
  const absl::Status status = first.Grow(SystemMemory() + kMiB);
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
}

TEST(HostArenaTest, WithoutAddressSpaceNothingIsReserved) {
  const AddressSpace limit(16 * kMiB);
  HostArena arena(/*devices=*/1);
  const absl::Status status = arena.Grow(64 * kMiB);
  EXPECT_TRUE(absl::IsResourceExhausted(status));
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("67108864"), HasSubstr("ulimit -v")));
}

}  // namespace
}  // namespace braid
