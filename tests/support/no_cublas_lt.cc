// What runtime/kernels/cuda/cublas_lt.cu is where there is no CUDA: a library that was not looked
// for.
#include "runtime/kernels/cuda/cublas_lt.h"

namespace braid::cuda {

CublasLt* OpenCublasLt(const char* /*folders*/, char* text, size_t /*text_bytes*/) {
  text[0] = 0;
  return nullptr;
}
void CloseCublasLt(CublasLt* /*library*/) {}
const LtPlan* FindLtPlan(const Queue& /*queue*/, const MatmulLaunch& /*launch*/) { return nullptr; }
Error Multiply(const Queue& /*queue*/, const MatmulLaunch& /*launch*/, const LtPlan& /*plan*/) {
  return kLibraryFailed;
}

}  // namespace braid::cuda
