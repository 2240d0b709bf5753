// CUDA's words for the host's compiler: kernels run here as they would on a card, without one. A
// grid runs block by block. Threads that meet are fibers: a warp's threads go on together to their
// next meeting, and which warp is next, a seed draws, so that a missing barrier shows as a wrong
// number. Comes before everything else (-include) in the sources of runtime/kernels/cuda/*.cu.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <vector>

#include "runtime/kernels/cuda/launch.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static
#define __restrict__ __restrict
#define BRAID_UNROLL  // cuda_on_card.h
#define BRAID_UNROLL_BY_4

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  dim3(unsigned x_size = 1, unsigned y_size = 1, unsigned z_size = 1)  // NOLINT: as CUDA's
      : x(x_size), y(y_size), z(z_size) {}
};

namespace braid::cuda_on_host {

// One block at a time, on one thread of the host. Defined in cuda_on_host.cc.
struct Place {
  dim3 thread, block, threads, blocks;
};
Place& Now();

// Runs `body` for each thread of each block of the grid, as fibers that may meet; how many blocks'
// threads did not come to a meeting ends the process with words.
void RunMeeting(dim3 blocks, dim3 threads, const std::function<void()>& body);

// The same for threads that do not meet.
template <class Body>
void RunApart(unsigned blocks, unsigned threads, Body body) {
  Place& now = Now();
  now.threads = threads;
  now.blocks = blocks;
  now.thread = now.block = dim3(0, 0, 0);
  for (now.block.x = 0; now.block.x < blocks; ++now.block.x) {
    for (now.thread.x = 0; now.thread.x < threads; ++now.thread.x) body();
  }
}

// Now, if `stream` is null; else when the stream of module_on_host.cc has come to it.
void Do(void* stream, std::function<void()> work);
// What queues in such a stream: set by those who make them.
using DoLater = void (*)(void* stream, std::function<void()> work);
DoLater& Later();

void MeetBlock();
// All threads of the warp, twice: each leaves `value` (at most 8 bytes), and gets that of `lane`.
uint64_t MeetWarp(uint64_t value, unsigned lane);
unsigned Lane();

template <class T>
T Exchange(T value, unsigned lane) {
  static_assert(sizeof(T) <= sizeof(uint64_t));
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  bits = MeetWarp(bits, lane);
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

}  // namespace braid::cuda_on_host

#define threadIdx (braid::cuda_on_host::Now().thread)
#define blockIdx (braid::cuda_on_host::Now().block)
#define blockDim (braid::cuda_on_host::Now().threads)
#define gridDim (braid::cuda_on_host::Now().blocks)

inline void __syncthreads() { braid::cuda_on_host::MeetBlock(); }
inline void __syncwarp(unsigned /*mask*/ = ~0u) { braid::cuda_on_host::MeetWarp(0, 0); }
inline void __threadfence() {}
inline void __threadfence_system() {}
template <class T>
T __shfl_xor_sync(unsigned /*mask*/, T value, int lanes) {
  return braid::cuda_on_host::Exchange(value,
                                       braid::cuda_on_host::Lane() ^ static_cast<unsigned>(lanes));
}
template <class T>
T __shfl_sync(unsigned /*mask*/, T value, int lane) {
  return braid::cuda_on_host::Exchange(value, static_cast<unsigned>(lane) % 32);
}
template <class T>
T __shfl_down_sync(unsigned /*mask*/, T value, unsigned lanes) {
  const unsigned lane = braid::cuda_on_host::Lane();
  return braid::cuda_on_host::Exchange(value, lane + lanes < 32 ? lane + lanes : lane);
}
template <class T>
T __shfl_up_sync(unsigned /*mask*/, T value, unsigned lanes) {
  const unsigned lane = braid::cuda_on_host::Lane();
  return braid::cuda_on_host::Exchange(value, lane >= lanes ? lane - lanes : lane);
}

inline float __expf(float x) { return std::exp(x); }
// A product and a sum that stay two roundings.
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __dadd_rn(double a, double b) { return a + b; }

template <class T>
T atomicAdd(T* at, T value) {
  const T before = *at;
  *at = before + value;
  return before;
}
template <class T>
T atomicCAS(T* at, T expected, T value) {
  const T before = *at;
  if (before == expected) *at = value;
  return before;
}

#include "tests/support/instructions_on_host.h"

namespace braid::cuda {

// As in cuda_on_card.h.
template <class... Parameters, class... Arguments>
Error Launch(const Queue& queue, unsigned blocks, unsigned threads, void (*kernel)(Parameters...),
             Arguments... arguments) {
  cuda_on_host::Do(queue.stream, [=] {
    cuda_on_host::RunApart(blocks, threads, [&] { kernel(static_cast<Parameters>(arguments)...); });
  });
  return kDone;
}
template <class... Parameters, class... Arguments>
Error LaunchBlocks(const Queue& queue, dim3 blocks, dim3 threads, void (*kernel)(Parameters...),
                   Arguments... arguments) {
  cuda_on_host::Do(queue.stream, [=] {
    cuda_on_host::RunMeeting(blocks, threads,
                             [&] { kernel(static_cast<Parameters>(arguments)...); });
  });
  return kDone;
}

}  // namespace braid::cuda
