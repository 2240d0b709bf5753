// Long loops that compute more than they read. The processor's own prefetching does not keep up
// with them: measured on a Xeon with AVX-512, the gradient of gelu of 12 MB that lay in no cache
// took 5.8 ms, of 12 MB in the cache 2.0, and with the lines asked for ahead 2.1. Where a loop does
// next to nothing (an addition) it is no faster, and from the second-level cache 10 % slower.
#pragma once

#include <algorithm>
#include <cstdint>

namespace braid::cpu {

// Asks for the lines of [from, from + bytes). Never faults, whatever lies there.
inline void Prefetch(const void* from, int64_t bytes) {
  constexpr int64_t kLine = 64;
  const auto at = reinterpret_cast<uintptr_t>(from);
  for (int64_t offset = 0; offset < bytes; offset += kLine) {
    __builtin_prefetch(reinterpret_cast<const void*>(at + static_cast<uintptr_t>(offset)));
  }
}

// How far ahead of its use something is asked for.
inline constexpr int64_t kFetchAheadBytes = 4096;

// What is used so far behind the `n` elements at `from`, which are used now.
template <class T>
void PrefetchBehind(const T* from, int64_t n) {
  Prefetch(reinterpret_cast<const char*>(from) + kFetchAheadBytes,
           n * static_cast<int64_t>(sizeof(T)));
}

// loop(begin, size) for the parts of [0, n) in order; each source is an array of n elements, of
// which a page ahead is asked for.
template <class Loop, class... T>
void FetchAhead(int64_t n, Loop loop, const T*... sources) {
  constexpr int64_t kPartBytes = 1024;
  constexpr int64_t kPart = kPartBytes / static_cast<int64_t>(std::max({sizeof(T)...}));
  for (int64_t begin = 0; begin < n; begin += kPart) {
    const int64_t size = std::min(kPart, n - begin);
    (PrefetchBehind(sources + begin, size), ...);
    loop(begin, size);
  }
}

}  // namespace braid::cpu
