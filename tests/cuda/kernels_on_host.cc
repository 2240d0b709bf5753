#include <string>

#include "runtime/kernels/cuda/families.h"
#include "tests/cuda/kernels_under_test.h"

namespace braid {

const KernelRegistry& KernelsUnderTest() {
  static const cuda::KernelTable table = cuda::MakeKernelTable();
  static const KernelRegistry kernels = cuda::CudaKernels(table);
  return kernels;
}

std::string WhyNotHere() { return ""; }

}  // namespace braid
