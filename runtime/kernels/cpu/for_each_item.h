// Work that is cut into items, shared by a kernel's threads.
#pragma once

#include <cstdint>

namespace braid::cpu {

// Calls f(item, thread) for all items, on up to `threads` threads.
template <class F>
void ForEachItem(int64_t items, int threads, F f) {
  if (threads <= 1) {
    for (int64_t item = 0; item < items; ++item) f(item, 0);
    return;
  }
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int thread = 0; thread < threads; ++thread) {
    for (int64_t item = thread; item < items; item += threads) f(item, thread);
  }
}

}  // namespace braid::cpu
