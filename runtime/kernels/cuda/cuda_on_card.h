// How kernels are started on a card, and what their functions are there. Comes before everything
// else (-include) in the sources that a CUDA compiler reads; tests/support/cuda_on_host.h is its
// twin.
#pragma once

#include <cuda_runtime.h>

#include "runtime/kernels/cuda/instructions_on_card.h"
#include "runtime/kernels/cuda/launch.h"

namespace braid::cuda {

// A kernel of a one-dimensional grid whose threads do not meet; no blocks are no launch.
template <class... Parameters, class... Arguments>
Error Launch(const Queue& queue, unsigned blocks, unsigned threads, void (*kernel)(Parameters...),
             Arguments... arguments) {
  if (blocks == 0) return kDone;
  kernel<<<blocks, threads, 0, static_cast<cudaStream_t>(queue.stream)>>>(
      static_cast<Parameters>(arguments)...);
  return static_cast<Error>(cudaGetLastError());
}
// One whose threads meet: barriers, shuffles.
template <class... Parameters, class... Arguments>
Error LaunchBlocks(const Queue& queue, dim3 blocks, dim3 threads, void (*kernel)(Parameters...),
                   Arguments... arguments) {
  if (blocks.x == 0 || blocks.y == 0 || blocks.z == 0) return kDone;
  kernel<<<blocks, threads, 0, static_cast<cudaStream_t>(queue.stream)>>>(
      static_cast<Parameters>(arguments)...);
  return static_cast<Error>(cudaGetLastError());
}

}  // namespace braid::cuda
