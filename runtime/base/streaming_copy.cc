#include "runtime/base/streaming_copy.h"

#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace braid {

#if defined(__x86_64__)

void StreamingCopy(std::byte* to, const std::byte* from, size_t bytes) {
  constexpr size_t kStoredAtOnce = 64;
  const size_t head =
      (kStoredAtOnce - reinterpret_cast<uintptr_t>(to) % kStoredAtOnce) % kStoredAtOnce;
  if (bytes < head + kStoredAtOnce) {
    std::memcpy(to, from, bytes);
    return;
  }
  std::memcpy(to, from, head);
  to += head;
  from += head;
  bytes -= head;
  for (; bytes >= kStoredAtOnce;
       bytes -= kStoredAtOnce, to += kStoredAtOnce, from += kStoredAtOnce) {
    auto* const line = reinterpret_cast<__m128i*>(to);
    const auto* const source = reinterpret_cast<const __m128i*>(from);
    const __m128i a = _mm_loadu_si128(source), b = _mm_loadu_si128(source + 1);
    const __m128i c = _mm_loadu_si128(source + 2), d = _mm_loadu_si128(source + 3);
    _mm_stream_si128(line, a);
    _mm_stream_si128(line + 1, b);
    _mm_stream_si128(line + 2, c);
    _mm_stream_si128(line + 3, d);
  }
  std::memcpy(to, from, bytes);
  _mm_sfence();
}

#else

void StreamingCopy(std::byte* to, const std::byte* from, size_t bytes) {
  std::memcpy(to, from, bytes);
}

#endif

}  // namespace braid
