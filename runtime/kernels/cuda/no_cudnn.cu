// What cudnn_convolution.cu is where cuDNN's headers are missing: a library that is not opened.
#include <cstdio>

#include "runtime/kernels/cuda/cudnn_convolution.h"

namespace braid::cuda {

Cudnn* OpenCudnn(const char* /*folders*/, char* text, size_t text_bytes) {
  std::snprintf(
      text, text_bytes,
      "cuDNN is not opened, since this module was built where its header cudnn.h was not");
  return nullptr;
}
void CloseCudnn(Cudnn* /*library*/) {}
const CudnnPlan* FindCudnnPlan(const Queue& /*queue*/, const ConvolutionLaunch& /*launch*/) {
  return nullptr;
}
Error ConvolveWithoutBias(const Queue& /*queue*/, const ConvolutionLaunch& /*launch*/,
                          const CudnnPlan& /*plan*/) {
  return kLibraryFailed;
}

}  // namespace braid::cuda
