#include "tests/memory/counting_allocator.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>

// glibc's own allocator under its other names.
extern "C" {
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* memory, size_t size);
void* __libc_memalign(size_t alignment, size_t size);
void __libc_free(void* memory);
}

namespace braid {
namespace {

constexpr int kDepth = 24;
constexpr size_t kSites = 1 << 12;

// Fixed memory only: this is the allocator.
struct Site {
  int depth = 0;
  void* callers[kDepth];
  int64_t calls = 0, bytes = 0;
};
Site sites[kSites];
std::atomic_flag sites_lock = ATOMIC_FLAG_INIT;
std::atomic<bool> is_watching{false};
std::atomic<int64_t> allocated{0}, peak{0};
thread_local bool is_inside = false;  // of the bookkeeping: walking the stack may allocate

void Note(size_t bytes) {
  if (!is_watching.load(std::memory_order_relaxed) || is_inside) return;
  is_inside = true;
  void* callers[kDepth];
  const int depth = backtrace(callers, kDepth);
  uint64_t hash = 14695981039346656037u;
  for (int i = 0; i < depth; ++i) {
    hash = (hash ^ reinterpret_cast<uintptr_t>(callers[i])) * 1099511628211u;
  }
  while (sites_lock.test_and_set(std::memory_order_acquire)) {
  }
  // The last place takes all that finds none.
  size_t at = hash % kSites;
  for (size_t tries = 0; tries < kSites; ++tries, at = (at + 1) % kSites) {
    Site& site = sites[at];
    if (site.depth == 0) {
      site.depth = depth;
      std::memcpy(site.callers, callers, sizeof(callers));
    }
    const bool is_same =
        site.depth == depth && std::memcmp(site.callers, callers, depth * sizeof(void*)) == 0;
    if (!is_same && tries + 1 < kSites) continue;
    ++site.calls;
    site.bytes += static_cast<int64_t>(bytes);
    break;
  }
  sites_lock.clear(std::memory_order_release);
  is_inside = false;
}

void* Count(void* memory, size_t bytes) {
  if (memory == nullptr) return nullptr;
  const auto usable = static_cast<int64_t>(malloc_usable_size(memory));
  const int64_t now = allocated.fetch_add(usable, std::memory_order_relaxed) + usable;
  int64_t seen = peak.load(std::memory_order_relaxed);
  while (now > seen && !peak.compare_exchange_weak(seen, now, std::memory_order_relaxed)) {
  }
  Note(bytes);
  return memory;
}

void Uncount(void* memory) {
  if (memory == nullptr) return;
  allocated.fetch_sub(static_cast<int64_t>(malloc_usable_size(memory)), std::memory_order_relaxed);
}

std::string FileOf(const void* caller) {
  Dl_info info;
  return dladdr(caller, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : "";
}

bool IsOfTheLanguage(const std::string& file) {
  return file.find("/libc.so") != std::string::npos ||
         file.find("/libstdc++.so") != std::string::npos ||
         file.find("/libgomp.so") != std::string::npos;
}

}  // namespace

void BeginWatchingAllocations() {
  void* callers[2];
  backtrace(callers, 2);  // loads what it needs
  for (Site& site : sites) site = Site();
  is_watching.store(true);
}

void EndWatchingAllocations() { is_watching.store(false); }

std::vector<AllocationSite> WatchedAllocations() {
  std::vector<AllocationSite> found;
  for (const Site& site : sites) {
    if (site.calls == 0) continue;
    AllocationSite result = {.calls = site.calls, .bytes = site.bytes, .library = "", .stack = ""};
    char** const names = backtrace_symbols(site.callers, site.depth);
    // The first callers are Note, Count and the function that the C library's caller called.
    constexpr int kOwn = 3;
    for (int i = kOwn; i < site.depth; ++i) {
      const std::string file = FileOf(site.callers[i]);
      if (result.library.empty() && !IsOfTheLanguage(file)) result.library = file;
      result.stack += std::string("    ") + names[i] + "\n";
    }
    free(names);
    found.push_back(std::move(result));
  }
  std::sort(found.begin(), found.end(),
            [](const AllocationSite& a, const AllocationSite& b) { return a.calls > b.calls; });
  return found;
}

int64_t AllocatedBytes() { return allocated.load(); }
int64_t PeakAllocatedBytes() { return peak.load(); }
void ResetPeakAllocatedBytes() { peak.store(allocated.load()); }

}  // namespace braid

extern "C" {

__attribute__((noinline)) void* malloc(size_t size) {
  return braid::Count(__libc_malloc(size), size);
}

__attribute__((noinline)) void* calloc(size_t count, size_t size) {
  return braid::Count(__libc_calloc(count, size), count * size);
}

__attribute__((noinline)) void* realloc(void* memory, size_t size) {
  braid::Uncount(memory);
  return braid::Count(__libc_realloc(memory, size), size);
}

__attribute__((noinline)) void* memalign(size_t alignment, size_t size) {
  return braid::Count(__libc_memalign(alignment, size), size);
}

__attribute__((noinline)) void* aligned_alloc(size_t alignment, size_t size) {
  return braid::Count(__libc_memalign(alignment, size), size);
}

__attribute__((noinline)) int posix_memalign(void** memory, size_t alignment, size_t size) {
  *memory = braid::Count(__libc_memalign(alignment, size), size);
  return *memory == nullptr ? ENOMEM : 0;
}

void free(void* memory) {
  braid::Uncount(memory);
  __libc_free(memory);
}

}  // extern "C"
