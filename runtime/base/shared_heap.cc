#include "runtime/base/shared_heap.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_format.h"
#include "glog/logging.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

uint64_t PagesStart(uint64_t offset) { return offset / SystemPage() * SystemPage(); }
uint64_t WholePages(uint64_t bytes) { return PagesStart(bytes + SystemPage() - 1); }

absl::Status NobodyMaps() {
  return absl::ResourceExhaustedError("no other process maps the memory of this one");
}

}  // namespace

absl::StatusOr<std::unique_ptr<SharedHeap>> SharedHeap::Make(uint64_t bytes) {
  BRAID_ASSIGN_OR_RETURN(SharedMemory memory,
                         SharedMemory::Reserve("braid heap", WholePages(bytes)));
  return std::make_unique<SharedHeap>(std::move(memory));
}

void SharedHeap::Retire() {
  MutexLock lock(mutex_);
  is_retired_ = true;
}

absl::StatusOr<Memory> SharedHeap::Allocate(uint64_t bytes) {
  const uint64_t block = WholePages(std::max<uint64_t>(bytes, 1));
  MutexLock lock(mutex_);
  if (is_retired_) return NobodyMaps();
  const auto fits =
      std::ranges::find_if(free_, [&](const auto& run) { return run.second >= block; });
  uint64_t offset = end_;
  if (fits != free_.end()) {
    offset = fits->first;
    const uint64_t left = fits->second - block;
    free_.erase(fits);
    if (left > 0) free_[offset + block] = left;
  } else {
    if (block > memory_.bytes() - end_) {
      return absl::ResourceExhaustedError(
          absl::StrFormat("of the memory shared with other processes %d bytes are asked for, and "
                          "%d of %d are lent",
                          bytes, end_, memory_.bytes()));
    }
    BRAID_RETURN_IF_ERROR(memory_.Fill(end_, block));
    Filled(end_, block);
    end_ += block;
  }
  return Memory(MemoryKind::kHost, {memory_.data() + offset, static_cast<size_t>(bytes)},
                [this, block](std::span<std::byte> lent) {
                  GiveBack({lent.data(), static_cast<size_t>(block)});
                });
}

absl::StatusOr<std::span<std::byte>> SharedHeap::Reserve(uint64_t bytes) {
  MutexLock lock(mutex_);
  if (is_retired_) return NobodyMaps();
  const auto address = reinterpret_cast<uintptr_t>(memory_.data()) + end_;
  const uint64_t begin = end_ + (kLargePage - address % kLargePage) % kLargePage;
  const uint64_t size = WholePages(bytes);
  if (begin > memory_.bytes() || size > memory_.bytes() - begin) {
    return absl::ResourceExhaustedError(absl::StrFormat(
        "of the memory shared with other processes %d bytes are to be reserved, and %d of %d are "
        "taken",
        bytes, end_, memory_.bytes()));
  }
  end_ = begin + size;
  return std::span<std::byte>(memory_.data() + begin, static_cast<size_t>(bytes));
}

absl::Status SharedHeap::Fill(std::span<std::byte> reserved) {
  const uint64_t begin = PagesStart(OffsetIn(reserved));
  const uint64_t bytes = WholePages(OffsetIn(reserved) + reserved.size()) - begin;
  BRAID_RETURN_IF_ERROR(memory_.FillInLargePages(begin, bytes));
  MutexLock lock(mutex_);
  Filled(begin, bytes);
  return absl::OkStatus();
}

// A run may begin in the last page of one that was filled before, or grow there.
void SharedHeap::Filled(uint64_t offset, uint64_t bytes) {
  uint64_t& run = runs_[offset];
  run = std::max(run, bytes);
}

std::span<std::byte> SharedHeap::RunOf(std::span<const std::byte> memory) const {
  const std::optional<uint64_t> offset = OffsetOf(memory);
  if (!offset.has_value()) return {};
  MutexLock lock(mutex_);
  const auto after = runs_.upper_bound(*offset);
  if (after == runs_.begin()) return {};
  const auto& [begin, bytes] = *std::prev(after);
  if (*offset + memory.size() > begin + bytes) return {};
  return {memory_.data() + begin, static_cast<size_t>(bytes)};
}

uint64_t SharedHeap::OffsetIn(std::span<const std::byte> memory) const {
  return static_cast<uint64_t>(memory.data() - memory_.data());
}

void SharedHeap::GiveBack(std::span<std::byte> block) {
  MutexLock lock(mutex_);
  uint64_t offset = OffsetIn(block);
  uint64_t bytes = block.size();
  if (IsSeparate(offset, bytes)) return;
  const auto after = free_.lower_bound(offset);
  if (after != free_.begin() && std::prev(after)->first + std::prev(after)->second == offset) {
    offset = std::prev(after)->first;
    bytes += std::prev(after)->second;
  }
  if (after != free_.end() && offset + bytes == after->first) {
    bytes += after->second;
    free_.erase(after);
  }
  free_[offset] = bytes;
}

std::optional<uint64_t> SharedHeap::OffsetOf(std::span<const std::byte> memory) const {
  const auto begin = reinterpret_cast<uintptr_t>(memory_.data());
  const auto at = reinterpret_cast<uintptr_t>(memory.data());
  if (at < begin || at - begin > memory_.bytes() ||
      memory.size() > memory_.bytes() - (at - begin)) {
    return std::nullopt;
  }
  MutexLock lock(mutex_);
  if (IsSeparate(at - begin, memory.size())) return std::nullopt;
  return at - begin;
}

bool SharedHeap::IsSeparate(uint64_t offset, uint64_t bytes) const {
  const auto page = separate_.lower_bound(PagesStart(offset));
  return page != separate_.end() && *page < offset + bytes;
}

void SharedHeap::Separate(std::span<const std::byte> memory) {
  MutexLock lock(mutex_);
  const uint64_t begin = PagesStart(OffsetIn(memory));
  const uint64_t end = WholePages(OffsetIn(memory) + memory.size());
  // If it failed, a store of the peer's would be taken for this process's own.
  const absl::Status status = memory_.Separate(begin, end - begin);
  CHECK(status.ok()) << status;
  for (uint64_t page = begin; page < end; page += SystemPage()) separate_.insert(page);
}

}  // namespace braid
