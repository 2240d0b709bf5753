// Kernels that are written when a job is loaded, and compiled for one card.
#pragma once

#include <string>

#include "runtime/kernels/cuda/fused_operands.h"
#include "runtime/kernels/cuda/launch.h"

namespace braid::cuda {

class Programs {
 public:
  virtual ~Programs() = default;
  // A kernel, from its parameters' list on, of blocks of kThreads; fused_prelude.h stands before
  // it. Its number: the same for the same text.
  virtual int Add(const std::string& text) = 0;
  // All that was added before.
  virtual void Compile() = 0;
  // The kernel, for Launch; compiles it if that was not done. Null if that failed, which was
  // logged.
  virtual void* Find(int number) = 0;
  virtual Error Launch(const Queue& queue, void* kernel, unsigned blocks,
                       const FusedOperands& operands) = 0;
};

}  // namespace braid::cuda
