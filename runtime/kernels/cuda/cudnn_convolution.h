// Convolutions by cuDNN, which is opened when the program runs.
#pragma once

#include <cstddef>

#include "runtime/kernels/cuda/convolution.h"
#include "runtime/kernels/cuda/launch.h"

namespace braid::cuda {

struct Cudnn;

// For the current device. Null if it cannot be opened; then the text says why.
Cudnn* OpenCudnn(const char* folders, char* text, size_t text_bytes);
void CloseCudnn(Cudnn* library);  // may be null

// How the library computes convolutions of one shape, one type, and so on.
struct CudnnPlan;

// Chosen by the library's rules once for each shape and type, without measuring anything, among
// algorithms that repeat bit for bit. Null if the queue's device has no library, or that has no way
// for such a convolution. Lives as long as the library.
const CudnnPlan* FindCudnnPlan(const Queue& queue, const ConvolutionLaunch& launch);
// The plan's launch, but for its bias. Operands of a wide result are f32 by now, and weights are as
// the library has them.
Error ConvolveWithoutBias(const Queue& queue, const ConvolutionLaunch& launch,
                          const CudnnPlan& plan);

}  // namespace braid::cuda
